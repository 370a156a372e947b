"""Contents that another process reads once, by a path, and that never lie on a disk."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from clusterctl.errors import ClusterctlError

PREFIX = "variables-"


class Handover:
    """One FIFO of mode 0600 in ``directory`` for each content; whoever opens it gets the content, once.

    A process that is killed leaves an empty FIFO, and nothing of its content (Ansible refuses a memfd).
    """

    def __init__(self, directory: Path, contents: Sequence[bytes]) -> None:
        self.paths: list[Path] = []
        for content in contents:
            path = directory / f"{PREFIX}{secrets.token_hex(4)}.json"
            _make_fifo(path)
            self.paths.append(path)
            threading.Thread(target=_offer, args=(path, content), daemon=True).start()

    def withdraw(self) -> None:
        """Remove the FIFOs; of one that nobody has read the content is dropped."""
        while self.paths:
            path = self.paths.pop()
            with contextlib.suppress(FileNotFoundError):
                # A reader lets the thread that waits for one continue; it then finds nobody.
                reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                path.unlink()
                os.close(reader)


@contextlib.contextmanager
def handed_over(directory: Path, contents: Sequence[bytes]) -> Iterator[Handover]:
    """A Handover that is withdrawn when the block ends."""
    handover = Handover(directory, contents)
    try:
        yield handover
    finally:
        handover.withdraw()


def remove_leftovers(directory: Path) -> None:
    """Remove what a process that was killed left in ``directory``; who waits to read it gets nothing."""
    for path in directory.glob(f"{PREFIX}*.json"):
        with contextlib.suppress(FileNotFoundError):
            # Opened for both, which never waits: who waits to read continues, and finds the end at our close.
            both = os.open(path, os.O_RDWR | os.O_NONBLOCK) if path.is_fifo() else None
            path.unlink()
            if both is not None:
                os.close(both)


def _make_fifo(path: Path) -> None:
    try:
        os.mkfifo(path, 0o600)
    except OSError as error:
        raise ClusterctlError(
            f"no FIFO can be made in the run's directory: {error.strerror}",
            code="cluster.state-not-writable",
            where=str(path.parent),
            hint="Keep the cluster directory on a local filesystem with space left; not all have FIFOs.",
        ) from error


def _offer(path: Path, content: bytes) -> None:
    # Never O_CREAT: where it was withdrawn already, that would make an ordinary file.
    with (
        contextlib.suppress(FileNotFoundError, BrokenPipeError),
        os.fdopen(os.open(path, os.O_WRONLY), "wb") as stream,
    ):
        stream.write(content)
