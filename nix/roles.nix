# The wiring of Boxmaker, and the only place where it is written: who runs as whom, what each role sees, which
# socket joins which two. Plain data, builtins only. `make generate` writes its JSON form (nix/roles.json, read
# by bxcore/wiring.py) and deploy/quadlet; nix/module.nix makes the NixOS units of it.
#
# Paths begin with the place that they lie in: "home" or "etc". A role sees the same path inside its container and
# outside. What this file does not give to a role, the role does not have.
let
  # One Unix socket each, in a directory of its own. "owner" is a person with bxctl, "tools" the tool user.
  edges = builtins.attrValues (
    builtins.mapAttrs
      (
        name: e:
        e
        // {
          inherit name;
          directory = "home/run/${name}";
          group = "bx-${name}";
        }
      )
      {
        infer = {
          listener = "inferproxy";
          client = "loopd";
          socket = "infer.sock";
        };
        loop-owner = {
          listener = "loopd";
          client = "owner";
          socket = "loop.sock";
        };
        broker = {
          listener = "brokerd";
          client = "loopd";
          socket = "broker.sock";
        };
        admin = {
          listener = "brokerd";
          client = "owner";
          socket = "admin.sock";
        };
        tool-runner = {
          listener = "tools";
          client = "brokerd";
          socket = "podman.sock";
        };
        loop-gateway = {
          listener = "loopd";
          client = "gatewayd";
          socket = "loop.sock";
        };
        gateway = {
          listener = "gatewayd";
          client = "brokerd";
          socket = "gateway.sock";
        };
        gateway-owner = {
          listener = "gatewayd";
          client = "owner";
          socket = "gateway.sock";
        };
      }
  );

  roles = builtins.mapAttrs role {
    inferproxy = {
      uid = 641;
      network = "upstream";
      memory_mb = 64;
      processes = 192;
    };

    loopd = {
      uid = 642;
      keeps = [ "home/sessions" ];
      memory_mb = 512;
      processes = 512;
    };

    # The folders that grants speak of are added to its mounts, read-only (`granted`): it looks at every path itself
    # before it lets a tool see one.
    brokerd = {
      uid = 643;
      reads = [
        "etc/grants"
        "etc/tool-image"
        "etc/tool-seccomp.json"
      ];
      keeps = [
        "home/audit"
        "home/broker"
        "home/calls"
      ];
      memory_mb = 256;
      processes = 128;
    };

    gatewayd = {
      uid = 644;
      optional = true;
      network = "outbound";
      # What the owner's machine adds to it: certificates of an authority of their own.
      reads = [ "etc/gatewayd" ];
      keeps = [ "home/gateway" ];
      secrets = [ "mattermost-token" ];
      memory_mb = 128;
      processes = 256;
    };
  };

  # Whoever holds a user's Podman socket holds that user, so tools run as one that owns nothing else.
  tools = {
    user = "boxmaker-tools";
    uid = 650;
    image = "localhost/boxmaker/tools";
    image_file = "etc/tool-image";
    seccomp = "etc/tool-seccomp.json";
    storage = "home/containers/tools";
    # brokerd's own; the tool user may pass through.
    calls = "home/calls";
  };

  role =
    name:
    {
      uid,
      # An owner may leave it out. Its user and its directories are there all the same, so that whoever is joined to
      # it by a socket has one place for it; its container, image, file and secrets are there where it is enabled.
      optional ? false,
      # "none": loopback alone. "upstream": what reaches the model server; nothing, where that is a socket.
      # "outbound": a server that the role's own settings name, through Podman's user-mode network.
      network ? "none",
      # Read-only, and its own to write.
      reads ? [ ],
      keeps ? [ ],
      capabilities ? [ ],
      secrets ? [ ],
      # Memory and processes of the whole container count where the host delegates cgroups; the others always.
      memory_mb,
      processes,
      files ? 1024,
    }:
    let
      config = "etc/${name}.toml";
      directoriesOf = party: map (e: e.directory) (builtins.filter (e: e.${party} == name) edges);
      mount = writable: path: { inherit path writable; };
    in
    {
      inherit
        uid
        optional
        network
        keeps
        capabilities
        secrets
        config
        ;
      user = "bx-${name}";
      image = "localhost/boxmaker/${name}";
      command = [
        "/usr/bin/python3"
        "-I"
        "-S"
        "-m"
        name
      ];
      # Podman's own files of this user: images and the container.
      storage = "home/containers/${name}";
      limits = { inherit memory_mb processes files; };
      mounts =
        map (mount false) ([ config ] ++ reads ++ directoriesOf "client")
        ++ map (mount true) (keeps ++ directoriesOf "listener");
    };

  userOf =
    party:
    if party == "tools" then
      tools.user
    else
      roles.${party}.user;

  # A client that is a role gets in by an ACL, and its sockets by the directory's default ACL: runc drops a
  # container's groups, crun keeps them only where asked. A person gets in by the group. `acl`: who else may enter;
  # `acl_socket`: who else may write what is made in it.
  socketDirectory =
    e:
    let
      let_in = if e.client == "owner" then [ ] else [ (userOf e.client) ];
    in
    {
      path = e.directory;
      user = userOf e.listener;
      inherit (e) group;
      mode = "2750";
      enter = let_in;
      sockets = true;
    };

  own = user: path: {
    inherit path user;
    group = user;
    mode = "0700";
    enter = [ ];
    sockets = false;
  };

  everybodys = path: {
    inherit path;
    user = "root";
    group = "root";
    mode = "0755";
    enter = [ ];
    sockets = false;
  };
in
{
  version = 1;

  places = {
    home = "/var/lib/boxmaker";
    etc = "/etc/boxmaker";
  };

  inherit edges roles tools;

  # Every directory that has to be there, parents first. "owner" as a user is the person of that role, or root.
  directories =
    map everybodys [
      "etc"
      "home"
      "home/run"
      "home/containers"
    ]
    ++ [
      {
        path = "etc/grants";
        user = "owner";
        group = roles.brokerd.user;
        mode = "2750";
        enter = [ ];
        sockets = false;
      }
      {
        path = "etc/gatewayd";
        user = "root";
        group = roles.gatewayd.user;
        mode = "0750";
        enter = [ ];
        sockets = false;
      }
    ]
    # Entered by ids that own nothing, while Podman puts a container together.
    ++ map (r: own r.user r.storage // { mode = "0711"; }) (builtins.attrValues roles ++ [ tools ])
    ++ builtins.concatMap (
      r:
      map (
        path:
        own r.user path
        // (
          if path == tools.calls then
            {
              mode = "0710";
              enter = [ tools.user ];
            }
          else
            { }
        )
      ) r.keeps
    ) (builtins.attrValues roles)
    ++ map socketDirectory edges;

  # A role's file is root's, and that role may read it.
  files =
    map (r: {
      path = r.config;
      group = r.user;
      mode = "0640";
    }) (builtins.attrValues roles)
    ++ [
      {
        path = tools.image_file;
        group = roles.brokerd.user;
        mode = "0644";
      }
      {
        # Podman itself reads it, as each of the users.
        path = tools.seccomp;
        group = "root";
        mode = "0644";
      }
    ];

  # How every role's container is closed: options of `podman run`. Mounts, network, limits and the seccomp filter,
  # which is the tools' one, come to these.
  closed = [
    "--cap-drop=all"
    "--cgroupns=private"
    "--http-proxy=false"
    "--image-volume=ignore"
    "--ipc=none"
    "--no-hosts"
    "--pull=never"
    "--read-only"
    "--read-only-tmpfs=false"
    "--security-opt=mask=${
      builtins.concatStringsSep ":" [
        "/proc/acpi"
        "/proc/bus"
        "/proc/cmdline"
        "/proc/config.gz"
        "/proc/crypto"
        "/proc/diskstats"
        "/proc/fs"
        "/proc/interrupts"
        "/proc/irq"
        "/proc/kallsyms"
        "/proc/key-users"
        "/proc/partitions"
        "/proc/version"
        "/proc/vmstat"
        "/sys/block"
        "/sys/bus"
        "/sys/class"
        "/sys/devices"
        "/sys/fs"
        "/sys/kernel"
      ]
    }"
    "--security-opt=no-new-privileges"
    "--systemd=false"
    "--ulimit=core=0:0"
    "--ulimit=memlock=65536:65536"
    "--ulimit=msgqueue=0:0"
    "--umask=0077"
    "--user=0:0"
  ];
}
