# The Python application and the images of it, from pyproject.toml and poetry.lock.
# The only file that knows which builder makes it. Should poetry2nix fail on a later nixpkgs:
# python313.pkgs.buildPythonApplication with dependencies from nixpkgs takes its place here, and
# python313.withPackages gives `sitePackages`.
{
  pkgs,
  poetry2nix,
}:
let
  inherit (pkgs) lib;

  # poetry2nix maps over every value of lib.licenses, where nixpkgs 26.05 keeps functions too.
  p2n = import poetry2nix {
    inherit pkgs;
    lib = lib // {
      licenses = lib.filterAttrs (_: builtins.isAttrs) lib.licenses;
    };
  };

  project = (builtins.fromTOML (builtins.readFile ../pyproject.toml)).tool.poetry;

  # The lock keeps pure wheels only (nix/prune_lock.py), so nothing is compiled or patched.
  locked = {
    projectDir = ../.;
    python = pkgs.python313;
    groups = [ "main" ];
    checkGroups = [ ]; # the tests run in the gate; images do not hold pytest
    preferWheels = true;
    # The default overrides call functions of nixpkgs with arguments that they no longer take.
    overrides = p2n.overrides.withoutDefaults (_final: _prev: { });
  };

  application = p2n.mkPoetryApplication (
    locked
    // {
      meta = {
        description = "Boxmaker's roles and its command line";
        mainProgram = "bxctl";
        # Given, since poetry2nix's default cannot be evaluated with nixpkgs 26.05.
        license = {
          shortName = "undecided";
          fullName = "The owner has not chosen a licence yet";
        };
      };
    }
  );

  # What poetry.lock names, without ours: an image takes its own part of both.
  packages = p2n.mkPoetryPackages locked;
  environment = packages.python.withPackages (_: packages.poetryPackages);
in
{
  # An interpreter with what poetry.lock names: the checks run ours with it.
  inherit environment;

  packages = {
    default = application;
    bxctl = application;
  }
  // import ./images.nix {
    inherit pkgs;
    inherit (project) version;
    python = pkgs.python313;
    sitePackages = "${environment}/${pkgs.python313.sitePackages}";
  };
}
