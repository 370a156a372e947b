"""Who may read the directory of a spool or a bundle keeps nobody from using it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.spool import LOCK, Spool

NOBODY = 65534
OTHERS_LOCK = """
import contextlib, fcntl, os, sys
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
for path in sys.argv[2:]:
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(path, os.O_RDONLY | os.O_NONBLOCK), fcntl.LOCK_EX)
print("ready", flush=True); sys.stdin.readline()
"""


@pytest.mark.needs("root")
@pytest.mark.parametrize("planted", ["nothing", "a pipe", "a lock"])
def test_no_other_user_keeps_a_spool_or_a_bundle_from_being_used(planted: str, tmp_path: Path) -> None:
    place = tmp_path / "spool"
    for path in (*tmp_path.parents, tmp_path):
        path.chmod(path.stat().st_mode | 0o001)
    if planted == "nothing":
        with Spool(place).held():
            pass
    else:
        place.mkdir()
        (os.mkfifo if planted == "a pipe" else Path.touch)(place / LOCK)
        (place / LOCK).chmod(0o666)
    place.chmod(0o755)
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", OTHERS_LOCK, str(NOBODY), str(place), str(place / LOCK)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with Spool(place).held(), pytest.raises(ClusterctlError) as refused, Spool(place).held():
            pass
        assert refused.value.code == "images.held"
    finally:
        child.communicate("\n", timeout=60)
