# What the text of an upstream says, and which texts are addresses and networks. Builtins only. Whatever systemd, Podman
# or getaddrinfo would read in a way of its own is none. deploy/quadlet/modelserver.py says the same of an upstream
# (tests/nix/test_upstream.py).
{ upstream }:
let
  inherit (builtins)
    elem
    elemAt
    filter
    head
    isString
    length
    match
    split
    ;
  is = pattern: text: match pattern text != null;

  octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  ipv4 = "${octet}([.]${octet}){3}";
  group = "[0-9a-fA-F]{1,4}";
  some = "(${group}(:${group})*)?";
  isIPv6 =
    text:
    is "${group}(:${group}){7}" text
    || (is "${some}::${some}" text && length (filter (part: isString part && part != "") (split ":" text)) < 8);

  # What inet_aton(3) might take for an address, as 127.1.
  number = "(0[xX][0-9a-fA-F]*|[0-9]+)";
  numbers = "${number}([.]${number})*[.]?";

  tcp = match "http://(\\[([0-9a-fA-F:.]+)]|[A-Za-z0-9._-]+)(:([1-9][0-9]{0,4}))?/?" upstream;
  host = if tcp == null then "" else head tcp;
  inBrackets = if tcp == null then null else elemAt tcp 1;
  isV4 = is ipv4 host;
  isV6 = inBrackets != null && isIPv6 inBrackets;
  isLocalName = is "(.*[.])?[lL][oO][cC][aA][lL][hH][oO][sS][tT][.]?" host;
in
{
  inherit host;
  isTcp = tcp != null;
  port = if tcp == null || elemAt tcp 3 == null then "80" else elemAt tcp 3;

  # Neither a name nor an address.
  isOdd = (inBrackets != null && !isV6) || (inBrackets == null && is numbers host && !isV4);

  # 0.0.0.0 too, which Linux takes for this machine; and IPv4 within IPv6.
  isLoopback =
    isLocalName
    || (isV4 && is "127[.].*|0[.]0[.]0[.]0" host)
    || (isV6 && is "[0:]*:(0*1?|[fF]{4}:(7[fF]..:.*|0+:0+|:))" inBrackets);
  # The words for it that `pasta:-T,PORT` leads a port in at. A role has no /etc/hosts that would know "localhost".
  isLedIn = elem host [
    "127.0.0.1"
    "[::1]"
  ];
  isHostsOwn = isV4 && is "127[.].*" host;

  # As IPAddressAllow= takes it; empty for a name, which says nothing of what is behind it.
  addresses =
    if isLocalName then
      [ "localhost" ]
    else if isV4 then
      [ host ]
    else if isV6 then
      [ inBrackets ]
    else
      [ ];

  # One address, or a range that is no large part of all there are. systemd takes blanks for the end of one, and has
  # words of its own, of which "localhost" alone is of use.
  isRange =
    text:
    let
      long = match "([0-9a-fA-F:]+)(/(1[6-9]|[2-9][0-9]|1[01][0-9]|12[0-8]))?" text;
    in
    text == "localhost"
    || is "${ipv4}(/([89]|[12][0-9]|3[0-2]))?" text
    || (long != null && isIPv6 (head long));

  # Podman hands on whatever stands after the colon. These options choose a way out; none listens for anybody outside,
  # writes a file, or leads in more of this machine than one port.
  isNetwork =
    let
      port = "[1-9][0-9]{0,4}";
      each = options: "(${options})(,(${options}))*";
    in
    is "host|pasta(:${each "-T,${port}|-4|-6|-m,[0-9]{3,5}|-i,[A-Za-z0-9_.-]{1,15}"})?|slirp4netns(:${each "enable_ipv6=(true|false)|mtu=[0-9]{3,5}"})?";
  leadsIn = port: is "pasta:(.*,)?-T,${port}(,.*)?";
}
