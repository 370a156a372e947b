"""What is on each host now: read over SSH, judged by nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clustercheck.evidence.collect import PARTS_OF_STATUS, collect
from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.bounded import run_all
from clustercheck.launch.transport import Completed, Transport
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError, program_output
from clusterctl.engine.lease import from_record

PROBE_LIMIT_S = 20.0
HOST_LIMIT_S = 60.0
# One shell for what the probe does not look at: the driver that is installed, the training image.
INSTALLED = """
printf 'driver=%s\\n' "$(modinfo -F version nvidia 2>/dev/null | head -n 1)"
[ -n "$1" ] && docker image inspect "$1" >/dev/null 2>&1 && echo image=present
exit 0
"""
MAX_INSTALLED = 1000  # characters of what that shell prints
MAX_CELL = 200
UNKNOWN = "unknown"
LEASE = ("run", "what", "who", "where", "since")
MAX_BUSY = 1000
NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})+")


@dataclass(frozen=True)
class HostStatus:
    """Versions are empty where the thing is not there or could not be read. ``image`` is None if none
    is declared; ``unreachable`` and ``quarantined`` say why. ``lease`` is whose run changes the host now:
    ``run``, ``what``, ``who``, ``where``, ``since``, UNKNOWN where the host could not read it; it is part of
    ``busy``, too."""

    host: str
    os: str = ""
    kernel: str = ""
    gpus: int | None = None
    driver_loaded: str = ""
    driver_installed: str = ""
    fabric_manager: str = ""
    fabric_manager_state: str = ""
    toolkit: str = ""
    docker: str = ""
    containerd: str = ""
    image: bool | None = None
    busy: str = ""
    lease: Mapping[str, str] | None = None
    quarantined: str = ""
    unreachable: str = ""
    simulated: bool = False

    def as_record(self) -> dict[str, Any]:
        """For --json."""
        return {"type": "host", **asdict(self)}


def inspect(
    hosts: Sequence[str], transport: Transport, *, gpu_nodes: Sequence[str], image: str
) -> list[HostStatus]:
    """Look at hosts, all at once. ``image`` is what GPU nodes should hold, empty if none is declared."""
    options = {"parts": list(PARTS_OF_STATUS), "limit_s": PROBE_LIMIT_S}
    evidence = collect(hosts, transport, options=options, limit_s=HOST_LIMIT_S)
    answering = [name for name in hosts if not evidence[name].unreachable]
    calls = {
        name: lambda name=name: transport.run(
            name, ["sh", "-c", INSTALLED, "sh", image], timeout_s=PROBE_LIMIT_S
        )
        for name in answering
    }
    installed = {
        ended.name: ended.value
        for ended in run_all(calls, limit_s=HOST_LIMIT_S, parallel=64)
        if ended.value is not None
    }
    return [
        status_of(evidence[name], installed.get(name), wants_image=bool(image) and name in gpu_nodes)
        for name in hosts
    ]


def status_of(node: NodeEvidence, installed: Completed | None, *, wants_image: bool) -> HostStatus:
    """One host's status from what was read of it."""
    if node.unreachable:
        return HostStatus(node.name, unreachable=one_line(node.unreachable))
    host = _mapping(node, "host")
    release = host.get("os")
    unit = _mapping(node, "fabric_manager").get("unit")
    lines = installed.stdout[:MAX_INSTALLED].splitlines() if installed else []
    answer = dict(line.partition("=")[::2] for line in lines)
    return HostStatus(
        host=node.name,
        os=_short(release.get("PRETTY_NAME")) if isinstance(release, Mapping) else "",
        kernel=_short(host.get("kernel")),
        gpus=_gpus(node),
        driver_loaded=_short(_mapping(node, "module").get("version")),
        driver_installed=_short(answer.get("driver")),
        fabric_manager=_version(_mapping(node, "fabric_manager").get("version")),
        fabric_manager_state=_unit_state(unit),
        toolkit=_version(_mapping(node, "toolkit")),
        docker=_docker(node),
        containerd=_version(_mapping(node, "containerd")),
        image=(answer.get("image") == "present" if installed else None) if wants_image else None,
        busy=one_line(node.busy(), MAX_BUSY),
        lease=_lease(node),
        simulated=node.simulated,
    )


def _mapping(node: NodeEvidence, part: str) -> Mapping[str, Any]:
    try:
        return node.mapping(part)
    except CannotReadError:
        return {}


def _lease(node: NodeEvidence) -> Mapping[str, str] | None:
    found = _mapping(node, "busy").get("lease")
    if not isinstance(found, Mapping):
        return None
    # The probe has a word for what it could not read; no run has that name.
    lease = from_record({name: text for name, text in found.items() if text != UNKNOWN})
    return {name: _short(getattr(lease, name)) or UNKNOWN for name in LEASE}


def _short(value: Any) -> str:
    """What a node says in one cell: nothing where it is no text."""
    return one_line(value, MAX_CELL) if isinstance(value, str) else ""


def _gpus(node: NodeEvidence) -> int | None:
    try:
        return len(node.gpu_addresses())
    except CannotReadError:
        return None


def _unit_state(unit: Any) -> str:
    """A unit's state; nothing if there is no such unit."""
    if not isinstance(unit, Mapping) or unit.get("LoadState") != "loaded":
        return ""
    return _short(unit.get("ActiveState"))


def _version(record: Any) -> str:
    """The first dotted number in what a program printed."""
    try:
        found = NUMBER.search(program_output(record, "the program"))
    except CannotReadError:
        return ""
    return _short(found.group()) if found else ""


def _docker(node: NodeEvidence) -> str:
    """The engine's version, as its own daemon says: none where it does not answer."""
    try:
        text = program_output(_mapping(node, "docker"), "docker info")
    except CannotReadError:
        return ""
    found = re.search(r'"ServerVersion":"([^"]+)"', text)
    return _short(found.group(1)) if found else ""
