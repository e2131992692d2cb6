# Real derivations that nobody builds: enough to evaluate every output of the flake. `arguments` and `script` keep what
# a derivation was asked for, so that a test can look at it.
{ system, lib }:
let
  # What the real one would depend on, as text: so it is evaluated here too.
  plain =
    value:
    if builtins.isFunction value then
      "a function"
    else if builtins.isPath value then
      toString value
    else if builtins.isList value then
      map plain value
    else if builtins.isAttrs value && !(value ? outPath) then
      builtins.mapAttrs (_: plain) value
    else
      value;

  package =
    name: arguments:
    derivation {
      inherit name system;
      builder = "/bin/sh";
      args = [ "-c" ": > $out" ];
      wanted = builtins.toJSON (plain arguments);
    }
    // {
      inherit arguments;
    };
  named = names: lib.genAttrs names (name: package name { });
in
named [
  "acl"
  "cacert"
  "curl"
  "git"
  "gnumake"
  "jq"
  "nixfmt-tree"
  "nukeReferences"
  "patchelf"
  "podman"
  "tzdata"
]
// {
  inherit lib;
  pkgsStatic.busybox = package "busybox" { };
  stdenv = {
    hostPlatform = { inherit system; };
    cc.cc.lib = package "libstdcxx" { };
    cc.libc.bin = package "libc-bin" { };
  };
  python313 = package "python313" { } // {
    sitePackages = "lib/python3.13/site-packages";
    withPackages = f: package "python313-env" { packages = f { }; };
    pkgs = named [
      "hypothesis"
      "markdown-it-py"
      "pytest"
      "pytest-timeout"
      "wsproto"
    ] // {
      makePythonPath = packages: builtins.concatStringsSep ":" (map toString packages);
    };
  };
  mkShell = arguments: package "shell" arguments;
  runCommand =
    name: arguments: script:
    package name { inherit arguments script; };
  writeText = name: text: package name { inherit text; };
  writeShellScript = name: text: package name { inherit text; };

  # A tag that changes with everything that is asked for, as the real one does.
  dockerTools.buildLayeredImage =
    { name, config, compressor, extraCommands }@arguments:
    let
      archive = package "${baseNameOf name}.tar" arguments;
    in
    archive
    // {
      imageName = name;
      imageTag = builtins.substring 11 32 archive.outPath;
    };

  # Both machines of a VM test through the module, and its script. What the module refuses, fails.
  testers.runNixOSTest =
    {
      name,
      nodes,
      testScript,
    }:
    let
      machines = builtins.mapAttrs (
        _: node:
        lib.machine {
          inherit lib;
          pkgs = import ./pkgs.nix { inherit system lib; };
          modules = [ node ];
          more.nodes = builtins.mapAttrs (_: machine: machine.config) machines;
        }
      ) nodes;
      refused = builtins.concatMap (machine: machine.refused) (builtins.attrValues machines);
    in
    if refused != [ ] then
      throw (builtins.concatStringsSep "\n" refused)
    else
      package name {
        script = testScript { nodes = builtins.mapAttrs (_: machine: machine.config) machines; };
        machines = builtins.mapAttrs (_: machine: machine.boxmaker) machines;
      };
}
