# The roles' configuration files as data: what the wiring and the module's options say. `services.boxmaker.settings`
# comes to it and may not say any of these again. Keys as in bxcore/settings; tests/nix/test_settings.py reads the
# files with the programs' own reader.
{
  cfg,
  wiring,
  plan,
  chat,
}:
let
  inherit (plan) at;

  socket =
    name:
    let
      edge = builtins.head (builtins.filter (e: e.name == name) wiring.edges);
    in
    at "${edge.directory}/${edge.socket}";
in
{
  inferproxy = {
    listen = socket "infer";
    inherit (cfg) upstream;
  };

  loopd = {
    state = at "home";
    listen = {
      owner = socket "loop-owner";
      # Whether or not somebody is there to call.
      gateway = socket "loop-gateway";
    };
    infer.socket = socket "infer";
    broker.socket = socket "broker";
    expect = {
      n_ctx = cfg.expect.contextTokens;
      inherit (cfg.expect) slots;
      template_sha256 = cfg.expect.templateSha256;
    };
    slots = { inherit (cfg.slots) main background; };
    time_zone = cfg.timeZone;
  };

  brokerd = {
    grants = at "etc/grants";
    audit = at "home/audit";
    state = at "home/broker";
    # /nix: what the images of Nix are made of lies there, in a tool's container too.
    protect = [
      (at "home")
      (at "etc")
      "/nix"
    ];
    listen = {
      broker = socket "broker";
      admin = socket "admin";
    };
    podman = {
      socket = socket "tool-runner";
      image_file = at wiring.tools.image_file;
      calls = at wiring.tools.calls;
      seccomp = at wiring.tools.seccomp;
    };
    egress.network = cfg.egressNetwork;
  }
  // (if cfg.mattermost.enable then { gateway.socket = socket "gateway"; } else { });

  gatewayd = {
    state = at "home/gateway";
    listen = {
      gateway = socket "gateway";
      owner = socket "gateway-owner";
    };
    mattermost = {
      inherit (cfg.mattermost) url;
      ca_file = if cfg.mattermost.caFile == null then null else at chat.authority;
    };
    loop.socket = socket "loop-gateway";
    allow = {
      users = cfg.mattermost.allowedUsers;
      channels = cfg.mattermost.allowedChannels;
    };
    approvals.users = cfg.mattermost.approvers;
    links.hosts = cfg.mattermost.linkHosts;
  };
}
