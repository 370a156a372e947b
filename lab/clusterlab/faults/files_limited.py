"""Containers may open 1024 files, as by a forgotten line in Docker's configuration."""

from __future__ import annotations

from clusterlab.faults.base import FaultTarget, LabFault

PLACE = "/etc/docker/daemon.json"
FILES = 1024
_INJECT = f"""
import json, pathlib
place = pathlib.Path("{PLACE}")
options = json.loads(place.read_text())
options.setdefault("default-ulimits", {{}})["nofile"] = {{"Name": "nofile", "Soft": {FILES}, "Hard": {FILES}}}
place.write_text(json.dumps(options, indent=4) + "\\n")
"""
# Docker has read our line where it was started since.
_RESTART = "systemctl try-restart docker.service"


def inject(target: FaultTarget) -> None:
    """Write the line, and let Docker read it. Raises ClusterctlError where Docker has no configuration."""
    target.undo["before"] = target.exec(["cat", PLACE]).stdout.decode()
    target.exec(["python3", "-c", _INJECT])
    target.undo["after"] = target.exec(["cat", PLACE]).stdout.decode()
    target.exec(["sh", "-ec", _RESTART])


def clear(target: FaultTarget) -> None:
    """Restore the file, unless it was changed since: then it is kept."""
    if not target.is_running() or "after" not in target.undo:
        return
    if target.exec(["cat", PLACE], check=False).stdout.decode() == target.undo["after"]:
        target.exec(["sh", "-ec", f"cat > {PLACE}"], stdin=target.undo["before"])
        target.exec(["sh", "-ec", _RESTART])


FAULTS = (
    LabFault(
        "files-limited", f"containers may open {FILES} files", "node", inject, clear, caught_by=("limits",)
    ),
)
