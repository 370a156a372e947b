"""A declared file system is not mounted, as after a boot before its server was there."""

from __future__ import annotations

from clusterlab.faults.on_host import KEPT, scripted
from clusterlab.names import SCRATCH

_ASIDE = f"{KEPT}/scratch"

# Kept mounted elsewhere: cleared, it is the very same with all that is on it.
FAULT = scripted(
    "mount-gone",
    f"{SCRATCH}, which the settings declare, is not mounted, until the node reboots",
    inject=f"mkdir -p {_ASIDE}\nmount --bind {SCRATCH} {_ASIDE}\numount {SCRATCH}\n",
    clear=f"""
if findmnt --mountpoint {_ASIDE} > /dev/null; then
    findmnt --mountpoint {SCRATCH} > /dev/null || mount --bind {_ASIDE} {SCRATCH}
    umount {_ASIDE}
fi
""",
    caught_by=("mounts",),
)
