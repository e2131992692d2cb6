# services.boxmaker: the appliance on NixOS, made from nix/roles.nix. Each role is a rootless container of a user of
# its own, below a system unit; tools run as one more user. docs/appliance.md tells a person how to use it.
#
# This file only puts together: options.nix (what can be said), assertions.nix (what is refused), roleplan.nix (a
# container's options), settings.nix (the roles' files), places.nix (directories and files), units.nix (systemd).
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (builtins)
    attrNames
    attrValues
    dirOf
    filter
    listToAttrs
    ;
  cfg = config.services.boxmaker;

  declared = import ./roles.nix;
  # In its real places: "etc" is where NixOS writes, "home" is the owner's choice.
  wiring = declared // {
    places = declared.places // {
      home = cfg.stateDir;
    };
  };
  chat = import ./mattermost.nix { said = cfg.mattermost; };

  # The roles that have a container, a file and secrets: all but the optional ones that are not wanted. An optional
  # one's user and directories are there all the same.
  wanted = {
    gatewayd = cfg.mattermost.enable;
  };
  running = filter (name: !wiring.roles.${name}.optional || wanted.${name}) (attrNames wiring.roles);

  credentials = {
    gatewayd.mattermost-token = cfg.mattermost.tokenCredential;
  }
  // (cfg.credentials or { });

  plan =
    import ./roleplan.nix {
      inherit wiring;
      inherit (cfg) upstream network;
      granted = cfg.grantedPaths;
      outbound = if cfg.mattermost.enable then chat.network else "none";
    }
    // {
      inherit running;
      credentials = name: lib.mapAttrsToList (secret: path: "${secret}:${path}") credentials.${name};
    };

  wired = import ./settings.nix {
    inherit
      cfg
      wiring
      plan
      chat
      ;
  };
  toTOML = import ./toml.nix;
  configFile =
    name:
    pkgs.writeText "${name}.toml" (
      "# Written by NixOS: services.boxmaker. deploy/example/${name}.toml explains each key.\n"
      + toTOML (lib.recursiveUpdate (wired.${name} or { }) (cfg.settings.${name} or { }))
    );

  # What a role reads below "etc", beside the directory of grants, which changes while it runs.
  sources =
    listToAttrs (
      map (name: {
        name = wiring.roles.${name}.config;
        value = configFile name;
      }) running
    )
    // {
      ${wiring.tools.image_file} = cfg.toolImageId;
      ${wiring.tools.seccomp} = ../images/tool-seccomp.json;
    };

  # What lies in a directory that a role reads. Another file there is another start of the role.
  authority = lib.optionalAttrs (cfg.mattermost.enable && cfg.mattermost.caFile != null) {
    ${chat.authority} = cfg.mattermost.caFile;
  };

  places = import ./places.nix {
    inherit lib wiring plan;
    owner = if cfg.owners == [ ] then "root" else builtins.head cfg.owners;
  };

  model = import ./upstream.nix { inherit (cfg) upstream; };

  # The server that a role with a network dials.
  reached = name: if wiring.roles.${name}.network == "outbound" then chat.server else model;

  units = import ./units.nix {
    inherit
      lib
      pkgs
      wiring
      plan
      ;
    inherit (cfg) toolImage toolImageId;
    podman = config.virtualisation.podman.package;
    allowed = name: cfg.allowedAddresses.${name} or (reached name).addresses;
    restartTriggers =
      name:
      let
        seen = map (m: m.path) wiring.roles.${name}.mounts;
        all = sources // authority;
      in
      map (path: "${all.${path}}") (
        filter (path: builtins.elem path seen || builtins.elem (dirOf path) seen) (attrNames all)
      );
  };

  parties = attrValues wiring.roles ++ [ wiring.tools ];

  container =
    name:
    let
      role = wiring.roles.${name};
      # One that is missing is refused with a word (assertions.nix), if evaluation comes so far.
      image =
        cfg.images.${name} or {
          imageName = role.image;
          imageTag = "missing";
        };
    in
    {
      name = role.user;
      value = {
        serviceName = role.user;
        image = "${image.imageName}:${image.imageTag}";
        imageFile = if cfg.images ? ${name} then image else null;
        pull = "never";
        podman = {
          inherit (role) user;
          sdnotify = "container";
        };
        # Conmon's, so that `journalctl --unit` finds what the role says.
        log-driver = "journald";
        # Split: the container lies below the unit's own cgroup, with the limits and the address filter of both.
        extraOptions = [ "--cgroups=split" ] ++ plan.options name ++ plan.secrets name;
        cmd = plan.command name;
      };
    };
in
{
  options.services.boxmaker = import ./options.nix {
    inherit lib;
    wiring = declared;
  };

  config = lib.mkIf cfg.enable {
    assertions = import ./assertions.nix {
      inherit
        lib
        config
        cfg
        wiring
        plan
        wired
        model
        chat
        reached
        credentials
        ;
    };

    environment = {
      systemPackages = [ cfg.package ];
      variables = lib.optionalAttrs (cfg.stateDir != declared.places.home) {
        BOXMAKER_HOME = cfg.stateDir;
      };
      etc =
        places.etc sources
        // lib.mapAttrs' (
          id: file:
          lib.nameValuePair "boxmaker/grants/${id}.toml" {
            source = file;
            mode = "0640";
            group = wiring.roles.brokerd.user;
          }
        ) cfg.grants
        // lib.mapAttrs' (
          path: file:
          lib.nameValuePair (lib.removePrefix "/etc/" (plan.at path)) {
            source = file;
            mode = "0440";
            group = wiring.roles.gatewayd.user;
          }
        ) authority
        // {
          # For `bxctl doctor`: the wiring as this machine has it.
          "boxmaker/roles.json" = {
            text = builtins.toJSON wiring;
            mode = "0644";
          };
        };
    };

    users.users = listToAttrs (
      map (party: {
        name = party.user;
        value = {
          inherit (party) uid;
          isSystemUser = true;
          group = party.user;
          description = "Boxmaker";
          home = plan.at party.storage;
          # Of its own accord only normal users get these, and only with them a container has more than one id.
          autoSubUidGidRange = true;
          # oci-containers reads it as a boolean; its default is null.
          linger = false;
        };
      }) parties
    );

    users.groups =
      listToAttrs (
        map (party: {
          name = party.user;
          value.gid = party.uid;
        }) parties
      )
      // listToAttrs (
        map (e: {
          name = e.group;
          value = lib.optionalAttrs (e.client == "owner") { members = cfg.owners; };
        }) wiring.edges
      );

    systemd = {
      tmpfiles.settings."10-boxmaker" = places.tmpfiles;
      inherit (units) services sockets;
    };

    virtualisation.oci-containers = {
      backend = lib.mkDefault "podman";
      containers = listToAttrs (map container running);
    };
  };
}
