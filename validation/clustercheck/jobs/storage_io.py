"""fio on declared file systems: writes files, reads them back and compares the checksum of every block.

Only in a directory of this node's own that it makes there and removes, never more than the given size, and
only where ten times as much is free. Who else writes to that file system can exchange any name there, so fio
opens the files that were made here by their descriptors. Reading back goes past the page cache where the file
system can do that (O_DIRECT).
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import nccl_tests, scratch
else:  # on a node they are single files, not a package
    nccl_tests, scratch = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("nccl_tests", "scratch")
    )

PROGRAM = "fio"
FILES = 4
BLOCK = "1M"
ROOM = 10  # times what is written must be free
PREFIX = ".clusterctl-storage-"
NAMES = r"clusterctl\.\d"  # of the files in it

join = nccl_tests.join


def make_command(size_bytes: int, output: Path, files: Sequence[int], *, direct: bool) -> list[str]:
    """Open files, each of a process, verified once they are written; the first bad block ends it."""
    words = [
        PROGRAM, "--rw=write", f"--bs={BLOCK}", f"--size={size_bytes // FILES}", "--group_reporting",
        "--ioengine=psync", "--end_fsync=1", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1",
        f"--direct={int(direct)}", "--output-format=json", f"--output={output}",
    ]  # fmt: skip
    for file in files:
        words += ["--name=clusterctl", f"--filename=/proc/self/fd/{file}"]
    return words


def make_files(own: scratch.Scratch, size_bytes: int) -> list[int]:
    """New files in that directory, open. Raises OSError.

    They have their size, as fio removes a shorter file and makes another.
    """
    files: list[int] = []
    try:
        for number in range(FILES):
            files.append(own.create(f"clusterctl.{number}"))
            os.ftruncate(files[-1], size_bytes // FILES)
    except OSError:
        close_files(files)
        raise
    return files


def close_files(files: Sequence[int]) -> None:
    """Close them."""
    for file in files:
        os.close(file)


def explain_no_room(path: Path, size_bytes: int) -> str:
    """Why nothing is written there; empty if it may be. Raises OSError."""
    room = os.statvfs(path)
    free = room.f_frsize * room.f_bavail
    return (
        "" if free >= ROOM * size_bytes else f"only {free} bytes are free, {ROOM * size_bytes} are asked for"
    )


def measure_place(
    world: nccl_tests.MeetingWorld, path: Path, name: str, size_bytes: int, output: Path
) -> dict[str, Any]:
    """What fio said of one file system, or the reason (``unable``) why it did not run."""
    with ExitStack() as stack:
        try:
            own = stack.enter_context(scratch.make_scratch(path, f"{PREFIX}{name}", NAMES))
            if why := explain_no_room(path, size_bytes):
                return {"unable": why}
            files = make_files(own, size_bytes)
        except OSError as error:
            return {"unable": f"{type(error).__name__}: {error.strerror}"}
        stack.callback(close_files, files)
        for direct in (True, False):
            words = make_command(size_bytes, output, files, direct=direct)
            output.unlink(missing_ok=True)
            world.set_phase(f"{PROGRAM} in {path}")
            found = nccl_tests.run_program(world, words, output, files=files)
            if found["exit_code"] in (0, None) or "support direct=1" not in found["text"]:
                break
        return {**found, "unable": "", "direct": direct}


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
