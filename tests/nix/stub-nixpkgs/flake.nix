# A stand-in for nixpkgs, so that the flake can be evaluated without a network.
{
  outputs =
    { self }:
    let
      lib = import ./lib.nix;
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (
        system: import ./pkgs.nix { inherit system lib; }
      );
    };
}
