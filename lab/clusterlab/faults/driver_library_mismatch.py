"""The loaded kernel module is older than the library beside it, as after an upgrade without a reboot."""

from __future__ import annotations

from clusterlab.faults.on_host import KEPT, scripted

# A release of branch 580 that the depot does not serve: what is installed cannot be it.
LOADED = "580.65.06"
_MODULE = "/run/clusterlab/kernel/modules/nvidia"

FAULT = scripted(
    "driver-library-mismatch",
    f"the loaded driver is {LOADED}, unlike its library: nvidia-smi fails, until the node reboots",
    inject=f"""
mkdir -p {KEPT}
cp -p {_MODULE} {KEPT}/module
sed 's/"version": "[0-9.]*"/"version": "{LOADED}"/' {KEPT}/module > {_MODULE}
clusterlab-hardware refresh
""",
    clear=f"if [ -e {KEPT}/module ]; then mv {KEPT}/module {_MODULE}; clusterlab-hardware refresh; fi",
    caught_by=("gpu-driver",),
)
