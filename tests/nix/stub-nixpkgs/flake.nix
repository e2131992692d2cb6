# A stand-in for nixpkgs, so that the flake can be evaluated without a network.
{
  outputs =
    { self }:
    let
      lib = import ./lib.nix // {
        nixosSystem =
          { system, modules }:
          let
            pkgs = import ./pkgs.nix { inherit system lib; };
            machine = lib.machine { inherit lib pkgs modules; };
          in
          if machine.refused != [ ] then
            throw (builtins.concatStringsSep "\n" machine.refused)
          else
            { config.system.build.toplevel = pkgs.runCommand "toplevel" machine.boxmaker ""; };
      };
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (
        system: import ./pkgs.nix { inherit system lib; }
      );
    };
}
