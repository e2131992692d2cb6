# The systemd side of each role and of the tool user's Podman. What virtualisation.oci-containers writes for a role is
# the unit itself; here stands what comes to it. docs/appliance.md says which lines only a real machine can show.
#
# Nothing here may imply NoNewPrivileges: newuidmap, which gives a rootless container its ids, is setuid. That rules out
# system call filters, ProtectKernelTunables and their like for these units; the containers have their own.
{
  lib,
  wiring,
  plan,
  podman,
  allowed,
  restartTriggers,
  toolImage,
  toolImageId,
  pkgs,
}:
let
  inherit (builtins)
    filter
    head
    ;

  toolUnit = wiring.tools.user;
  unitOf =
    party: if party == "tools" then toolUnit else wiring.roles.${party}.user;
  # Whom a role calls, but for what may be left out: that is called when there is something to say, and it calls others.
  served = name: filter (e: e.client == name && !isOptional e.listener) wiring.edges;
  isOptional = party: party != "tools" && wiring.roles.${party}.optional;
  toolEdge = head (filter (e: e.listener == "tools") wiring.edges);
  toolSocket = plan.at "${toolEdge.directory}/${toolEdge.socket}";

  # Without a user session there is no systemd to ask for cgroups. For every podman of a unit, `stop` too.
  withoutSession = pkgs.writeText "boxmaker-containers.conf" ''
    [engine]
    cgroup_manager = "cgroupfs"
  '';

  rootless = user: {
    # newuidmap and newgidmap are among NixOS' wrappers.
    path = [ "/run/wrappers" ];
    environment = {
      CONTAINERS_CONF_OVERRIDE = "${withoutSession}";
      # Podman's run directory is the unit's own, and goes when the unit stops.
      XDG_RUNTIME_DIR = "/run/${user}";
    };
  };

  hardening = {
    # Podman puts the container into a cgroup below the unit's, where its limits hold.
    Delegate = true;
    KeyringMode = "private";
    LimitCORE = 0;
    OOMScoreAdjust = 200;
    PrivateTmp = true;
    UMask = "0077";
    # What newuidmap does not need either.
    CapabilityBoundingSet = "~CAP_AUDIT_CONTROL CAP_BPF CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_NET_RAW CAP_PERFMON CAP_SYSLOG CAP_SYS_BOOT CAP_SYS_MODULE CAP_SYS_RAWIO CAP_SYS_TIME CAP_WAKE_ALARM";
  };

  role =
    name:
    let
      inherit (wiring.roles.${name}) user secrets;
      networked = plan.networkOf name != "none";
      before = map (e: "${unitOf e.listener}.service") (served name);
    in
    {
      name = user;
      value = rootless user // {
        # Orders the start; who is away later is waited for by the roles themselves, so nobody is stopped with another.
        after = before ++ lib.optional networked "network.target";
        wants = before;
        # However often: a role that waits for something ends as often as it takes.
        startLimitIntervalSec = 0;
        restartTriggers = restartTriggers name;
        serviceConfig =
          hardening
          // {
            # A role says READY=1 itself when it serves. 74, 78: its state or configuration is wrong, and the owner acts.
            RestartPreventExitStatus = "74 78";
            RestartSec = 2;
            RuntimeDirectoryMode = "0700";
            # The container's cgroup lies below this one, so it is held too.
            IPAddressDeny = "any";
          }
          // lib.optionalAttrs networked { IPAddressAllow = allowed name; }
          // lib.optionalAttrs (secrets != [ ]) { LoadCredentialEncrypted = plan.credentials name; };
      };
    };
in
{
  services = builtins.listToAttrs (map role plan.running) // {
    ${toolUnit} = rootless toolUnit // {
      description = "Boxmaker: Podman of the user that tools run as";
      path = [
        podman
        "/run/wrappers"
      ];
      environment = (rootless toolUnit).environment // {
        HOME = plan.at wiring.tools.storage;
      };
      requires = [ "${toolUnit}.socket" ];
      after = [ "${toolUnit}.socket" ];
      wantedBy = [ "multi-user.target" ];
      startLimitIntervalSec = 0;
      serviceConfig = hardening // {
        Type = "exec";
        User = toolUnit;
        Group = toolUnit;
        RuntimeDirectory = toolUnit;
        RuntimeDirectoryMode = "0700";
        WorkingDirectory = plan.at wiring.tools.storage;
        ExecStartPre = "${pkgs.writeShellScript "boxmaker-tool-image" ''
          set -eu
          wanted=sha256:$(cat ${toolImageId})
          podman rm --all --force --time=0
          podman load --quiet --input ${toolImage}
          if ! podman image exists "$wanted"; then
              echo "the tool image has another ID than $wanted: toolImage and toolImageId do not belong together" >&2
              exit 1
          fi
          for image in $(podman images --quiet --no-trunc); do
              test "$image" = "$wanted" || podman rmi --force "$image"
          done
        ''}";
        # The socket is handed in by systemd. Without --time=0 it would end when nothing was asked for a while.
        ExecStart = "${podman}/bin/podman system service --time=0";
        # With the service everything ends that it started; brokerd starts no call while it is away.
        KillMode = "control-group";
        # One tool that takes too much memory is one tool's end.
        OOMPolicy = "continue";
        Restart = "on-failure";
        RestartSec = 2;
      };
    };
  };

  sockets.${toolUnit} = {
    description = "Boxmaker: the socket of the tool user's Podman, for brokerd alone";
    wantedBy = [ "sockets.target" ];
    listenStreams = [ toolSocket ];
    socketConfig = {
      SocketUser = toolUnit;
      SocketGroup = toolEdge.group;
      SocketMode = "0660";
      RemoveOnStop = true;
    };
  };
}
