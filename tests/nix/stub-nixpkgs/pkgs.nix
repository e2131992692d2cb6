# Real derivations that nobody builds: enough to evaluate every output of the flake.
{ system, lib }:
let
  package =
    name: arguments:
    derivation {
      inherit name system;
      builder = "/bin/sh";
      args = [ "-c" ": > $out" ];
    }
    // {
      inherit arguments;
    };
in
{
  inherit lib;
  stdenv = {
    hostPlatform = { inherit system; };
    cc.cc.lib = package "libstdcxx" { };
  };
  git = package "git" { };
  gnumake = package "gnumake" { };
  nixfmt-tree = package "nixfmt-tree" { };
  python313 = package "python313" { };
  mkShell = arguments: package "shell" arguments;
  runCommand = name: arguments: _script: package name arguments;
}
