# One image for each role of nix/roles.nix, the tools' image, and the file with its ID. What is in an image is decided
# by images/ (roles.toml, layout.py, stdlib.py), as for the images that are built without Nix; dockerTools packs it.
#
# Python code lies in the standard library's own directory, since roles run with -I -S; everything is copied below
# /usr, and no path of the Nix store is left in an image.
{
  pkgs,
  python,
  # A directory of the installed Python packages of poetry.lock's main group.
  sitePackages,
  version,
}:
let
  inherit (pkgs) lib;
  inherit (builtins)
    attrNames
    elem
    filter
    fromTOML
    listToAttrs
    readFile
    ;

  wiring = import ./roles.nix;
  table = fromTOML (readFile ../images/roles.toml);

  loader =
    {
      x86_64-linux = "ld-linux-x86-64.so.2";
      aarch64-linux = "ld-linux-aarch64.so.1";
    }
    .${pkgs.stdenv.hostPlatform.system};

  # What decides the contents: the builder, and of our own packages this image's program and bxcore alone.
  sourceOf =
    program:
    builtins.path {
      path = ../.;
      name = "boxmaker-${program}-source";
      filter =
        path: type:
        let
          relative = lib.removePrefix "${toString ../.}/" path;
          parts = filter builtins.isString (builtins.split "/" relative);
          top = builtins.head parts;
          second = builtins.elemAt parts 1;
        in
        if elem "__pycache__" parts then
          false
        else if builtins.length parts == 1 then
          elem top [
            "images"
            "nix"
            "python"
          ]
        else if top == "images" then
          type == "regular" && builtins.match ".*[.](py|toml)" path != null
        else if top == "nix" then
          second == "image_tree.py"
        else
          top == "python"
          && elem second [
            "bxcore"
            program
          ];
    };

  # For the label: a hash of what decides the contents. A flake knows no commit but the newest, and with that in its
  # label every image would be another one after every commit, and every role start anew.
  revisionOf =
    name:
    let
      source = builtins.unsafeDiscardStringContext (sourceOf (programOf name));
      hash = builtins.hashString "sha256" "${source} ${builtins.hashFile "sha256" ../poetry.lock}";
    in
    "source-${builtins.substring 0 40 hash}";

  programOf = name: table.${name}.program or name;
  has = name: what: table.${name}.${what} or false;

  treeOf =
    name:
    let
      program = programOf name;
      options =
        lib.optional (has name "shell") "--busybox ${pkgs.pkgsStatic.busybox}/bin/busybox"
        ++ lib.optional (has name "certificates") "--certificates ${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt"
        ++ lib.optional (has name "time_zones") "--zones ${pkgs.tzdata}/share/zoneinfo";
    in
    pkgs.runCommand "boxmaker-${name}-root"
      {
        nativeBuildInputs = [
          pkgs.nukeReferences
          pkgs.patchelf
          pkgs.stdenv.cc.libc.bin # ldd
        ];
        # Nothing in the image may name the store: whatever did would be missing there.
        allowedReferences = [ ];
      }
      ''
        ${python}/bin/python3 ${sourceOf program}/nix/image_tree.py --image ${name} \
            --packages ${sitePackages} --output $out ${builtins.concatStringsSep " " options}

        # The C library of Nix looks in its own directory of the store only. The search path of the program itself, of
        # the old kind, holds for the libraries and extensions too: theirs were taken away.
        install -m 755 "$(readlink -f ${python}/bin/python3)" $out/usr/bin/python3
        patchelf --set-interpreter /lib/${loader} --force-rpath --set-rpath /usr/lib $out/usr/bin/python3
        find $out -type f -exec nuke-refs {} +

        # It runs, and finds all of it, from where it lies.
        $out/usr/lib/${loader} --library-path $out/usr/lib $out/usr/bin/python3 -I -S \
            -c 'import sys, ${program}.__main__; assert sys.prefix == "'$out'/usr", sys.prefix'
      '';

  # As images/layout.py says; tests/nix/test_images.py compares the two.
  configOf = name: {
    Cmd = [
      "/usr/bin/python3"
      "-I"
      "-S"
      "-m"
      (programOf name)
    ];
    User = if has name "shell" then "1000:1000" else "65534:65534";
    Env = [
      "HOME=${if has name "shell" then "/tmp" else "/"}"
      "LANG=C.UTF-8"
      "PATH=/usr/bin"
      "PYTHONDONTWRITEBYTECODE=1"
    ]
    ++ lib.optional (has name "certificates") "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt";
    Labels = {
      "org.opencontainers.image.title" = table.${name}.title;
      "org.opencontainers.image.version" = version;
      "org.opencontainers.image.revision" = revisionOf name;
    };
  };

  imageOf =
    name: repository:
    pkgs.dockerTools.buildLayeredImage {
      name = repository;
      # No tag: it is made from the contents then, so that a name stands for one content.
      config = configOf name;
      # Podman reads it without unpacking it to another file first.
      compressor = "none";
      # Files themselves rather than links into the store. In the store everything is read-only and nothing is
      # anybody's to write; the one place that has to be is made so here.
      extraCommands = ''
        cp -r --no-preserve=ownership ${treeOf name}/. .
        chmod -R u+w .
      ''
      + (if has name "shell" then "chmod 1777 tmp\n" else "");
    };

  tools = imageOf "tools" wiring.tools.image;
in
listToAttrs (
  map (name: {
    name = "image-${name}";
    value = imageOf name wiring.roles.${name}.image;
  }) (attrNames wiring.roles)
)
// {
  image-tools = tools;

  # A build result: reading it here would mean to build while evaluating. brokerd reads the file.
  tool-image-id =
    pkgs.runCommand "boxmaker-tool-image-id"
      {
        nativeBuildInputs = [ pkgs.jq ];
      }
      ''
        tar -xOf ${tools} manifest.json | jq --raw-output '.[0].Config | rtrimstr(".json")' > $out
        grep --quiet --line-regexp --extended-regexp '[0-9a-f]{64}' $out
      '';
}
