"""Contents that another process reads once, by a path, and that never lie on a disk."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

PREFIX = "variables-"


class Handover:
    """One FIFO of mode 0600 in ``directory`` for each content; whoever opens it gets the content, once.

    A process that is killed leaves an empty FIFO, and nothing of its content (Ansible refuses a memfd).
    """

    def __init__(self, directory: Path, contents: Sequence[bytes]) -> None:
        self.paths: list[Path] = []
        for content in contents:
            path = directory / f"{PREFIX}{secrets.token_hex(4)}.json"
            os.mkfifo(path, 0o600)
            self.paths.append(path)
            threading.Thread(target=_offer, args=(path, content), daemon=True).start()

    def withdraw(self) -> None:
        """Remove the FIFOs; of one that nobody has read the content is dropped."""
        while self.paths:
            path = self.paths.pop()
            with contextlib.suppress(FileNotFoundError):
                # A reader lets the thread that waits for one go on; it then finds nobody.
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
    """Remove what a process that was killed left in ``directory``."""
    for path in directory.glob(f"{PREFIX}*.json"):
        path.unlink(missing_ok=True)


def _offer(path: Path, content: bytes) -> None:
    # Never O_CREAT: where it was withdrawn already, that would make an ordinary file.
    with (
        contextlib.suppress(FileNotFoundError, BrokenPipeError),
        os.fdopen(os.open(path, os.O_WRONLY), "wb") as stream,
    ):
        stream.write(content)
