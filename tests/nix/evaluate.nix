# The module, evaluated for one configuration: what it would hand to NixOS, as data for tests/nix.
#
#     nix-instantiate --eval --strict --json tests/nix/evaluate.nix --argstr said '{"enable": true}'
#
# `said` is services.boxmaker as JSON, `machine` what else the configuration holds, `nix` another nix/ directory. With
# `--arg lib 'import <nixpkgs/lib>'` it goes through the real module system, which checks types too.
{
  said ? "{}",
  machine ? "{}",
  nix ? toString ../../nix,
  lib ? null,
}:
let
  small = import ./stub-nixpkgs/lib.nix;

  # A package is a derivation's outline; a file is shown with its text.
  package = name: extra: { inherit name; outPath = "/nix/store/${name}"; type = "derivation"; } // extra;
  pkgs = {
    writeText = name: text: package name { inherit text; };
    writeShellScript = name: text: package name { inherit text; };
    podman = package "podman" { };
  };

  roles = builtins.attrNames (import (/. + nix + "/roles.nix")).roles;
  module = import (/. + nix + "/module.nix");

  brought = {
    package = package "bxctl" { };
    toolImage = package "image-tools.tar" { };
    toolImageId = package "tool-image-id" { };
    images = small.genAttrs roles (role: package "image-${role}.tar" {
      imageName = "localhost/boxmaker/${role}";
      imageTag = "tag-of-${role}";
    });
  };
  wanted = brought // builtins.fromJSON said;
  # grants are paths; JSON has none.
  boxmaker = wanted // { grants = builtins.mapAttrs (_: path: /. + path) (wanted.grants or { }); };

  host = small.recursiveUpdate {
    users.users.alice = { uid = 1000; isNormalUser = true; };
    users.groups = { };
  } (builtins.fromJSON machine);

  # One module and a machine, without nixpkgs.
  plain =
    (small.machine {
      lib = small;
      inherit pkgs;
      modules = [
        module
        host
        { services.boxmaker = boxmaker; }
      ];
    }).made;

  # The real module system, with options of NixOS that take anything.
  real =
    let
      free = lib.mkOption { type = lib.types.anything; default = { }; };
      table = lib.mkOption { type = lib.types.attrsOf (lib.types.attrsOf lib.types.anything); default = { }; };
      evaluated = lib.evalModules {
        modules = [
          module
          {
            options = {
              assertions = lib.mkOption { type = lib.types.listOf lib.types.anything; default = [ ]; };
              environment = { systemPackages = lib.mkOption { type = lib.types.listOf lib.types.package; default = [ ]; }; variables = free; etc = table; };
              security.allowUserNamespaces = lib.mkOption { type = lib.types.bool; default = true; };
              systemd = { services = table; sockets = table; tmpfiles.settings = table; };
              users = { users = table; groups = table; };
              virtualisation = {
                podman.package = lib.mkOption { type = lib.types.package; default = pkgs.podman; };
                oci-containers = { backend = lib.mkOption { type = lib.types.str; }; containers = table; };
              };
            };
          }
          { config = host; }
          { _module.args.pkgs = pkgs; services.boxmaker = boxmaker; }
        ];
      };
    in
    builtins.intersectAttrs { assertions = 1; environment = 1; systemd = 1; users = 1; virtualisation = 1; } evaluated.config;

  config = if lib == null then plain else real;
in
{
  refused = builtins.concatMap (a: if a.assertion then [ ] else [ a.message ]) (config.assertions or [ ]);
  config = builtins.removeAttrs config [ "assertions" ];
  # What was written for this machine, by its path below /etc.
  texts = small.filterAttrs (_: text: text != null) (
    builtins.mapAttrs (_: file: file.text or file.source.text or null) (config.environment.etc or { })
  );
}
