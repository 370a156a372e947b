"""Passwords for Ansible never lie on a disk."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine import handover as handover_module
from clusterctl.engine.handover import handed_over, remove_leftovers
from clusterctl.errors import ClusterctlError
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


@pytest.mark.parametrize("readers", [0, 1, 2])
def test_who_waits_for_what_a_killed_process_was_to_hand_over_finds_nothing(
    tmp_path: Path, readers: int
) -> None:
    path = tmp_path / "variables-1.json"
    os.mkfifo(path, 0o600)
    waiting = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys; print('up', flush=True); print(open(sys.argv[1]).read())",
                path,
            ],
            stdout=subprocess.PIPE,
        )
        for _ in range(readers)
    ]
    for reader in waiting:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"up\n"
        state = Path(f"/proc/{reader.pid}/stat")
        deadline = time.monotonic() + 10
        while state.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline
            time.sleep(0.01)  # the kernel tells nobody that an open() waits
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []
    try:
        assert [reader.communicate(timeout=10)[0] for reader in waiting] == [b"\n"] * readers
    finally:
        for reader in waiting:
            reader.kill()


def test_a_filesystem_without_fifos_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, _mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    monkeypatch.setattr(os, "mkfifo", refused)
    with pytest.raises(ClusterctlError, match="no FIFO can be made") as caught, handed_over(tmp_path, [b"a"]):
        pass
    assert caught.value.code == "cluster.state-not-writable"
    assert "local filesystem" in caught.value.hint


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


@pytest.mark.parametrize(
    "odd", ["another user's", "a newer version's", "gone", "all others'", "the state", "leftover stays"]
)
def test_what_cannot_be_read_or_removed_of_other_runs_stays_and_no_run_fails_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    directory = ClusterDirectory(tmp_path)
    store = RunStore(directory)
    other, ended = (store.finish(store.create("apply", []), 0, {}) for _ in range(2))
    passwords = directory.secrets / "passwords.1.ab.json"
    for path in (other.path("variables-1.json"), ended.path("variables-2.json"), passwords):
        path.write_text("{}")
    record = other.path("run.json")
    if odd == "a newer version's":
        record.write_text(json.dumps({**json.loads(record.read_text()), "new": 1}))
    if odd == "gone":
        record.unlink()
    denied = {
        "another user's": other.directory,
        "all others'": directory.runs,
        "the state": directory.state,
        "leftover stays": other.path("variables-1.json"),
    }

    def denying(real: Callable[..., Any]) -> Callable[..., Any]:
        def tried(path: Path, *arguments: Any, **options: Any) -> Any:
            if odd in denied and path.is_relative_to(denied[odd]):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, *arguments, **options)

        return tried

    with monkeypatch.context() as patched:
        for name in ("iterdir", "read_text", "unlink", "stat"):
            patched.setattr(Path, name, denying(getattr(Path, name)))
        sweep(store, directory)
    assert ended.path("variables-2.json").exists() is (odd in ("all others'", "the state"))
    assert other.path("variables-1.json").exists()
    assert passwords.exists() is (odd == "the state")


def test_a_run_that_cannot_be_created_is_still_an_error(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.state.write_text("a file")
    sweep(RunStore(directory), directory)
    with pytest.raises(ClusterctlError) as caught:
        RunStore(directory).create("preflight", [])
    assert caught.value.code == "cluster.state-not-writable"
