"""Passwords for Ansible never lie on a disk."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine import handover as handover_module
from clusterctl.engine.handover import handed_over, remove_leftovers
from clusterctl.rollout.opening import sweep
from clusterctl.runs.store import RunStore


@pytest.mark.parametrize("size", [3, 500_000])
def test_each_content_is_read_once_and_lies_on_no_disk(tmp_path: Path, size: int) -> None:
    with handed_over(tmp_path, [b"a" * size, b"b"]) as handover:
        first, second = handover.paths
        for path in (first, second):
            assert stat.S_ISFIFO(path.stat().st_mode)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (second.read_bytes(), first.read_bytes()) == (b"b", b"a" * size)
        handover.withdraw()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wait_s", [0.0, 0.2])
@pytest.mark.parametrize("size", [3, 500_000])
def test_what_nobody_reads_is_dropped_and_nothing_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, wait_s: float
) -> None:
    before = threading.active_count()
    offer = handover_module._offer

    def late(path: Path, content: bytes) -> None:
        time.sleep(wait_s)
        offer(path, content)

    monkeypatch.setattr(handover_module, "_offer", late)
    with handed_over(tmp_path, [b"a" * size]):
        pass
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.name.endswith("(late)"):
            thread.join(10)
            assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() <= before


def test_a_process_that_is_killed_leaves_no_content(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom clusterctl.engine.handover import Handover\n"
        "Handover(Path(sys.argv[1]), [b's3cret']); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert stat.S_ISFIFO(left.stat().st_mode)
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_killed_runs_go_when_the_next_begins(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    store = RunStore(directory)
    ended, running = store.create("apply", []), store.create("apply", [])
    store.finish(ended, 0, {})
    kept, gone = running.path("variables-1.json"), ended.path("variables-2.json")
    passwords = directory.secrets / "passwords.1.ab.json"
    for path in (kept, gone, passwords):
        path.write_text("{}")
    sweep(store, directory)
    assert (kept.exists(), gone.exists(), passwords.exists()) == (True, False, False)
