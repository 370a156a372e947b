# shellcheck shell=bash
# Simulated by clusterlab: what Harbor's installer looks for before it starts.

say() {
    printf '\n[%s]\n' "$*"
}

refuse() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

require_docker() {
    docker --version >/dev/null 2>&1 || refuse "Need to install docker(20.10.10+) first and run this script again."
}

find_compose() {
    if docker compose version >/dev/null 2>&1; then
        compose=(docker compose)
    elif docker-compose --version >/dev/null 2>&1; then
        compose=(docker-compose)
    else
        refuse "Need to install docker-compose(1.18.0+) or a docker-compose-plugin first and run this script again."
    fi
}
