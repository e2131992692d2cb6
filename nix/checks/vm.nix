# Two machines: the appliance, and one with a fake model server. One turn with a tool call, an approval through bxctl,
# what each role finds in its container, memory limits that hold, a reboot. Needs a machine with nixpkgs and KVM:
#
#     nix build .#checks.x86_64-linux.appliance
#
# Not run where it was written: docs/appliance.md, "Not shown yet".
{
  self,
  pkgs,
  environment,
}:
let
  port = 8080;
  tests = builtins.path {
    path = ../..;
    name = "boxmaker-fake-model";
    filter =
      path: _:
      builtins.any (part: pkgs.lib.hasPrefix "${toString ../..}/${part}" path) [
        "nix"
        "python"
        "tests"
      ];
  };
in
pkgs.testers.runNixOSTest {
  name = "boxmaker-appliance";

  nodes.model = {
    networking.firewall.allowedTCPPorts = [ port ];
    systemd.services.model = {
      wantedBy = [ "multi-user.target" ];
      environment.PYTHONPATH = "${tests}:${tests}/python";
      serviceConfig.ExecStart = "${environment}/bin/python3 -m nix.checks.model ${toString port}";
    };
  };

  nodes.appliance =
    { nodes, ... }:
    {
      imports = [ self.nixosModules.default ];
      virtualisation = {
        memorySize = 3072;
        diskSize = 8192;
      };
      environment.systemPackages = [ pkgs.acl ];
      users.users.alice.isNormalUser = true;
      users.users.mallory.isNormalUser = true;
      systemd.tmpfiles.settings."20-notes" = {
        "/srv/notes".d = {
          mode = "0700";
          user = "alice";
          group = "users";
        };
        "/srv/notes"."a+".argument =
          "u:bx-brokerd:r-x,u:boxmaker-tools:rwx,d:u:bx-brokerd:r-x,d:u:boxmaker-tools:rwx";
      };
      services.boxmaker = {
        enable = true;
        owners = [ "alice" ];
        upstream = "http://${nodes.model.networking.primaryIPAddress}:${toString port}";
        expect.contextTokens = 65536;
        grantedPaths = [ "/srv/notes" ];
        grants = {
          read-notes = ../../deploy/example/grants/read-notes.toml;
          write-notes = ../../deploy/example/grants/write-notes.toml;
        };
      };
    };

  testScript =
    { nodes, ... }:
    let
      address = nodes.model.networking.primaryIPAddress;
    in
    ''
    import json
    import shlex

    ROLES = ("inferproxy", "loopd", "brokerd")
    HOME = "/var/lib/boxmaker"
    MODEL = "${address}"
    PROBE = open("${./probe.py}").read()

    def as_alice(command):
        return f"runuser -u alice -- {command}"

    def look(role, **asked):
        inside = shlex.join(["/usr/bin/python3", "-I", "-S", "-c", PROBE, json.dumps({"open": [], "write": [], "reach": [], **asked})])
        said = appliance.succeed(
            f"cd / && env HOME={HOME}/containers/{role} XDG_RUNTIME_DIR=/run/bx-{role} "
            f"runuser -u bx-{role} -- podman --cgroup-manager=cgroupfs exec bx-{role} {inside}"
        )
        return json.loads(said)

    def up():
        appliance.wait_for_unit("boxmaker-tools.service")
        for role in ROLES:
            appliance.wait_for_unit(f"bx-{role}.service")
        appliance.wait_until_succeeds(as_alice("bxctl doctor"), timeout=120)

    def expect(found, wanted):
        assert found == wanted, f"{found} is not {wanted}"

    start_all()
    model.wait_for_open_port(${toString port})
    up()

    with subtest("a turn with a tool call that a grant allows"):
        appliance.succeed("echo coffee > /srv/notes/shopping.txt && chown alice /srv/notes/shopping.txt")
        said = appliance.succeed(as_alice("bxctl chat --say 'read the list'"))
        assert "coffee" in said, said

    with subtest("a write waits for the owner, and runs once she has said yes"):
        appliance.succeed(as_alice("sh -c 'bxctl chat --say \"write the file\" >/dev/null 2>&1 &'"))
        appliance.wait_until_succeeds(as_alice("bxctl approvals --json | grep -q write_file"), timeout=60)
        appliance.fail("test -e /srv/notes/new.txt")
        number = json.loads(appliance.succeed(as_alice("bxctl approvals --json")).splitlines()[0])["id"]
        appliance.succeed(as_alice(f"bxctl approve {number}"))
        appliance.wait_until_succeeds("grep -q bread /srv/notes/new.txt", timeout=60)
        appliance.succeed(as_alice("bxctl audit verify"))

    with subtest("nobody else may connect"):
        appliance.fail("runuser -u mallory -- bxctl chat --say hello")
        for socket in ("infer/infer", "loop-owner/loop", "broker/broker", "admin/admin", "tool-runner/podman"):
            appliance.succeed(f"test -S {HOME}/run/{socket}.sock")
            appliance.fail(f"runuser -u mallory -- test -e {HOME}/run/{socket}.sock")

    with subtest("loopd has loopback alone, its own directories, and no authority"):
        found = look(
            "loopd",
            open=["/etc/boxmaker/brokerd.toml", "/etc/boxmaker/grants", f"{HOME}/audit", f"{HOME}/run/tool-runner/podman.sock",
                  f"{HOME}/run/admin/admin.sock", "/srv/notes"],
            write=["/", "/tmp", "/usr", f"{HOME}/run/infer"],
            reach=[(MODEL, ${toString port})],
        )
        expect(found["interfaces"], ["lo"])
        expect(found["capabilities"], 0)
        expect(found["seccomp"], "2")
        assert "open" not in found["opened"].values(), found
        assert "written" not in found["written"].values(), found
        assert "reached" not in found["reached"].values(), found

    with subtest("inferproxy reaches the model and nothing else"):
        # The one address is allowed; this machine's own other ones are not.
        found = look("inferproxy", open=[f"{HOME}/sessions", f"{HOME}/run/broker/broker.sock", "/srv/notes"],
                     reach=[(MODEL, ${toString port}), ("192.0.2.1", 80)])
        assert "open" not in found["opened"].values(), found
        expect(found["reached"][MODEL], "reached")
        assert found["reached"]["192.0.2.1"] != "reached", found
        appliance.succeed("systemctl show bx-inferproxy --property=IPAddressDeny | grep -q '0.0.0.0/0'")

    with subtest("brokerd has no network, and may not write what was granted"):
        found = look("brokerd", open=[f"{HOME}/sessions"], write=["/srv/notes", "/etc/boxmaker/grants"], reach=[(MODEL, ${toString port})])
        expect(found["interfaces"], ["lo"])
        assert "written" not in found["written"].values(), found
        assert "open" not in found["opened"].values(), found

    with subtest("limits of the whole container hold"):
        for role in ROLES:
            group = appliance.succeed(f"systemctl show bx-{role} --property=ControlGroup --value").strip()
            limits = appliance.succeed(f"cat $(find /sys/fs/cgroup{group} -name memory.max)").split()
            assert any(limit != "max" for limit in limits), f"{role}: {limits}"

    with subtest("a killed role comes back"):
        for role in ROLES:
            appliance.succeed(f"systemctl kill --signal=KILL bx-{role}")
        up()

    with subtest("a reboot loses nothing"):
        appliance.shutdown()
        appliance.start()
        up()
        appliance.succeed(as_alice("bxctl audit verify"))
        said = appliance.succeed(as_alice("bxctl chat --say 'read the list'"))
        assert "coffee" in said, said
  '';
}
