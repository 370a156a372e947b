"""What a fault is, and what it may touch."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab import docker, hardware

Scope = Literal["node", "gpu", "link"]


@dataclass
class FaultTarget:
    """One host of the lab, as a fault sees it.

    ``gpu`` is an index, ``peer`` another host's name, ``peer_address`` its address. ``undo`` is kept from
    inject to clear: what was there before goes into it.
    """

    node: str
    container: str
    hardware_file: Path
    gpu: int | None = None
    peer: str | None = None
    peer_address: str | None = None
    undo: dict[str, str] = field(default_factory=dict)

    def exec(
        self, argv: Sequence[str], stdin: str = "", timeout_s: float = 60, *, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``argv`` as root on the host. Raises ClusterctlError where it fails and ``check``."""
        return docker.execute(self.container, argv, stdin=stdin, timeout_s=timeout_s, check=check)

    def edit_hardware(self, edit: Callable[[hardware.Hardware], hardware.Hardware]) -> None:
        """Change the host's hardware.json, and let its firmware look again where the host runs."""
        hardware.save(edit(hardware.load(self.hardware_file)), self.hardware_file)
        if self.is_running():
            self.exec(["clusterlab-hardware", "refresh"])

    def is_running(self) -> bool:
        """Whether the host runs."""
        return bool(docker.inspect("container", [self.container])[0]["State"]["Running"])

    def nothing_to_break(self, why: str, hint: str) -> ClusterctlError:
        """The error where the host does not have what the fault is about (``lab.nothing-to-break``)."""
        return ClusterctlError(
            why, code="lab.nothing-to-break", where=self.node, hint=hint, exit_code=EXIT_USAGE
        )


@dataclass(frozen=True)
class LabFault:
    """One kind of fault. ``scope`` says what it concerns: a node, a gpu, or a link to a peer.

    ``caught_by`` names the checks of a validation that must fail of it, or warn where that is its
    ``verdict``. Those of single parts are all that do; of group checks others may fail too. ``suite`` is the
    smallest suite that has them. ``hardware`` is what ``lab up --hardware`` must be; empty where its default
    will do.
    """

    kind: str
    summary: str
    scope: Scope
    inject: Callable[[FaultTarget], None]
    clear: Callable[[FaultTarget], None]
    caught_by: tuple[str, ...] = field(kw_only=True)
    suite: str = field(default="quick", kw_only=True)
    verdict: Literal["fail", "warning"] = field(default="fail", kw_only=True)
    hardware: str = field(default="", kw_only=True)
