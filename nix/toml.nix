# A value as TOML text, builtins only: the text is known at evaluation, so that tests read it with the programs' own
# reader, and nothing has to be built for it. Strings, booleans, numbers, lists of these, and tables below tables.
let
  inherit (builtins)
    attrNames
    concatStringsSep
    filter
    fromJSON
    isAttrs
    isList
    isString
    match
    replaceStrings
    toJSON
    ;

  # JSON's strings are TOML's, but for one control character that JSON leaves as it is.
  string = text: replaceStrings [ (fromJSON ''"\u007f"'') ] [ "\\u007f" ] (toJSON text);

  key = name: if match "[A-Za-z0-9_-]+" name == null then string name else name;

  value =
    v:
    if isString v then
      string v
    else if isList v then
      "[${concatStringsSep ", " (map value v)}]"
    else if isAttrs v then
      throw "no table stands inside a list here"
    else
      toJSON v;

  # What is null is left out: TOML has no such value.
  table =
    path: set:
    let
      names = filter (name: set.${name} != null) (attrNames set);
      plain = filter (name: !isAttrs set.${name}) names;
      below = filter (name: isAttrs set.${name}) names;
      head = if path == [ ] then "" else "\n[${concatStringsSep "." (map key path)}]\n";
      lines = map (name: "${key name} = ${value set.${name}}\n") plain;
    in
    concatStringsSep "" (
      (if plain == [ ] && below != [ ] then [ ] else [ head ] ++ lines)
      ++ map (name: table (path ++ [ name ]) set.${name}) below
    );
in
table [ ]
