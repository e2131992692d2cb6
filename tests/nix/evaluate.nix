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
    virtualisation = {
      podman.package = package "podman" { };
      oci-containers = { backend = "podman"; containers = { }; };
    };
    security.allowUserNamespaces = true;
  } (builtins.fromJSON machine);

  # One module and a machine, without nixpkgs.
  plain =
    let
      made = module { inherit config pkgs; lib = small; };
      resolved = small.resolve made.config;
      config = {
        services.boxmaker = small.filled made.options.services.boxmaker boxmaker;
        users = small.recursiveUpdate (resolved.users or { }) host.users;
        virtualisation = small.recursiveUpdate (resolved.virtualisation or { }) host.virtualisation;
        inherit (host) security;
      };
    in
    resolved;

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
              security.allowUserNamespaces = free;
              systemd = { services = table; sockets = table; tmpfiles.settings = table; };
              users = { users = table; groups = table; };
              virtualisation = {
                podman.package = free;
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
