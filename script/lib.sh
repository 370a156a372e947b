# shellcheck shell=bash
# What demo, test and lint share: where things are, how they speak, and how the tools get here.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
STARTED=$(date +%s)

step() { # step TEXT: what starts now, with the time since the start
    printf '\n==> [%4ds] %s\n' "$(($(date +%s) - STARTED))" "$*" >&2
}

die() { # die WHAT WHERE HINT
    printf 'error: %s\n  where: %s\n  hint:  %s\n' "$1" "$2" "$3" >&2
    exit 1
}

need_root() { # need_root SCRIPT ARGS...: the lab needs root; say so and become root where sudo can
    [ "$(id -u)" -eq 0 ] && return
    command -v sudo >/dev/null || die "this needs root, and there is no sudo" "$(id -un)@$(hostname)" "Run it as root."
    printf 'This starts containers and network bridges, so it continues as root (sudo).\n' >&2
    local kept=CI,NO_COLOR,CLUSTERCTL_LAB_MIRROR,CLUSTERCTL_KEEP_TEST_LAB,PIP_INDEX_URL,PIP_CERT
    kept+=,CLUSTERCTL_FAULT_SEED,CLUSTERCTL_CLEAN_RUNS
    exec sudo --preserve-env="$kept,http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY" -- "$@"
}

apt_install() { # apt_install PACKAGE...: those that are missing
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^[ih]i' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null ||
        die "these packages are missing: ${missing[*]}" "$(hostname): no apt-get" "Install them by hand, then run this again."
    step "installing from the distribution: ${missing[*]}"
    {
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -qq -y \
            --no-install-recommends install "${missing[@]}"
    } >"$ROOT/.apt.log" 2>&1 || {
        tail -n 20 "$ROOT/.apt.log" >&2
        die "the packages could not be installed: ${missing[*]}" "$(hostname): apt-get, $ROOT/.apt.log" \
            "See apt's message above; is the network there?"
    }
    rm -f "$ROOT/.apt.log"
}

find_python() { # prints a Python 3.11 to 3.13 that can make virtual environments
    local candidate
    for candidate in python3 python3.11 python3.12 python3.13; do
        command -v "$candidate" >/dev/null || continue
        "$candidate" -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null &&
            { command -v "$candidate"; return; }
    done
    return 1
}

stamp_of() { # stamp_of runtime|dev: changes when what .venv should hold does
    printf '%s-%s' "$1" "$(cat "$ROOT"/requirements*.lock "$ROOT/pyproject.toml" "$ROOT/galaxy.yml" | sha256sum | cut -c1-16)"
}

venv() { # venv runtime|dev: .venv with the locked dependencies, and clusterctl from this tree; dev holds runtime
    local lock=$ROOT/requirements.lock python stamp
    [ "$1" = dev ] && lock=$ROOT/requirements-dev.lock
    for stamp in "$(stamp_of "$1")" "$(stamp_of dev)"; do
        [ -f "$VENV/.installed-$stamp" ] && [ -x "$VENV/bin/clusterctl" ] && return
    done
    if [ ! -x "$VENV/bin/python" ]; then
        python=$(find_python) || { apt_install python3 python3-venv; python=$(find_python); } ||
            die "there is no Python 3.11, 3.12 or 3.13 here" "$(hostname): $(python3 --version 2>&1)" \
                "Install one of them (Debian 12 or newer, Ubuntu 24.04 or newer have it as python3)."
        step "making .venv with $("$python" --version)"
        "$python" -m venv "$VENV"
    fi
    step "installing the pinned dependencies of $(basename "$lock") into .venv"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock" 2> >(grep -v '^WARNING: Location' >&2) ||
        die "the pinned dependencies could not be installed" "$lock" "See pip's message above; is the package index reachable?"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e "$ROOT" 2> >(grep -v '^WARNING: Location' >&2) ||
        die "clusterctl could not be installed from this tree" "$ROOT/pyproject.toml" "See pip's message above."
    rm -f "$VENV"/.installed-*
    touch "$VENV/.installed-$(stamp_of "$1")"
}

# What the lab builds its images and package sources with.
LAB_PACKAGES=(mmdebstrap debian-archive-keyring gnupg iptables iproute2 openssh-client ca-certificates)

lab_packages() { # the tools of the lab, and an engine where none answers
    apt_install "${LAB_PACKAGES[@]}"
    # An engine that is there and does not answer is the operator's: lab up starts it, nothing replaces it.
    command -v dockerd >/dev/null || docker info >/dev/null 2>&1 || apt_install docker.io
}

test_packages() { # the programs of the ordinary tests
    apt_install skopeo openssl gnupg apt-utils dpkg-dev gcc fio
    apt_install dnf dnf-plugins-core rpm createrepo-c # for the roles on RHEL 9
}

registry_program() { # the registry that tests of images run on loopback: unpacked, since the package starts a service
    local program=$ROOT/.tools/usr/bin/docker-registry downloaded
    ! command -v docker-registry >/dev/null && [ ! -x "$program" ] || return 0
    step "bringing docker-registry for the tests of images"
    downloaded=$(mktemp -d)
    chmod 755 "$downloaded"
    (cd "$downloaded" && apt-get -qq download docker-registry >/dev/null 2>&1 ||
        { apt-get -qq update && apt-get -qq download docker-registry; }) >&2 ||
        die "docker-registry could not be downloaded" "$(hostname): apt-get" "See apt's message above; is the network there?"
    find "$downloaded" -name '*.deb' -exec dpkg-deb -x {} "$ROOT/.tools" \;
    rm -rf "$downloaded"
}

contract_packages() { # Prism, which holds Harbor's requests and answers against its description
    local home=$ROOT/tests/contract/prism stamp
    command -v npm >/dev/null || return 0
    stamp=$home/node_modules/.installed-$(sha256sum "$home/package-lock.json" | cut -c1-16)
    [ -f "$stamp" ] && return
    step "installing Prism for the contract tests"
    npm ci --prefix "$home" --no-audit --no-fund --silent ||
        die "Prism could not be installed" "$home: npm ci" "See npm's message above; is the registry reachable?"
    touch "$stamp"
}

browser_package() { # the browser that looks at the report; Ubuntu has it as a snap alone, which reads no file of ours
    grep -q '^ID=debian' /etc/os-release || return 0
    apt_install chromium
}
