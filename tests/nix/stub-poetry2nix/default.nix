# A stand-in for poetry2nix that refuses what the real one chokes on.
{ pkgs, lib }:
let
  inherit (builtins) all elem fromTOML isAttrs match readFile;

  # The real one reads `spdxId` of every licence.
  licences = all isAttrs (builtins.attrValues lib.licenses);

  # Its wheel picker throws on platform tags that it does not know.
  pure = file: match ".*[.]whl" file == null || match ".*-none-any[.]whl" file != null;

  installable = package: package.files != [ ] && all (entry: pure entry.file) package.files;
in
{
  overrides.withoutDefaults = overlay: [ overlay ];

  mkPoetryApplication =
    {
      projectDir,
      python,
      groups,
      checkGroups,
      preferWheels,
      overrides,
      meta,
    }@arguments:
    let
      project = (fromTOML (readFile (projectDir + "/pyproject.toml"))).tool.poetry;
      lock = fromTOML (readFile (projectDir + "/poetry.lock"));
      wanted = builtins.filter (package: builtins.any (group: elem group groups) package.groups) lock.package;
    in
    assert licences;
    assert meta ? license;
    assert wanted != [ ] && all installable wanted;
    pkgs.runCommand "${project.name}-${project.version}" arguments "" // {
      dependencyEnv = pkgs.runCommand "env" { } "";
    };
}
