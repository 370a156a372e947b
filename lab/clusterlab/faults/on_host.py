"""What faults of a host share: two shell scripts, or a file that is laid over another.

Prefer what a reboot undoes (a mount, a file in `KEPT`, a stopped unit): a host that is off needs no clearing.
"""

from __future__ import annotations

from clusterlab.faults.base import FaultTarget, LabFault

# In memory: what lies here, and what is mounted from here, is gone after a reboot.
KEPT = "/run/faults"


def scripted(kind: str, summary: str, *, inject: str, clear: str, caught_by: tuple[str, ...]) -> LabFault:
    """A fault of two scripts that run as root. A host that is off is not cleared: it boots without."""

    def inject_it(target: FaultTarget) -> None:
        target.exec(["sh", "-ec", inject])

    def clear_it(target: FaultTarget) -> None:
        if target.is_running():
            target.exec(["sh", "-ec", clear])

    return LabFault(kind, summary, "node", inject_it, clear_it, caught_by=caught_by)


def covering(kind: str, summary: str, *, place: str, content: str, caught_by: tuple[str, ...]) -> LabFault:
    """A fault that lays a file over ``place``; the script ``content`` prints what is in it, with its mode."""
    mine = f"{KEPT}/{kind}"
    return scripted(
        kind,
        summary,
        inject=f"mkdir -p {KEPT}\ncp --attributes-only --preserve=mode {place} {mine}\n"
        f"{{ {content}\n}} > {mine}\nmount --bind {mine} {place}\nmount -o remount,bind,exec {place}\n",
        clear=f"if findmnt --mountpoint {place} > /dev/null; then umount {place}; fi\nrm -f {mine}\n",
        caught_by=caught_by,
    )
