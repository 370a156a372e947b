"""Temporary directories whose content nobody else can exchange."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clusterctl.cluster.trust import require_trusted_place


@contextmanager
def private_place(prefix: str) -> Iterator[Path]:
    """A new directory of ours alone, removed at the end.

    Raises ClusterctlError (``cluster.not-trusted``) where others could rename it, and put their own there: in
    a TMPDIR that others may write, and that is not sticky.
    """
    with tempfile.TemporaryDirectory(prefix=prefix) as place:
        yield require_trusted_place(Path(place), "Set TMPDIR to your own directory")
