# A machine with Boxmaker, as short as it gets: evaluated with the real NixOS in the flake's checks, and with the
# stand-in in tests/nix. docs/appliance.md explains the same lines.
{
  system.stateVersion = "26.05";
  boot.loader.grub.enable = false;
  fileSystems."/" = {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };

  users.users.alice.isNormalUser = true;

  services.boxmaker = {
    enable = true;
    owners = [ "alice" ];
    upstream = "http://192.0.2.7:8080";
    expect.contextTokens = 65536;
    grantedPaths = [ "/srv/notes" ];
    grants.read-notes = ../../deploy/example/grants/read-notes.toml;
  };
}
