# A role's container as options of `podman run`, made from the wiring: what deploy/appliance/roleplan.py says to the
# launcher, word for word and in the same order (tests/nix/test_containers.py). Builtins only.
#
# `wiring` is nix/roles.nix in its real places; `upstream` as in inferproxy.toml; `network` is Podman's name of the
# network that reaches an upstream over TCP; `granted` are the folders that grants may speak of; `outbound` is Podman's
# name of the network of a role that dials out.
{
  wiring,
  upstream,
  network,
  granted,
  outbound,
}:
let
  inherit (builtins)
    dirOf
    filter
    head
    match
    ;

  socket = match "unix:(/.*)" upstream;

  bind =
    writable: path:
    let
      # A list of values separated by commas, so one with a comma in it stands in quotes.
      entry = name: if match ".*,.*" path == null then "${name}=${path}" else ''"${name}=${path}"'';
    in
    "--mount=type=bind,${entry "src"},${entry "dst"},ro=${
      if writable then "false" else "true"
    },noexec,nosuid,nodev";

  # Without what is there twice, or lies in another one: that would be a mount on, or below, a granted folder.
  outermost = filter (
    inner: !(builtins.any (outer: builtins.substring 0 (builtins.stringLength outer + 1) inner == "${outer}/") granted)
  ) once;
  once = builtins.foldl' (seen: path: if builtins.elem path seen then seen else seen ++ [ path ]) [ ] granted;

  toolRunner = head (filter (e: e.name == "tool-runner") wiring.edges);
in
rec {
  # "home/…" and "etc/…" as paths of this machine.
  at =
    path:
    let
      found = match "([^/]*)(/(.*))?" path;
      rest = builtins.elemAt found 1;
    in
    wiring.places.${head found} + (if rest == null then "" else rest);

  # The directory of a model server that listens on a socket.
  socketDirectory = if socket == null then null else dirOf (head socket);

  networkOf =
    name:
    {
      none = "none";
      upstream = if socket == null then network else "none";
      inherit outbound;
    }
    .${wiring.roles.${name}.network};

  mounts =
    name:
    let
      role = wiring.roles.${name};
    in
    map (m: bind m.writable (at m.path)) role.mounts
    ++ (if role.network == "upstream" && socket != null then [ (bind false socketDirectory) ] else [ ])
    ++ (if toolRunner.client == name then map (bind false) outermost else [ ]);

  options =
    name:
    let
      role = wiring.roles.${name};
      inherit (role) limits;
      both = number: "${toString number}:${toString number}";
    in
    wiring.closed
    ++ [
      "--security-opt=seccomp=${at wiring.tools.seccomp}"
      "--hostname=${name}"
      "--network=${networkOf name}"
      "--memory=${toString limits.memory_mb}m"
      "--pids-limit=${toString limits.processes}"
      "--ulimit=nofile=${both limits.files}"
      "--ulimit=nproc=${both limits.processes}"
    ]
    ++ map (capability: "--cap-add=${capability}") role.capabilities
    ++ mounts name;

  # Secrets lie where systemd puts a unit's credentials; the role finds them by the variable that systemd sets too.
  secrets =
    name:
    let
      place = "/run/credentials/${wiring.roles.${name}.user}.service";
    in
    if wiring.roles.${name}.secrets == [ ] then
      [ ]
    else
      [
        "--env=CREDENTIALS_DIRECTORY=${place}"
        (bind false place)
      ];

  command =
    name: wiring.roles.${name}.command ++ [
      "--config"
      (at wiring.roles.${name}.config)
    ];
}
