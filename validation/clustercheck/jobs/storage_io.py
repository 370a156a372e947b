"""fio on declared file systems: writes files, reads them back and compares the checksum of every block.

Only in a directory of this node's own that it makes there and removes, never more than the given size, and
only where ten times as much is free. Reading back goes past the page cache where the file system can do that
(O_DIRECT).
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import nccl_tests
else:  # on a node they are single files, not a package
    nccl_tests = importlib.import_module(f"{__package__}.nccl_tests" if __package__ else "nccl_tests")

PROGRAM = "fio"
FILES = 4
BLOCK = "1M"
ROOM = 10  # times what is written must be free
PREFIX = ".clusterctl-storage-"

join = nccl_tests.join


def make_command(size_bytes: int, output: Path, *, direct: bool) -> list[str]:
    """Files in the working directory, verified once they are written; the first bad block ends it."""
    return [
        PROGRAM, "--name=clusterctl", "--directory=.", "--rw=write", f"--bs={BLOCK}",
        f"--size={size_bytes // FILES}", f"--numjobs={FILES}", "--group_reporting", "--ioengine=psync",
        "--end_fsync=1", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", f"--direct={int(direct)}",
        "--output-format=json", f"--output={output}",
    ]  # fmt: skip


def explain_no_room(path: Path, size_bytes: int) -> str:
    """Why nothing is written there; empty if it may be."""
    if not path.is_dir():
        return "it is no directory"
    room = os.statvfs(path)
    free = room.f_frsize * room.f_bavail
    return (
        "" if free >= ROOM * size_bytes else f"only {free} bytes are free, {ROOM * size_bytes} are asked for"
    )


def measure_place(
    world: nccl_tests.MeetingWorld, path: Path, name: str, size_bytes: int, output: Path
) -> dict[str, Any]:
    """What fio said of one file system, or the reason (``unable``) why it did not run."""
    own = path / f"{PREFIX}{name}"
    try:
        if why := explain_no_room(path, size_bytes):
            return {"unable": why}
        if own.is_dir() and not own.is_symlink():
            shutil.rmtree(own)  # of an earlier run that was killed
        own.mkdir(mode=0o700)
    except OSError as error:
        return {"unable": f"{type(error).__name__}: {error.strerror}"}
    try:
        for direct in (True, False):
            words = make_command(size_bytes, output, direct=direct)
            output.unlink(missing_ok=True)
            world.set_phase(f"{PROGRAM} in {path}")
            found = nccl_tests.run_program(world, words, output, directory=own)
            if found["exit_code"] in (0, None) or "support direct=1" not in found["text"]:
                break
        return {**found, "unable": "", "direct": direct}
    finally:
        shutil.rmtree(own, ignore_errors=True)


def run(world: nccl_tests.MeetingWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: places (by rank: name of the node; its paths, each with where it is here), size_bytes,
    limit_each_s, limit_s. ``without`` is why fio cannot run.
    """
    verdict: dict[str, Any] = {"ok": True, "because": "", "without": "", "places": {}}
    if not shutil.which(PROGRAM):
        return {**verdict, "without": "the image has no fio"}
    name, places = arguments["places"][world.rank]
    size_bytes = int(arguments["size_bytes"])
    world.wait("starting together")
    for number, (path, here) in enumerate(_in_order(places)):
        output = Path(f"storage-{number}.json").absolute()
        verdict["places"][path] = measure_place(world, Path(here), str(name), size_bytes, output)
    return verdict


def _in_order(places: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """The same order on every node: shared storage is met by all of them at once."""
    return sorted(places.items())
