#!/bin/bash
# Simulated by clusterlab: the steps of Harbor's own installer, in its order. Each run of it is a stop of Harbor.
set -e
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$here/common.sh"
cd "$here"

options=()
for word in "$@"; do
    case $word in
    --with-trivy) options+=("$word") ;;
    *) refuse "unknown option $word" ;;
    esac
done

say "checking docker and compose"
require_docker
find_compose
for images in harbor*.tar.gz; do
    if [ -f "$images" ]; then
        say "loading Harbor images"
        docker load -i "./$images"
    fi
done
say "preparing harbor configs"
./prepare "${options[@]}"
say "stopping existing Harbor instance"
"${compose[@]}" down -v
say "starting Harbor"
"${compose[@]}" up -d
say "Harbor has been installed and started successfully."
