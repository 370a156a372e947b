# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Harbor's own database as a file: dumped and loaded by its container, within a time that is kept."""

from __future__ import annotations

import gzip
import shutil
from contextlib import suppress
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import Streamed, streaming
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_kept import whole_dump
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import (
    CHUNK,
    MAKER,
    open_below,
    replacing_below,
)

DUMP_S = 4 * 3600.0
LOAD_S = 4 * 3600.0
DUMP = ["docker", "exec", "harbor-db", "pg_dump", "-U", "postgres", "--clean", "--if-exists", "registry"]
PSQL = ["psql", "-U", "postgres", "-d", "registry", "-q", "-v", "ON_ERROR_STOP=1"]
LOAD = ["docker", "exec", "-i", "harbor-db", *PSQL, "-f", "-"]
ASK = ["docker", "exec", "harbor-db", *PSQL, "-c", "select 1"]
# Not psql's -1: that commits what it has when its input ends early, as it does when we are killed.
BEGIN, COMMIT = b"BEGIN;\n", b"\nCOMMIT;\n"


class DumpError(Exception):
    """The database was not dumped, or not loaded."""


def dump(target: Path, seconds: float = DUMP_S) -> None:
    """The database as SQL, packed. Raises DumpError where the dump is not whole after ``seconds``."""
    with (
        replacing_below(target.parent, target.name, 0o600, owner=MAKER, makers=MAKER) as stream,
        gzip.open(stream, "wb", compresslevel=3) as packed,
        streaming(DUMP, seconds, reads=True) as run,
    ):
        shutil.copyfileobj(run.pipe, packed, CHUNK)
    _require(run, seconds, "dumped", "could not be dumped")
    if not whole_dump(target):
        raise DumpError("the database's dump was interrupted")


def load(source: Path, seconds: float = LOAD_S) -> None:
    """Load a dump in one transaction: all of it, or nothing. Raises DumpError, OSError or EOFError."""
    with (
        open_below(source.parent, source.name) as stream,
        gzip.open(stream, "rb") as packed,
        streaming(LOAD, seconds, reads=False) as run,
        suppress(BrokenPipeError),  # it says why on standard error
    ):
        run.pipe.write(BEGIN)
        shutil.copyfileobj(packed, run.pipe, CHUNK)
        run.pipe.write(COMMIT)
    _require(run, seconds, "loaded", "does not take the dump")


def _require(run: Streamed, seconds: float, done: str, failed: str) -> None:
    if run.late:
        raise DumpError(f"the database was not {done} within {seconds / 3600:g} h")
    if run.code != 0:
        raise DumpError(f"the database {failed}: {run.words or f'exit code {run.code}'}")
