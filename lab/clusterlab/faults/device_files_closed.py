"""The GPUs' device files are root's alone, as by a udev rule or the driver's NVreg_DeviceFileMode."""

from __future__ import annotations

from clusterlab.faults.on_host import KEPT, scripted

_FILES = "/dev/nvidia[0-9]*"
_MODES = f"{KEPT}/device-modes"

# A device that is gone has no mode to give back: when it comes again, the driver makes its file anew.
FAULT = scripted(
    "device-files-closed",
    "only root may open the GPUs' device files, until the node reboots",
    inject=f"""
mkdir -p {KEPT}
[ -e {_MODES} ] || {{ stat -c '%a %n' {_FILES} > {_MODES}.new; mv {_MODES}.new {_MODES}; }}
chmod 0660 {_FILES}
""",
    clear=f"""
if [ -e {_MODES} ]; then
    while read -r mode file; do
        if [ -e "$file" ]; then chmod "$mode" "$file"; fi
    done < {_MODES}
    rm {_MODES}
fi
""",
    caught_by=("container-user",),
)
