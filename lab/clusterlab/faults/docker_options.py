"""An option in Docker's configuration that harms jobs, as by a forgotten line: a row each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from clusterlab.faults.base import FaultTarget, LabFault

PLACE = "/etc/docker/daemon.json"
FILES = 1024
CGROUPS = "native.cgroupdriver="
# Docker has read our line where it was started since; systemd refuses a unit that is started too often.
_RESTART = "systemctl reset-failed docker.service\nsystemctl try-restart docker.service"


def configured(
    kind: str, summary: str, *, option: str, change: Callable[[Any], Any], caught_by: tuple[str, ...]
) -> LabFault:
    """A fault that changes one option; ``change`` makes its value from the old one, None if there is none.

    Cleared, the option is as it was, unless it was changed since: then it is kept. All others are untouched.
    """

    def inject(target: FaultTarget) -> None:
        """Raises ClusterctlError where Docker has no configuration."""
        options = _read(target)
        before = options.get(option)
        if json.dumps(before) == target.undo.get("after"):
            return
        options[option] = change(before)
        target.undo.update(before=json.dumps(before), after=json.dumps(options[option]))
        _write(target, options)

    def clear(target: FaultTarget) -> None:
        if not target.is_running() or "after" not in target.undo:
            return
        options = _read(target)
        if json.dumps(options.get(option)) != target.undo["after"]:
            return
        options[option] = json.loads(target.undo["before"])
        if options[option] is None:
            del options[option]
        _write(target, options)

    return LabFault(kind, summary, "node", inject, clear, caught_by=caught_by)


def _read(target: FaultTarget) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(target.exec(["cat", PLACE]).stdout)
    return found


def _write(target: FaultTarget, options: dict[str, Any]) -> None:
    """In the form of the roles' own, so that what is cleared is no change to them; and let Docker read it."""
    text = json.dumps(options, indent=2, ensure_ascii=False) + "\n"
    target.exec(["sh", "-ec", f"cat > {PLACE}"], stdin=text)
    target.exec(["sh", "-ec", _RESTART])


def _limit_files(ulimits: Any) -> dict[str, Any]:
    return {**(ulimits or {}), "nofile": {"Name": "nofile", "Soft": FILES, "Hard": FILES}}


def _by_systemd(options: Any) -> list[str]:
    return [*(each for each in options or () if not each.startswith(CGROUPS)), f"{CGROUPS}systemd"]


FAULTS = (
    configured(
        "files-limited",
        f"containers may open {FILES} files",
        option="default-ulimits",
        change=_limit_files,
        caught_by=("limits",),
    ),
    # As Docker chooses by itself on a host with systemd.
    configured(
        "cgroup-driver-systemd",
        "systemd manages the devices of containers: those that get GPUs by NVIDIA's hook lose them at its "
        "next reload",
        option="exec-opts",
        change=_by_systemd,
        caught_by=("container-reload",),
    ),
)
