# A stand-in for poetry2nix that refuses what the real one chokes on.
{ pkgs, lib }:
let
  inherit (builtins) all elem fromTOML isAttrs match readFile;

  # The real one reads `spdxId` of every licence.
  licences = all isAttrs (builtins.attrValues lib.licenses);

  # Its wheel picker throws on platform tags that it does not know.
  pure = file: match ".*[.]whl" file == null || match ".*-none-any[.]whl" file != null;

  installable = package: package.files != [ ] && all (entry: pure entry.file) package.files;

  # What is read of a project: its name, and the packages of the groups that are asked for.
  read =
    { projectDir, groups, ... }:
    let
      project = (fromTOML (readFile (projectDir + "/pyproject.toml"))).tool.poetry;
      lock = fromTOML (readFile (projectDir + "/poetry.lock"));
      wanted = builtins.filter (package: builtins.any (group: elem group groups) package.groups) lock.package;
    in
    assert licences;
    assert wanted != [ ] && all installable wanted;
    { inherit project wanted; };
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
      inherit (read arguments) project;
    in
    assert meta ? license;
    pkgs.runCommand "${project.name}-${project.version}" arguments "";

  mkPoetryPackages =
    {
      projectDir,
      python,
      groups,
      checkGroups,
      preferWheels,
      overrides,
    }@arguments:
    {
      inherit python;
      poetryPackages = map (package: pkgs.runCommand package.name { } "") (read arguments).wanted;
    };
}
