"""How clustercheck reaches nodes: a protocol, independent of SSH, Slurm and the lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Completed:
    """The result of a command on a node. ``exit_code`` is the command's own."""

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
    """The node was reached, but the command did not finish within its time limit."""


class Transport(Protocol):
    """Runs commands as root on named nodes. Safe to call from many threads at once."""

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        """Run one command. Secrets go through ``stdin``, never ``argv``.

        Raises NodeUnreachableError or NodeTimeoutError.
        """
        ...


@runtime_checkable
class AbortableTransport(Transport, Protocol):
    """A Transport that can end running commands. It stays usable, for cleaning up."""

    def abort(self) -> None:
        """End every running command; its `run` raises NodeUnreachableError immediately."""
        ...
