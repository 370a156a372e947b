"""A program's output on disk, up to a limit and without what acts on a terminal.

What nodes say may be without end, and a disk is not; and whoever reads the file does so by `cat`.
"""

from __future__ import annotations

import codecs
import os
from pathlib import Path

from clustercheck.parse.plain_text import plain_text
from clusterctl.cluster.directory import state_access
from clusterctl.cluster.state_form import open_plain

# An apply of a thousand nodes prints some ten MiB.
MAX_LOG_BYTES = 256 << 20
# The end of what comes beyond it is kept, too: that is where a program says how it ended.
TAIL_BYTES = 64 << 10


class BoundedLog:
    """Appends to a file of mode 0600 up to a size; the end of the rest follows when it is closed, after a
    line that says how much is left out. Who prints does not fail by a disk that is full: it gets no more.

    A context manager. Raises ClusterctlError (``cluster.state-not-writable``) where it cannot be opened.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_LOG_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        with state_access(path):
            self._descriptor = open_plain(path, os.O_WRONLY | os.O_APPEND)
        self._max_bytes, self._tail_bytes = max_bytes, tail_bytes
        self._left = max(0, max_bytes - os.fstat(self._descriptor).st_size)
        self._left_out = 0
        self._full = False
        self._tail = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __enter__(self) -> BoundedLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, piece: bytes) -> None:
        """Append what fits."""
        self._write(self._decoder.decode(piece))

    def _write(self, text: str) -> None:
        piece = plain_text(text).encode()
        fitting, rest = piece[: self._left], piece[self._left :]
        self._left -= len(fitting)
        self._append(fitting)
        self._tail += rest
        if (surplus := len(self._tail) - self._tail_bytes) > 0:
            self._left_out += surplus
            del self._tail[:surplus]

    def close(self) -> None:
        """Append the end of what did not fit."""
        try:
            self._write(self._decoder.decode(b"", final=True))
            if self._left_out:
                limit = f"{self._max_bytes >> 20} MiB"
                self._append(
                    f"\n# {self._left_out} bytes are left out here: the log is longer than {limit}\n".encode()
                )
            self._append(self._tail)
        finally:
            os.close(self._descriptor)

    def _append(self, content: bytes | bytearray) -> None:
        view = memoryview(content)
        while view and not self._full:
            try:
                view = view[os.write(self._descriptor, view) :]
            except OSError:
                self._full = True
