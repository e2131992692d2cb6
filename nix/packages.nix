# The Python application, from pyproject.toml and poetry.lock.
# The only file that knows which builder makes it. Should poetry2nix fail on a later nixpkgs:
# python313.pkgs.buildPythonApplication with dependencies from nixpkgs takes its place here.
{ pkgs, poetry2nix }:
let
  inherit (pkgs) lib;

  # poetry2nix maps over every value of lib.licenses, where nixpkgs 26.05 keeps functions too.
  p2n = import poetry2nix {
    inherit pkgs;
    lib = lib // {
      licenses = lib.filterAttrs (_: builtins.isAttrs) lib.licenses;
    };
  };

  application = p2n.mkPoetryApplication {
    projectDir = ../.;
    python = pkgs.python313;
    groups = [ "main" ];
    checkGroups = [ ]; # the tests run in the gate; images do not hold pytest
    # The lock keeps pure wheels only (nix/prune_lock.py), so nothing is compiled or patched.
    preferWheels = true;
    # The default overrides call functions of nixpkgs with arguments that they no longer take.
    overrides = p2n.overrides.withoutDefaults (_final: _prev: { });
    meta = {
      description = "Boxmaker's roles and its command line";
      mainProgram = "bxctl";
      # Given, since poetry2nix's default cannot be evaluated with nixpkgs 26.05.
      license = {
        shortName = "undecided";
        fullName = "The owner has not chosen a licence yet";
      };
    };
  };
in
{
  default = application;
  bxctl = application;
}
