# What services.boxmaker.mattermost comes to: the server in its address, the network that reaches it, and the texts that
# are ids, names of hosts and paths. Builtins only. What gatewayd takes for an address is its own rule
# (bxcore/settings/gatewayd.py); here stands what is narrower (tests/nix/test_mattermost.py).
{ said }:
let
  inherit (builtins) elemAt head match;
  is = pattern: text: match pattern text != null;

  parts = match "(https?)://(\\[[0-9a-f:.]+]|[A-Za-z0-9.-]+)(:([1-9][0-9]{0,4}))?((/[A-Za-z0-9._~-]+)*)" said.url;
  host = elemAt parts 1;
  port =
    if elemAt parts 3 != null then
      elemAt parts 3
    else if head parts == "https" then
      "443"
    else
      "80";
in
rec {
  # In the directory that gatewayd reads beside its settings.
  authority = "etc/gatewayd/ca.pem";

  isAddress =
    parts != null
    && builtins.fromJSON port < 65536
    && (elemAt parts 4 == "" || match "\\[.*" host == null);

  # Its words as those of a model server: which are addresses, which this machine.
  server = import ./upstream.nix {
    upstream = if isAddress then "http://${host}:${port}" else "";
  };

  # Never the host's: of this machine at most the one port, where the server is here.
  network = if server.isLoopback then "pasta:-T,${server.port}" else "pasta";

  isId = is "[a-z0-9]{26}";

  # As a grant names a host, but for the port, which the program reads.
  isHost = is "([*][.])?([a-z0-9]([a-z0-9-]*[a-z0-9])?[.])*[a-z]([a-z0-9-]*[a-z0-9])?(:[1-9][0-9]{0,4})?";

  # A word of systemd's, and no path of the store, which everybody reads and nothing forgets.
  isCredential = path: is "(/[A-Za-z0-9_+.-]+)+" path && !is ".*/[.][.]?(/.*)?" path && !is "/nix/store/.*" path;
}
