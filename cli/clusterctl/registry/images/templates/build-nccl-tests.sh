#!/bin/sh
# Builds nccl-tests in an image: build-nccl-tests.sh SOURCE SHA256, SOURCE a URL or a file in Base64 next to this.
# Where the base has no CUDA toolchain it is left off, and the reason is kept for `clusterctl validate`.
set -eu
source=$1 sha256=$2
prefix=${NCCL_TESTS_PREFIX:-/usr/local}
share=$prefix/share/clusterctl
mkdir -p "$share" "$prefix/bin"

off() {
    echo "nccl-tests: off: $1" >&2
    echo "$1" >"$share/nccl-tests.off"
    exit 0
}

cuda=${CUDA_HOME:-/usr/local/cuda}
[ -x "$cuda/bin/nvcc" ] || off "the base has no CUDA toolchain (no $cuda/bin/nvcc)"
for program in make g++; do
    command -v "$program" >/dev/null || off "the base has no $program"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $source in
    https://*)
        python3 -c 'import shutil, sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=60) as answer, open(sys.argv[2], "wb") as file:
    shutil.copyfileobj(answer, file)' "$source" "$work/source.tar.gz"
        ;;
    *) base64 -d "$(dirname "$0")/$source" >"$work/source.tar.gz" ;;
esac
echo "$sha256  $work/source.tar.gz" | sha256sum -c - >/dev/null || {
    echo "nccl-tests: $source is not the archive that was declared (SHA-256)" >&2
    exit 1
}
mkdir "$work/source"
tar -xzf "$work/source.tar.gz" -C "$work/source" --strip-components=1
cd "$work/source"

# Within a node without MPI; across nodes with it, under names that end in _mpi, where the image has it.
make -j"$(nproc)" CUDA_HOME="$cuda" BUILDDIR="$work/plain"
for program in "$work"/plain/*_perf; do
    install -m 755 "$program" "$prefix/bin/"
done
if mpi=$(command -v mpicxx); then
    home=$(dirname "$(dirname "$(readlink -f "$mpi")")")
    [ -f "$home/include/mpi.h" ] || home=$(dirname "$(find "$home/lib" -name mpi.h 2>/dev/null | head -n 1)" | sed 's,/include$,,')
    make -j"$(nproc)" MPI=1 MPI_HOME="$home" CUDA_HOME="$cuda" BUILDDIR="$work/mpi"
    for program in "$work"/mpi/*_perf; do
        install -m 755 "$program" "$prefix/bin/$(basename "$program")_mpi"
    done
else
    echo "nccl-tests: without MPI: the image has no mpicxx" >&2
fi
