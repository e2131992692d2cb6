# The options of services.boxmaker. What reads each of them: nix/settings.nix, nix/roleplan.nix, nix/units.nix, nix/module.nix.
# An option that nothing reads does not stand here; memory gets its own with its role.
{ lib, wiring }:
let
  inherit (lib) literalExpression mkOption types;

  # A role that may be left out has the option for its secret among those that enable it.
  withSecrets = builtins.filter (
    name: wiring.roles.${name}.secrets != [ ] && !wiring.roles.${name}.optional
  ) (builtins.attrNames wiring.roles);

  ids =
    who:
    mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "8wk3nq1bgpbdtfxe5hkzrrynya" ];
      description = who;
    };
in
{
  enable = lib.mkEnableOption "Boxmaker, a private agent appliance";

  package = mkOption {
    type = types.package;
    defaultText = literalExpression "boxmaker.packages.\${system}.bxctl";
    description = "The package that `bxctl` comes from. It runs on the host, as the person who calls it.";
  };

  images = mkOption {
    type = types.attrsOf types.package;
    default = { };
    defaultText = literalExpression "boxmaker.packages.\${system}.image-<role>";
    example = literalExpression "{ loopd = pkgs.callPackage ./my-loopd.nix { }; }";
    description = ''
      One image for each role, as `dockerTools.buildLayeredImage` makes it. The flake's own are there unless one is
      named here. An image has to bring `/usr/bin/python3` and the role's code where `-I -S` finds it.
    '';
  };

  toolImage = mkOption {
    type = types.package;
    defaultText = literalExpression "boxmaker.packages.\${system}.image-tools";
    description = "The image that every tool call runs in, as an archive for `podman load`.";
  };

  toolImageId = mkOption {
    type = types.package;
    defaultText = literalExpression "boxmaker.packages.\${system}.tool-image-id";
    description = ''
      A file that holds the ID of {option}`services.boxmaker.toolImage`, 64 hexadecimal digits. brokerd runs this ID and
      nothing else; with another image in the store no tool runs. Change both options together.
    '';
  };

  owners = mkOption {
    type = types.listOf types.str;
    default = [ ];
    example = [ "alice" ];
    description = ''
      Whose `bxctl` may connect: users of this machine, who become members of the groups of the owner's sockets. They
      may talk with the model, answer questions and read the audit. The first of them owns the directory of grants.
    '';
  };

  upstream = mkOption {
    type = types.str;
    default = "";
    example = "http://192.0.2.7:8080";
    description = ''
      The model server: `http://host:port`, or `unix:/directory/name.sock` where it listens on a socket of this
      machine. With a socket inferproxy has no network at all; its user, `bx-inferproxy`, has to be let into the
      socket's directory, which it sees whole: one of its own, that holds nothing else. A server on the loopback address
      is written as `127.0.0.1` or `[::1]`: roles have no /etc/hosts. Required.
    '';
  };

  network = mkOption {
    type = types.str;
    default = "pasta";
    example = "slirp4netns";
    description = ''
      Podman's name of the network that inferproxy gets to reach an upstream over TCP: `pasta`, `slirp4netns` or
      `host`. After a colon, separated by commas, `pasta` may have `-T,PORT` (that port of this machine's loopback
      address), `-m,MTU`, `-i,INTERFACE`, `-4`, `-6`, and `slirp4netns` may have `mtu=MTU`, `enable_ipv6=true`. Other
      options of theirs listen for others, write files, or lead in whatever serves on the loopback address. An upstream
      there needs `pasta:-T,PORT` with its port, or `host`; with `host`,
      {option}`services.boxmaker.allowedAddresses` is all that holds it.
    '';
  };

  allowedAddresses = mkOption {
    type = types.attrsOf (types.listOf types.str);
    default = { };
    example = {
      inferproxy = [
        "192.0.2.0/24"
        "192.0.2.53"
      ];
    };
    description = ''
      For each role that has a network, the addresses that its unit may speak with: one each, or a range of at least
      /8 (IPv4) or /16 (IPv6), or `localhost`; everything else is denied by systemd. Left out, it is the address in
      {option}`services.boxmaker.upstream` for inferproxy, and that in {option}`services.boxmaker.mattermost.url` for
      gatewayd. A server that is a name needs them said, those of the name servers too.
    '';
  };

  stateDir = mkOption {
    type = types.str;
    default = "/var/lib/boxmaker";
    description = ''
      Where everything lies that Boxmaker writes: sessions, audit log, what brokerd keeps, sockets, and the image
      stores of the roles' users. Its sub-directories come from nix/roles.nix. A directory of its own, called `boxmaker`
      or `boxmaker-SOMETHING`, below /var/lib, /srv, /persist, /data or /mnt/NAME; at most 76 bytes, since the paths of
      sockets end at 107. Another place than the default is told to `bxctl` by the variable BOXMAKER_HOME.
    '';
  };

  grantedPaths = mkOption {
    type = types.listOf types.str;
    default = [ ];
    example = [ "/srv/notes" ];
    description = ''
      The folders that grants may speak of, each by its real path, without a link on the way: brokerd is shown the name
      that stands here alone, so a deny for another one would not hold (`bxctl doctor` finds it). brokerd sees them
      read-only at the same path, and checks there what a tool asks for; a grant of anything else is refused. `bx-brokerd` and `boxmaker-tools` have to be let in by an ACL:
      `bxctl doctor` says the command.
    '';
  };

  grants = mkOption {
    type = types.attrsOf types.path;
    default = { };
    example = literalExpression "{ read-notes = ./grants/read-notes.toml; }";
    description = ''
      Grant files that this configuration brings, by their id. They are root's; others may be written beside them in
      /etc/boxmaker/grants by the first owner.
    '';
  };

  slots = {
    main = mkOption {
      type = types.ints.unsigned;
      default = 0;
      description = "The model server's slot for conversations.";
    };
    background = mkOption {
      type = types.ints.unsigned;
      default = 1;
      description = ''
        The slot for scheduled work. Another one than {option}`services.boxmaker.slots.main`, or each would push the
        other's prompt out of the cache; only a server with one slot has them share it.
      '';
    };
  };

  otherAgents = mkOption {
    type = types.attrsOf (types.listOf types.ints.unsigned);
    default = { };
    example = {
      scribe = [ 2 ];
    };
    description = ''
      Other agents that use the same model server, with their slots of it. One configuration describes one Boxmaker,
      and a machine has one; what else talks to the server cannot be seen from here, so it is said here, and an overlap
      is refused: two agents on one slot read each other's prompts out of the cache in turn.
    '';
  };

  expect = {
    contextTokens = mkOption {
      type = types.ints.positive;
      default = 131072;
      description = "Context of one slot: llama-server's `--ctx-size` divided by `--parallel`. Compared, never set.";
    };
    slots = mkOption {
      type = types.ints.positive;
      default = 2;
      description = "How many slots the model server has: its `--parallel`. Compared, never set.";
    };
    templateSha256 = mkOption {
      type = types.str;
      default = "";
      description = "SHA-256 of the chat template, as `bxctl doctor` shows it; empty: any that passes the self-test.";
    };
  };

  timeZone = mkOption {
    type = types.str;
    default = "UTC";
    example = "Europe/Berlin";
    description = "The zone that the model's clock tells beside UTC, as an IANA name.";
  };

  egressNetwork = mkOption {
    type = types.enum [
      "pasta"
      "slirp4netns"
      "host"
    ];
    default = "pasta";
    description = ''
      How the egress proxy of a call reaches the internet (docs/egress.md). A tool's own container never has a network.
    '';
  };

  mattermost = {
    enable = lib.mkEnableOption "conversations and approvals in Mattermost, which is the role gatewayd";

    url = mkOption {
      type = types.str;
      default = "";
      example = "https://chat.example.org";
      description = ''
        The server's address as its users write it, without a slash at its end. `http://` sends the bot's token in the
        clear: for a server on this machine (`http://127.0.0.1:8065`), which its one port is led in for. A server that
        is named also needs {option}`services.boxmaker.allowedAddresses`.gatewayd. Required.
      '';
    };

    caFile = mkOption {
      type = types.nullOr types.path;
      default = null;
      example = literalExpression "./authority.pem";
      description = ''
        Certificates in PEM that gatewayd believes beside the usual ones: those of an authority of your own. No secret.
      '';
    };

    tokenCredential = mkOption {
      type = types.str;
      default = "";
      example = "/etc/boxmaker-credentials/mattermost-token.cred";
      description = ''
        Where the bot's access token lies, as `systemd-creds encrypt --name=mattermost-token` wrote it. A path of the
        machine as a string: a path of Nix would put the file into the store. Required.
      '';
    };

    allowedUsers = ids ''
      Who may speak with Boxmaker, by their ids of Mattermost (docs/mattermost.md has how to find them): in direct messages
      always, in the channels of {option}`services.boxmaker.mattermost.allowedChannels` where they name the bot. Required.
    '';
    allowedChannels = ids ''
      Channels and group messages, by their ids, in which the allowed users may speak with Boxmaker. Everybody who is
      in one reads the answers.
    '';
    approvers = ids ''
      Who may answer the questions of brokerd there, by their ids; empty: the allowed users.
    '';

    linkHosts = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [
        "example.org"
        "*.example.org"
      ];
      description = ''
        Hosts that an answer may link to, as a grant names them. Any other address is shown as text that nobody can
        click: who opens a link tells its server what stands in it.
      '';
    };
  };

  settings = mkOption {
    type = types.attrsOf (types.attrsOf types.anything);
    default = { };
    example = literalExpression ''
      {
        loopd.sampling.temperature = 0.7;
        brokerd.approvals.ttl_ms = 600000;
      }
    '';
    description = ''
      More of a role's configuration file, by role: the keys of deploy/example. What the module writes itself, as the
      paths of sockets, cannot be said here. The whole file is in /etc/boxmaker, and `bxctl config check` reads it.
    '';
  };
}
# Only where some role has a secret that is always there: today none has.
// lib.optionalAttrs (withSecrets != [ ]) {
  credentials = lib.genAttrs withSecrets (
    name:
    lib.genAttrs wiring.roles.${name}.secrets (
      secret:
      mkOption {
        type = types.str;
        default = "";
        example = "/etc/boxmaker/credentials/${secret}.cred";
        description = ''
          Where the encrypted credential `${secret}` of ${name} lies, as `systemd-creds encrypt --name=${secret}`
          wrote it. A path of the machine as a string: a path of Nix would put the file into the store. Required.
        '';
      }
    )
  );
}
