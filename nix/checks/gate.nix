# The tests that need neither Podman nor a network nor a model server, in the sandbox. Formatting and types are judged
# by `make gate` alone, with the versions that poetry.lock names: another version of ruff would judge another way.
{ pkgs, environment }:
let
  inherit (pkgs.python313.pkgs) makePythonPath;
  # Behind the locked packages, so that none of theirs takes the place of one of those.
  tools = makePythonPath [
    pkgs.python313.pkgs.hypothesis
    pkgs.python313.pkgs.markdown-it-py
    pkgs.python313.pkgs.pytest
    pkgs.python313.pkgs.pytest-timeout
    pkgs.python313.pkgs.wsproto
  ];
in
pkgs.runCommand "boxmaker-gate" { nativeBuildInputs = [ environment ]; } ''
  cp -r --no-preserve=mode ${../../.} source
  cd source
  export HOME=$TMPDIR
  python3 -c 'import sys; sys.path += "${tools}".split(":"); import pytest; sys.exit(pytest.main(sys.argv[1:]))' \
      -q -p no:cacheprovider tests/property \
      tests/unit/bxcore tests/unit/brokerd tests/unit/gatewayd tests/unit/inferproxy tests/unit/loopd tests/unit/toolkit
  touch $out
''
