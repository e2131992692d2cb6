# What this repository uses of nixpkgs' lib, nothing more. Options and mkIf stay data; `resolve` and `filled` turn them
# into what the module system would make of one module. Types are names here: nothing is checked against them.
rec {
  inherit (builtins)
    attrNames
    concatMap
    isAttrs
    listToAttrs
    ;
  nameValuePair = name: value: { inherit name value; };
  genAttrs = names: f: listToAttrs (map (name: nameValuePair name (f name)) names);
  filterAttrs =
    keep: set:
    listToAttrs (
      concatMap (name: if keep name set.${name} then [ (nameValuePair name set.${name}) ] else [ ]) (
        attrNames set
      )
    );
  mapAttrs' = f: set: listToAttrs (map (name: f name set.${name}) (attrNames set));
  mapAttrsToList = f: set: map (name: f name set.${name}) (attrNames set);
  max = one: other: if one > other then one else other;
  optional = condition: value: if condition then [ value ] else [ ];
  optionals = condition: values: if condition then values else [ ];
  optionalAttrs = condition: set: if condition then set else { };
  hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;
  removePrefix =
    prefix: text:
    if hasPrefix prefix text then
      builtins.substring (builtins.stringLength prefix) (builtins.stringLength text) text
    else
      text;
  makeLibraryPath = paths: builtins.concatStringsSep ":" (map (path: "${path}/lib") paths);
  recursiveUpdate =
    one: other:
    one
    // builtins.mapAttrs (
      name: value:
      if one ? ${name} && isAttrs one.${name} && isAttrs value then
        recursiveUpdate one.${name} value
      else
        value
    ) other;

  mkOption = arguments: arguments // { _type = "option"; };
  mkEnableOption =
    what:
    mkOption {
      type = types.bool;
      default = false;
      description = "Whether to enable ${what}.";
    };
  mkIf = condition: content: {
    _type = "if";
    inherit condition content;
  };
  mkDefault = content: {
    _type = "override";
    inherit content;
  };
  literalExpression = text: {
    _type = "literalExpression";
    inherit text;
  };
  types =
    let
      named = name: { _type = "option-type"; inherit name; };
    in
    genAttrs [ "anything" "bool" "int" "package" "path" "str" ] named
    // {
      ints = genAttrs [ "positive" "unsigned" ] named;
      attrsOf = _element: named "attrsOf";
      nullOr = _element: named "nullOr";
      listOf = _element: named "listOf";
      enum = _values: named "enum";
    };

  # A module's config without its wrappers.
  resolve =
    value:
    if !isAttrs value then
      value
    else if value._type or "" == "if" then
      (if value.condition then resolve value.content else { })
    else if value._type or "" == "override" then
      resolve value.content
    else if value ? outPath then
      value
    else
      builtins.mapAttrs (_: resolve) value;

  # What a configuration says, with the defaults of what it does not say. An option that does not exist is refused.
  filled =
    options: said:
    let
      unknown = builtins.filter (name: !(options ? ${name})) (attrNames said);
    in
    if unknown != [ ] then
      throw "there is no option ${builtins.head unknown}"
    else
      builtins.mapAttrs (
        name: option:
        if option._type or "" == "option" then
          said.${name} or option.default or (throw "the option ${name} is used but has no value")
        else
          filled option (said.${name} or { })
      ) options;

  # What one machine's modules come to: services.boxmaker and what its module makes of it, beside what the others say.
  # One module with options, no conflicts, no types; the real module system judges those.
  machine =
    {
      lib,
      pkgs,
      modules,
      more ? { },
    }:
    let
      parts = concatMap flat modules;
      flat =
        module:
        let
          loaded = if builtins.isPath module then import module else module;
          made = if builtins.isFunction loaded then loaded ({ inherit lib pkgs config; } // more) else loaded;
        in
        concatMap flat (made.imports or [ ]) ++ [ (builtins.removeAttrs made [ "imports" ]) ];
      declares = part: part ? options;
      ours = builtins.filter declares parts;
      said = builtins.foldl' recursiveUpdate { } (map resolve (builtins.filter (part: !declares part) parts));
      made = builtins.foldl' recursiveUpdate { } (map (part: resolve part.config) ours);
      merged = recursiveUpdate made said;
      # Attribute by attribute, since whether the module says anything depends on the first of them.
      config = {
        services = builtins.mapAttrs (name: options: filled options (said.services.${name} or { })) (
          builtins.foldl' (all: part: all // part.options.services) { } ours
        );
        users = recursiveUpdate { users = { }; groups = { }; } (merged.users or { });
        virtualisation = recursiveUpdate {
          podman.package = pkgs.podman;
          oci-containers = { backend = "podman"; containers = { }; };
        } (merged.virtualisation or { });
        security = said.security or { };
        networking = { primaryIPAddress = "192.0.2.1"; };
      };
    in
    {
      inherit config made;
      refused = concatMap (a: if a.assertion then [ ] else [ a.message ]) (made.assertions or [ ]);
      boxmaker = builtins.removeAttrs made [ "assertions" ];
    };

  # Functions stand among the licences since nixpkgs 26.05; poetry2nix must not see them.
  licenses = {
    mit.spdxId = "MIT";
    AND = one: other: [ one other ];
  };
}
