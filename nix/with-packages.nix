# services.boxmaker with this flake's own packages as defaults: nixosModules.default.
self:
{ lib, pkgs, ... }:
let
  ours = self.packages.${pkgs.stdenv.hostPlatform.system};
  roles = builtins.attrNames (import ./roles.nix).roles;
in
{
  imports = [ ./module.nix ];

  services.boxmaker = {
    package = lib.mkDefault ours.bxctl;
    images = lib.genAttrs roles (role: lib.mkDefault ours."image-${role}");
    toolImage = lib.mkDefault ours.image-tools;
    toolImageId = lib.mkDefault ours.tool-image-id;
  };
}
