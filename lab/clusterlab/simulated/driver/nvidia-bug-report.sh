#!/bin/sh
# Simulated by clusterlab: what a supplier asks for, from the simulated driver.
set -u
file=nvidia-bug-report.log
while [ $# -gt 0 ]; do
    case "$1" in
        --output-file) file="$2"; shift ;;
        --output-file=*) file="${1#*=}" ;;
    esac
    shift
done
file="${file%.gz}"
{
    echo "Start of NVIDIA bug report log file (simulated by clusterlab). $(date)"
    uname -a
    cat /proc/driver/nvidia/version
    lsmod
    nvidia-smi -q
    nvidia-smi nvlink -e
} >"$file" 2>&1
gzip -f "$file"
echo "nvidia-bug-report.sh has collected its output into $file.gz"
