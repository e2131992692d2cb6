# What nix/images.nix asks dockerTools for, for tests/nix/test_images.py. `nix`: the nix/ directory.
{
  nix,
}:
let
  lib = import ./stub-nixpkgs/lib.nix;
  pkgs = import ./stub-nixpkgs/pkgs.nix {
    inherit lib;
    system = "x86_64-linux";
  };
  made = import (/. + nix + "/images.nix") {
    inherit pkgs;
    python = pkgs.python313;
    sitePackages = "/nix/store/site-packages";
    version = "1.2.3";
  };
  images = lib.filterAttrs (_: image: image ? imageName) made;
in
{
  outputs = builtins.attrNames made;
  names = builtins.mapAttrs (_: image: image.imageName) images;
  configs = builtins.mapAttrs (_: image: image.arguments.config) images;
  arguments = builtins.mapAttrs (_: image: builtins.attrNames image.arguments) images;
}
