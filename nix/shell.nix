# What working on Boxmaker needs on NixOS; elsewhere deploy/local/setup.sh brings it.
# The environments in .state hold wheels: their modules find libstdc++ through the path below,
# their programs (ruff) start where nix-ld is enabled.
{ pkgs }:
pkgs.mkShell {
  packages = [
    pkgs.git
    pkgs.gnumake
    pkgs.nixfmt-tree
    pkgs.python313
  ];
  LD_LIBRARY_PATH = pkgs.lib.makeLibraryPath [ pkgs.stdenv.cc.cc.lib ];
}
