# What `nix flake check` builds and runs. The gate's other half needs Podman or a model: make gate.
{
  self,
  nixpkgs,
  pkgs,
  environment,
}:
let
  inherit (pkgs.stdenv.hostPlatform) system;
  nixos = nixpkgs.lib.nixosSystem {
    inherit system;
    modules = [
      self.nixosModules.default
      ./machine.nix
    ];
  };
in
# Every image, the application, bxctl: building them proves that every locked file still fits together.
self.packages.${system}
// {
  # The module against the real options of NixOS, with the real types.
  machine = nixos.config.system.build.toplevel;

  # Unit and property tests under the packaged interpreter with the locked packages.
  gate = import ./gate.nix { inherit pkgs environment; };

  appliance = import ./vm.nix { inherit self pkgs environment; };
}
