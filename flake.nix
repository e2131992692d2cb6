{
  description = "Boxmaker: a private agent appliance";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    # As a plain source: its own inputs are not needed, and nix/packages.nix hands it a lib.
    poetry2nix = {
      url = "github:nix-community/poetry2nix";
      flake = false;
    };
  };

  outputs =
    {
      self,
      nixpkgs,
      poetry2nix,
    }:
    let
      eachSystem =
        f:
        nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (system: f nixpkgs.legacyPackages.${system});
    in
    {
      packages = eachSystem (pkgs: import ./nix/packages.nix { inherit pkgs poetry2nix; });

      apps = eachSystem (pkgs: {
        bxctl = {
          type = "app";
          program = "${self.packages.${pkgs.stdenv.hostPlatform.system}.bxctl}/bin/bxctl";
          meta.description = "Talk with Boxmaker and look into it";
        };
      });

      # Building the application proves that every locked file still fits together.
      checks = eachSystem (pkgs: {
        application = self.packages.${pkgs.stdenv.hostPlatform.system}.default;
      });

      devShells = eachSystem (pkgs: {
        default = import ./nix/shell.nix { inherit pkgs; };
      });

      formatter = eachSystem (pkgs: pkgs.nixfmt-tree);
    };
}
