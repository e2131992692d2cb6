#!/usr/bin/env bash
# Evaluate the flake without a network: every file parses, every output evaluates against
# stand-ins for nixpkgs and poetry2nix, flake.lock fits flake.nix. Nothing is built.
#
#     tests/nix/check.sh [CHECKOUT]
#
# Reads the work tree as it lies, committed or not. Writes into a temporary directory only, with
# a store of its own, so that neither root nor a Nix daemon is needed.

set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

scratch=$(mktemp -d)
# What Nix puts into a store is read-only.
trap 'chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
source=$scratch/source
mkdir "$source" "$scratch/home"

export HOME=$scratch/home XDG_CACHE_HOME=$scratch/home XDG_CONFIG_HOME=$scratch/home NIX_REMOTE=$scratch/store
unset NIX_PATH
export NIX_CONFIG="experimental-features = nix-command flakes
build-users-group =
fsync-metadata = false
sandbox = false"

find . -name .state -prune -o -name '*.nix' -exec nix-instantiate --parse {} + >/dev/null

# What the flake may read. Nix itself would take the tracked files.
cp -r --parents flake.nix flake.lock pyproject.toml poetry.lock nix python images deploy/example tests/nix "$source"

stub=$source/tests/nix/stub
offline=(--offline --no-write-lock-file
    --override-input nixpkgs "path:$stub-nixpkgs"
    --override-input poetry2nix "path:$stub-poetry2nix")

# Nix tells of the inputs that were replaced, as they should be: shown only when a step fails.
evaluate() {
    if ! nix "$@" "${offline[@]}" >/dev/null 2>"$scratch/messages"; then
        cat "$scratch/messages" >&2
        exit 1
    fi
}

evaluate flake check "path:$source" --no-build
# The check above does not look inside an app, and sees one system only.
evaluate eval --json "path:$source#apps" --apply 'builtins.mapAttrs (_: app: app.bxctl.program)'
for output in packages checks devShells; do
    evaluate eval --json "path:$source#$output" --apply 'builtins.mapAttrs (_: builtins.mapAttrs (_: one: one.drvPath))'
done
evaluate eval --json "path:$source#formatter" --apply 'builtins.mapAttrs (_: one: one.drvPath)'

# The stand-ins hide the real inputs, so whether the lock fits is asked without them.
nix flake metadata "path:$source" --offline --no-update-lock-file >/dev/null
