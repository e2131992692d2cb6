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
      inherit (builtins) mapAttrs;
      inherit (nixpkgs.lib) genAttrs;
      eachSystem =
        f: genAttrs [ "x86_64-linux" "aarch64-linux" ] (system: f nixpkgs.legacyPackages.${system});

      built = eachSystem (pkgs: import ./nix/packages.nix { inherit pkgs poetry2nix; });
    in
    {
      # bxctl, an image for each role, the tools' image and its ID.
      packages = mapAttrs (_: one: one.packages) built;

      apps = eachSystem (pkgs: {
        bxctl = {
          type = "app";
          program = "${self.packages.${pkgs.stdenv.hostPlatform.system}.bxctl}/bin/bxctl";
          meta.description = "Talk with Boxmaker and look into it";
        };
      });

      # services.boxmaker
      nixosModules.default = import ./nix/with-packages.nix self;

      checks = eachSystem (
        pkgs:
        import ./nix/checks {
          inherit self nixpkgs pkgs;
          inherit (built.${pkgs.stdenv.hostPlatform.system}) environment;
        }
      );

      devShells = eachSystem (pkgs: {
        default = import ./nix/shell.nix { inherit pkgs; };
      });

      formatter = eachSystem (pkgs: pkgs.nixfmt-tree);
    };
}
