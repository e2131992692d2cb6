# Two machines: the appliance, which has a fake Mattermost too, and one with a fake model server. One turn with a tool
# call, an approval through bxctl and one in Mattermost, what each role finds in its container, memory limits that hold,
# a reboot. Needs a machine with nixpkgs and KVM:
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
  chatPort = 8065;
  # Of the fake's alice, who is the same in every run (nix/checks/chat.py).
  alice = "tikm58urzbz7wprduwkj9spod9";
  credential = "/var/lib/boxmaker-credentials/mattermost-token.cred";
  python = "${environment}/bin/python3";
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
      environment.systemPackages = [
        pkgs.acl
        pkgs.curl
      ];
      # On the loopback address, so its one port is led into gatewayd's container.
      systemd.services.chat = {
        wantedBy = [ "multi-user.target" ];
        environment.PYTHONPATH = "${tests}:${tests}/python:${pkgs.python313.pkgs.makePythonPath [ pkgs.python313.pkgs.wsproto ]}";
        serviceConfig = {
          ExecStart = "${python} -m nix.checks.chat ${toString chatPort} /run/chat";
          RuntimeDirectory = "chat";
        };
      };
      # What an owner does once, by hand. The fake forgets everything at a reboot, and makes the same again.
      systemd.services.token = {
        wantedBy = [ "bx-gatewayd.service" ];
        before = [ "bx-gatewayd.service" ];
        after = [ "chat.service" ];
        requires = [ "chat.service" ];
        serviceConfig = {
          Type = "oneshot";
          RemainAfterExit = true;
          UMask = "0077";
          StateDirectory = "boxmaker-credentials";
        };
        script = ''
          until test -s /run/chat/token; do sleep 0.1; done
          systemd-creds encrypt --name=mattermost-token /run/chat/token ${credential}
        '';
      };
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
        mattermost = {
          enable = true;
          url = "http://127.0.0.1:${toString chatPort}";
          allowedUsers = [ alice ];
          tokenCredential = credential;
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
    import re
    import shlex
    import time

    ROLES = ("inferproxy", "loopd", "brokerd", "gatewayd")
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

    def chat(command, **arguments):
        sent = shlex.quote(json.dumps(arguments))
        said = appliance.succeed(f"curl -sS --fail-with-body -d {sent} http://127.0.0.1:${toString chatPort}/_control/{command}")
        return json.loads(said)["result"]

    def say(text, root=None):
        return chat("say", user=people["alice"], channel=people["direct"], text=text, root=root)["id"]

    def answers(root):
        return [post["message"] for post in chat("posts_of", channel=people["direct"])
                if post["root_id"] == root and post["user_id"] == people["bot"]]

    def answered(root, word, seconds=90):
        for _ in range(seconds):
            found = [text for text in answers(root) if word in text]
            if found:
                return found[0]
            time.sleep(1)
        raise AssertionError(f"nothing with {word} in {answers(root)}")

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

    with subtest("a conversation in Mattermost"):
        people = json.loads(appliance.succeed("cat /run/chat/people.json"))
        expect(people["alice"], "${alice}")
        thread = say("read the list")
        answered(thread, "coffee")

    with subtest("an approval in Mattermost"):
        appliance.succeed("rm -f /srv/notes/new.txt")
        thread = say("write the file")
        asked = answered(thread, "!approve")
        appliance.fail("test -e /srv/notes/new.txt")
        say(re.search(r"!approve [0-9]+", asked)[0], root=thread)
        appliance.wait_until_succeeds("grep -q bread /srv/notes/new.txt", timeout=60)
        assert "mattermost:${alice}" in appliance.succeed(as_alice("bxctl audit show --json")), "who said yes"

    with subtest("the bot's token is gatewayd's alone"):
        for role in ROLES:
            place = "/run/credentials/bx-gatewayd.service/mattermost-token"
            found = look(role, open=[place])["opened"][place]
            expect(found == "open", role == "gatewayd")
        appliance.succeed("grep -qFf /run/chat/token /run/credentials/bx-gatewayd.service/mattermost-token")
        appliance.fail(f"grep -rqFf /run/chat/token /etc/boxmaker {HOME} /nix/store/*-gatewayd.toml ${credential}")
        appliance.fail("cat /proc/*/environ /proc/*/cmdline | grep -qaFf /run/chat/token")

    with subtest("gatewayd reaches the chat server's port, and no other machine"):
        found = look("gatewayd", open=["/srv/notes", f"{HOME}/sessions", f"{HOME}/run/broker/broker.sock", f"{HOME}/run/admin/admin.sock"],
                     reach=[("127.0.0.1", ${toString chatPort}), (MODEL, ${toString port})])
        expect(found["reached"], {"127.0.0.1": "reached", MODEL: found["reached"][MODEL]})
        assert found["reached"][MODEL] != "reached", found
        assert "open" not in found["opened"].values(), found

    with subtest("nobody else may connect"):
        appliance.fail("runuser -u mallory -- bxctl chat --say hello")
        for socket in ("infer/infer", "loop-owner/loop", "broker/broker", "admin/admin", "tool-runner/podman",
                       "loop-gateway/loop", "gateway/gateway", "gateway-owner/gateway"):
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
        appliance.wait_until_succeeds(as_alice("bxctl mattermost status"), timeout=60)
        answered(say("read the list"), "coffee")
  '';
}
