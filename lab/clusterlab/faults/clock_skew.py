"""The clock is ten minutes ahead for `date` and for what Python programs on the node take for the time.

A container has no clock of its own, and the machine's must not be moved: so these are told a wrong time,
which is what the probe asks. The kernel, the times of files, and what Go and C programs read stay right.
"""

from __future__ import annotations

from clusterctl.errors import ClusterctlError
from clusterlab.faults.base import FaultTarget, LabFault

AHEAD_S = 600
# Before the real one on every PATH; a reboot leaves it there.
DATE = "/usr/local/bin/date"
_DATE = f"""#!/bin/sh
# A clock that is wrong: put here to be found.
LD_PRELOAD=$(ls /usr/lib/*/faketime/libfaketime.so.1) FAKETIME=+{AHEAD_S}s exec /usr/bin/date "$@"
"""
_IS_OURS = f"grep -qs FAKETIME {DATE}"
# Python reads every .pth file when it starts, and runs a line that starts with import.
_PYTHON = (
    f"import time; time.time = lambda right=time.time: right() + {AHEAD_S}; "
    f"time.time_ns = lambda right=time.time_ns: right() + {AHEAD_S} * 10**9\n"
)
_PTH = "$(python3 -c 'import site; print(site.getsitepackages()[0])')/wrong-clock.pth"
_INJECT = f"""
cat > {DATE}
chmod 755 {DATE}
path={_PTH}
mkdir -p "$(dirname "$path")"
cat > "$path" <<'END'
{_PYTHON}END
"""


def inject(target: FaultTarget) -> None:
    """Raises ClusterctlError (``lab.program-taken``) if there is a `date` already."""
    free = target.exec(["sh", "-c", f"[ ! -e {DATE} ] || {_IS_OURS}"], check=False)
    if free.returncode != 0:
        raise ClusterctlError(
            f"there is a {DATE} already, which would be lost",
            code="lab.program-taken",
            where=target.node,
            hint="Move it away first.",
        )
    target.exec(["sh", "-ec", _INJECT], stdin=_DATE)


def clear(target: FaultTarget) -> None:
    """The right time again; after a reboot too, which the fault survives."""
    if target.is_running():
        target.exec(["sh", "-ec", f'path={_PTH}; rm -f "$path"; if {_IS_OURS}; then rm {DATE}; fi'])


FAULTS = (
    LabFault(
        "clock-skew",
        "date and Python programs on the node see a clock ten minutes ahead",
        "node",
        inject,
        clear,
        caught_by=("clock",),
    ),
)
