# The directories and files of the wiring as NixOS makes them: systemd-tmpfiles and environment.etc. `owner` is the
# person who owns what the wiring gives to "owner".
{
  lib,
  wiring,
  plan,
  owner,
}:
let
  inherit (builtins) concatStringsSep concatMap;
  inherit (plan) at;

  named = user: if user == "owner" then owner else user;

  # A role of another pair's end gets in by an ACL; what is made in a directory of sockets, it may write.
  access =
    d:
    concatStringsSep "," (
      concatMap (user: [ "u:${user}:--x" ]) d.enter
      ++ lib.optionals d.sockets (
        [
          "d:u::rwx"
          "d:g::rw-"
        ]
        ++ map (user: "d:u:${user}:rw-") d.enter
        ++ [
          "d:m::rw-"
          "d:o::---"
        ]
      )
    );

  directory = d: {
    name = at d.path;
    value = {
      d = {
        inherit (d) mode group;
        user = named d.user;
      };
    }
    // lib.optionalAttrs (d.enter != [ ] || d.sockets) {
      "a+".argument = access d;
    };
  };
in
{
  tmpfiles = builtins.listToAttrs (map directory wiring.directories);

  # `sources`: path in the wiring -> what lies there; a role that is left out has no file. A copy, not a link into the
  # store: each has its own mode.
  etc =
    sources:
    builtins.listToAttrs (
      map (file: {
        name = lib.removePrefix "/etc/" (at file.path);
        value = {
          source = sources.${file.path};
          inherit (file) mode group;
        };
      }) (builtins.filter (file: sources ? ${file.path}) wiring.files)
    );
}
