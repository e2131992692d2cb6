# What this flake uses of nixpkgs' lib, nothing more.
rec {
  nameValuePair = name: value: { inherit name value; };
  genAttrs = names: f: builtins.listToAttrs (map (name: nameValuePair name (f name)) names);
  filterAttrs =
    keep: set:
    builtins.listToAttrs (
      builtins.concatMap (
        name: if keep name set.${name} then [ (nameValuePair name set.${name}) ] else [ ]
      ) (builtins.attrNames set)
    );
  makeLibraryPath = paths: builtins.concatStringsSep ":" (map (path: "${path}/lib") paths);

  # Functions stand among the licences since nixpkgs 26.05; poetry2nix must not see them.
  licenses = {
    mit.spdxId = "MIT";
    AND = one: other: [ one other ];
  };
}
