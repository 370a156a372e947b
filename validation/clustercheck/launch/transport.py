"""How clustercheck reaches nodes: a protocol, so that it needs to know nothing of SSH, Slurm or the lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Completed:
    """What a command on a node came back with. ``exit_code`` is the command's own."""

    exit_code: int
    stdout: str
    stderr: str
    duration_s: float = 0.0


class NodeUnreachableError(Exception):
    """The node did not answer (no route, refused, login timed out). Not an exit code of the command."""

    def __init__(self, node: str, because: str) -> None:
        super().__init__(f"{node}: {because}")
        self.node = node
        self.because = because


class NodeTimeoutError(NodeUnreachableError):
    """The node was reached, and the command did not end within its time."""


class Transport(Protocol):
    """Runs commands as root on named nodes. Safe to call from many threads at once."""

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        """Run one command to its end. Secrets go through ``stdin``, never ``argv``.

        Raises NodeUnreachableError or NodeTimeoutError.
        """
        ...


@runtime_checkable
class AbortableTransport(Transport, Protocol):
    """A Transport that can end the commands in flight. It stays usable: cleaning up comes after."""

    def abort(self) -> None:
        """End every command that runs now; its `run` raises NodeUnreachableError, at once."""
        ...
