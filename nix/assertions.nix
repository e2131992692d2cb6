# What services.boxmaker refuses, each with what to do instead. A list of { assertion, message } for NixOS, which shows
# every message of those that do not hold. tests/nix/test_assertions.py breaks each of them.
{
  lib,
  config,
  cfg,
  wiring,
  plan,
  wired,
  model,
  chat,
  reached,
  credentials,
}:
let
  inherit (builtins)
    attrNames
    any
    concatMap
    concatStringsSep
    dirOf
    elem
    filter
    head
    isAttrs
    match
    stringLength
    ;
  inherit (lib) hasPrefix;

  # A fault that is there gives a message; the list of all of them is what NixOS wants.
  refuse = fault: message: {
    assertion = !fault;
    message = "services.boxmaker.${message}";
  };
  refuseEach = items: fault: message: map (item: refuse (fault item) (message item)) items;
  listed = concatStringsSep ", ";

  is = pattern: text: match pattern text != null;
  # Absolute, without "." and "..", doubled or final slashes.
  normal = path: is "(/[^/]+)+" path && !is ".*/[.][.]?(/.*)?" path;
  within = place: path: place == "/" || path == place || hasPrefix "${place}/" path;
  meet = one: other: within one other || within other one;

  roleNames = attrNames wiring.roles;
  ours = map (name: wiring.roles.${name}.user) roleNames ++ [ wiring.tools.user ];
  uids = builtins.listToAttrs (
    map (r: {
      name = r.user;
      value = r.uid;
    }) (builtins.attrValues wiring.roles ++ [ wiring.tools ])
  );
  accounts = config.users.users;

  home = plan.at "home";
  etc = plan.at "etc";

  inherit (plan) running;
  networked = filter (name: plan.networkOf name != "none") running;

  upstream = [
    (refuse (cfg.upstream == "")
      "upstream is empty: say where the model server listens, as \"http://host:port\" or \"unix:/directory/name.sock\""
    )
    (refuse (hasPrefix "https:" cfg.upstream)
      "upstream is https: inferproxy forwards bytes unread and ends no TLS; give http, over a network that you trust, or a socket"
    )
    (refuse (hasPrefix "http://" cfg.upstream && !model.isTcp)
      "upstream must be no more than \"http://host:port\": no path, user or query"
    )
    (refuse (cfg.upstream != "" && !is "(http|https|unix):.*" cfg.upstream)
      "upstream must begin with \"http://\" or \"unix:/\""
    )
    (refuse
      (
        hasPrefix "unix:" cfg.upstream
        && !(normal (lib.removePrefix "unix:" cfg.upstream) && is "[^[:cntrl:]\",]*" cfg.upstream)
      )
      "upstream must name its socket by an absolute path without \".\", \"..\", empty parts, quotes, commas or line breaks"
    )
    (refuse (plan.socketDirectory != null && unfit plan.socketDirectory)
      "upstream's socket lies in ${toString plan.socketDirectory}, which inferproxy would see whole: give the socket a directory of its own, outside of ${home}, ${etc}, /tmp and what many share"
    )
    (refuse model.isOdd
      "upstream is at ${model.host}, which is neither a name nor an address written in full, as 192.0.2.7 or [2001:db8::7]"
    )
    (refuse (!model.isNetwork cfg.network)
      "network must be \"pasta\" (with -T,PORT, -m,MTU, -i,INTERFACE, -4 or -6 after a colon, separated by commas), \"slirp4netns\" (with enable_ipv6=BOOL or mtu=MTU) or \"host\": other options of theirs listen, write files or lead in this machine's own services"
    )
    (refuse (model.isLoopback && cfg.network != "host" && !model.leadsIn model.port cfg.network)
      "upstream is on this machine's loopback address, which ${cfg.network} does not reach at port ${model.port}: use a socket (unix:/…), network = \"pasta:-T,${model.port}\", or network = \"host\""
    )
    (refuse (model.isLoopback && !model.isLedIn && !(cfg.network == "host" && model.isHostsOwn))
      "upstream is at ${model.host}, another word for this machine: write 127.0.0.1 or [::1], where its port is led in"
    )
  ];

  # What inferproxy must not see of this machine: word for word what deploy/appliance/roleplan.py refuses
  # (unfit_socket_directory), and what is NixOS' own: the store, and the /tmp that each unit has of its own.
  unfit =
    directory:
    any (own: within directory own || (own != "/run" && within own directory)) imagesOwn
    || any (meet directory) [
      home
      etc
    ]
    || elem directory [
      "/home"
      "/media"
      "/mnt"
      "/opt"
      "/root"
      "/run/dbus"
      "/run/lock"
      "/run/systemd"
      "/run/user"
      "/srv"
      "/var"
      "/var/cache"
      "/var/lib"
      "/var/log"
      "/var/run"
    ]
    # All that somebody has: their files, and what their session has, as the bus or a display.
    || elem (dirOf directory) [
      "/home"
      "/run/user"
    ];

  isUnsaid =
    name:
    (reached name).isTcp && (reached name).addresses == [ ] && !(cfg.allowedAddresses ? ${name});
  addresses =
    refuseEach networked isUnsaid (
      name: "allowedAddresses.${name} is missing: its server is a name (${(reached name).host}), so the addresses behind it, and those of the name servers, have to be said"
    )
    ++ refuseEach (attrNames cfg.allowedAddresses) (name: !elem name roleNames) (
      name: "allowedAddresses.${name}: there is no such role; there are ${listed roleNames}"
    )
    ++ refuseEach (filter (name: elem name roleNames) (attrNames cfg.allowedAddresses)) (
      name: !elem name networked
    ) (name: "allowedAddresses.${name}: this role has no network, so there is nothing to allow")
    ++ refuseEach (concatMap (name: cfg.allowedAddresses.${name}) (attrNames cfg.allowedAddresses)) (
      address: !model.isRange address
    ) (
      address: "allowedAddresses holds ${builtins.toJSON address}: each must be one address, a range of at least /8 (IPv4) or /16 (IPv6), or \"localhost\""
    );

  # NixOS, systemd and Podman each read this path in a language of its own. Its directories get owners and modes, so
  # it is one that nobody else has: by its name, since a module cannot look.
  longest = builtins.foldl' lib.max 0 (map (e: stringLength (plan.at "${e.directory}/${e.socket}")) wiring.edges);
  homeOf = name: accounts.${name}.home or "/";
  state = [
    (refuse (!normal home || !is "[A-Za-z0-9/_.+-]*" home)
      "stateDir must be an absolute path of letters, digits and \"_.+-\", without \".\", \"..\" or empty parts"
    )
    (refuse (!is "(/var/lib|/srv|/persist|/data|/mnt/[^/]+)(/[^/]+)*/boxmaker(-[^/]+)?" home)
      "stateDir is ${home}: it has to outlive a reboot and to be Boxmaker's alone: a directory called boxmaker, or boxmaker-SOMETHING, below /var/lib, /srv, /persist, /data or /mnt/NAME"
    )
    (refuse (longest > 107)
      "stateDir is too long: the longest path of a socket below it has ${toString longest} bytes, and Linux takes 107"
    )
  ]
  ++ refuseEach others (name: homeOf name != "/" && meet (homeOf name) home) (
    name: "stateDir is ${home}, which holds or lies in the home of ${name} (${homeOf name}), who could put another directory in its place"
  );

  # A folder at, above or below one of these would replace a part of brokerd's own image, or of the unit's /tmp. All
  # of OWN in images/layout.py is among them, which a test compares.
  imagesOwn = [
    "/bin"
    "/dev"
    "/etc/group"
    "/etc/hostname"
    "/etc/hosts"
    "/etc/mtab"
    "/etc/nsswitch.conf"
    "/etc/passwd"
    "/etc/resolv.conf"
    "/etc/ssl"
    "/lib"
    "/lib64"
    "/nix"
    "/proc"
    "/run"
    "/sbin"
    "/sys"
    "/tmp"
    "/usr"
    "/var/tmp"
  ];
  granted =
    refuseEach cfg.grantedPaths (path: !normal path || !is "[^[:cntrl:]\"]*" path) (
      path: "grantedPaths: \"${path}\" must be an absolute path without \".\", \"..\", empty parts, quotes or line breaks"
    )
    ++ refuseEach cfg.grantedPaths (path: meet path home || meet path etc) (
      path: "grantedPaths: ${path} holds or lies in ${home} or ${etc}, which no tool may see"
    )
    ++ refuseEach cfg.grantedPaths (path: any (meet path) imagesOwn) (
      path: "grantedPaths: ${path} would cover a part of the images; those are ${listed imagesOwn}"
    );

  used = [
    cfg.slots.main
    cfg.slots.background
  ];
  slots = [
    (refuse (cfg.slots.main == cfg.slots.background && cfg.expect.slots > 1)
      "slots.background is slots.main: give each its own, or the server's cache is lost with every change between them"
    )
    (refuse (any (slot: slot >= cfg.expect.slots) used)
      "slots: the model server has ${toString cfg.expect.slots} (expect.slots), numbered from 0, and main or background is not among them"
    )
    (refuse (!is "([0-9a-f]{64})?" cfg.expect.templateSha256)
      "expect.templateSha256 must be 64 hexadecimal digits in lower case, or empty"
    )
  ]
  ++ refuseEach (attrNames cfg.otherAgents) (name: any (slot: elem slot used) cfg.otherAgents.${name}) (
    name: "otherAgents.${name} uses a slot of this Boxmaker: two agents of one model server need slots that differ"
  )
  ++
    refuseEach (attrNames cfg.otherAgents)
      (name: any (slot: slot >= cfg.expect.slots) cfg.otherAgents.${name})
      (name: "otherAgents.${name} uses a slot that the model server does not have (expect.slots)");

  owners = [
    (refuse (cfg.owners == [ ]) "owners is empty: nobody could talk with Boxmaker or answer its questions")
  ]
  ++ refuseEach cfg.owners (name: !(accounts ? ${name})) (
    name: "owners: ${name} is no user of this machine (users.users.${name})"
  )
  ++ refuseEach cfg.owners (name: elem name ours) (
    name: "owners: ${name} is a user of Boxmaker's own; an owner is a person"
  );

  others = filter (name: !elem name ours) (attrNames accounts);

  # Who may be in a group of Boxmaker's. A pair's group opens the directory of their socket: whoever is in that of the
  # tools' Podman holds the user that tools run as. A role that calls another one is let in by an ACL, and is in none.
  mayBeIn = builtins.listToAttrs (
    map (user: {
      name = user;
      value = [ user ];
    }) ours
    ++ map (e: {
      name = e.group;
      value = if e.client == "owner" then cfg.owners else [ ];
    }) wiring.edges
  );
  groups = config.users.groups;
  inGroup =
    group:
    concatMap (key: groups.${key}.members or [ ]) (
      filter (key: key == group || groups.${key}.name or key == group) (attrNames groups)
    )
    ++ filter (
      name: accounts.${name}.group or "" == group || elem group (accounts.${name}.extraGroups or [ ])
    ) (attrNames accounts);
  strangers = concatMap (
    group: map (who: { inherit group who; }) (filter (who: !elem who mayBeIn.${group}) (inGroup group))
  ) (attrNames mayBeIn);

  changed =
    account: uid: name:
    account.isNormalUser or false || account.uid or null != uid || account.group or name != name;
  users =
    refuseEach strangers (_: true) (
      s: "${s.who} is in the group ${s.group}, which is Boxmaker's own: whoever is in it holds what that role, or that pair, may"
    )
    ++ refuseEach (filter (key: !(mayBeIn ? ${key})) (attrNames groups)) (
      key: elem (groups.${key}.gid or null) (builtins.attrValues uids)
    ) (key: "the group ${key} has the gid ${toString (groups.${key}.gid or null)}, which is one of Boxmaker's")
    ++ refuseEach others (name: elem (accounts.${name}.uid or null) (builtins.attrValues uids)) (
      name: "the user ${name} has the uid ${toString (accounts.${name}.uid or null)}, which is one of Boxmaker's: ${
        listed (map (user: "${user} ${toString uids.${user}}") (attrNames uids))
      }"
    )
    ++ refuseEach ours (name: changed accounts.${name} uids.${name} name) (
      name: "the user ${name} is Boxmaker's own, and something else in this configuration changes it"
    )
    ++
      refuseEach ours
        (
          name:
          accounts.${name}.extraGroups or [ ] != [ ]
          || any (group: elem name (config.users.groups.${group}.members or [ ])) (attrNames config.users.groups)
        )
        (
          name: "the user ${name} has been put into a further group: whoever holds a role would hold what that group may"
        )
    ++
      refuseEach
        (filter (name: !elem name ours) (attrNames config.virtualisation.oci-containers.containers))
        (
          name: elem (config.virtualisation.oci-containers.containers.${name}.podman.user or "root") ours
        )
        (name: "the container ${name} runs as a user of Boxmaker's, who may own nothing else");

  # What the module writes itself, as "listen.owner".
  leaves =
    path: set:
    concatMap (
      name: if isAttrs set.${name} then leaves (path ++ [ name ]) set.${name} else [ (path ++ [ name ]) ]
    ) (attrNames set);
  said =
    path: set: path == [ ] || (isAttrs set && set ? ${head path} && said (builtins.tail path) set.${head path});
  settings =
    refuseEach (attrNames cfg.settings) (name: !elem name running) (
      name: "settings.${name}: there is no such role, or it is not enabled; there are ${listed running}"
    )
    ++ concatMap (
      name:
      refuseEach (leaves [ ] (wired.${name} or { })) (path: said path (cfg.settings.${name} or { })) (
        path: "settings.${name}.${concatStringsSep "." path} cannot be set here: it follows from the wiring or from another option"
      )
    ) roleNames;

  images =
    refuseEach running (name: !(cfg.images ? ${name})) (
      name: "images.${name} is missing: import the module from the flake, which brings it, or name an image"
    )
    ++ refuseEach (attrNames cfg.images) (name: !elem name roleNames) (
      name: "images.${name}: there is no such role; there are ${listed roleNames}"
    )
    ++ refuseEach (attrNames cfg.grants) (name: !is "[a-z0-9][a-z0-9-]{0,63}" name) (
      name: "grants: \"${name}\" is no id of a grant: small letters, digits and hyphens, at most 64"
    );

  secrets = concatMap (
    name:
    refuseEach wiring.roles.${name}.secrets (secret: !normal credentials.${name}.${secret}) (
      secret: "credentials.${name}.${secret} is missing: an absolute path to what systemd-creds encrypt --name=${secret} wrote"
    )
  ) (filter (name: !wiring.roles.${name}.optional) running);

  people = cfg.mattermost.allowedUsers ++ cfg.mattermost.allowedChannels ++ cfg.mattermost.approvers;
  repeats = list: builtins.length list != builtins.length (attrNames (lib.genAttrs list (_: null)));
  mattermost = lib.optionals cfg.mattermost.enable (
    [
      (refuse (!chat.isAddress)
        "mattermost.url must be the server's address, as https://chat.example.org, without a slash at its end"
      )
      (refuse chat.server.isOdd
        "mattermost.url is at ${chat.server.host}, which is neither a name nor an address written in full, as 192.0.2.7 or [2001:db8::7]"
      )
      (refuse (chat.server.isLoopback && !chat.server.isLedIn)
        "mattermost.url is at ${chat.server.host}, another word for this machine: write 127.0.0.1 or [::1], where its port is led in"
      )
      (refuse (cfg.mattermost.allowedUsers == [ ])
        "mattermost.allowedUsers is empty: nobody could speak with Boxmaker there, and gatewayd would not start"
      )
      (refuse
        (any repeats [
          cfg.mattermost.allowedUsers
          cfg.mattermost.allowedChannels
          cfg.mattermost.approvers
        ])
        "mattermost: an id stands twice in one of allowedUsers, allowedChannels and approvers"
      )
      (refuse (!chat.isCredential cfg.mattermost.tokenCredential)
        "mattermost.tokenCredential must be an absolute path outside of the store, of letters, digits and \"_+.-\", to what systemd-creds encrypt --name=mattermost-token wrote"
      )
    ]
    ++ refuseEach people (id: !chat.isId id) (
      id: "mattermost: \"${id}\" is no id of Mattermost, which is 26 characters of a-z and 0-9: names can be given away, ids cannot"
    )
    ++ refuseEach cfg.mattermost.linkHosts (host: !chat.isHost host) (
      host: "mattermost.linkHosts: \"${host}\" is no host of a grant, as example.org or *.example.org, without a scheme or a path"
    )
  );

  machine = [
    (refuse (config.virtualisation.oci-containers.backend != "podman")
      "enable needs virtualisation.oci-containers.backend = \"podman\": the roles are rootless containers of users of their own"
    )
    (refuse (!(config.security.allowUserNamespaces or true))
      "enable needs security.allowUserNamespaces = true: without user namespaces there is no rootless Podman"
    )
  ];
in
upstream
++ addresses
++ state
++ granted
++ slots
++ owners
++ users
++ settings
++ images
++ secrets
++ mattermost
++ machine
