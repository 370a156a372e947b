"""Which jobs of Ansible still run on a host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import job_files

SOMEBODY = 12345
# The name of a process is free, too: of what breaks a line in it, the kernel writes an escape.
STATUS = "Name:\tUid:\\n\nUid:\t{real}\t0\t0\t0\n"


def process(proc: Path, number: int, real: int, namespace: str = "host") -> None:
    """One that bears the words of the job of its number."""
    entry = proc / str(number)
    (entry / "ns").mkdir(parents=True)
    words = [b"python3", b"/x/async_wrapper.py", f"j{number}".encode(), b""]
    (entry / "cmdline").write_bytes(b"\0".join(words))
    (entry / "status").write_text(STATUS.format(real=real), encoding="utf-8")
    (proc / namespace).touch()
    (entry / "ns/pid").symlink_to(proc / namespace)


def test_processes_of_others_and_of_containers_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody chooses the words of a process."""
    process(tmp_path, 1, 0)
    process(tmp_path, 2, SOMEBODY)
    process(tmp_path, 3, 0, "container")
    (tmp_path / "self").symlink_to(tmp_path / "1")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert job_files.living_jobs(tmp_path) == {"j1"}
    monkeypatch.setattr(os, "getuid", lambda: SOMEBODY)
    assert job_files.living_jobs(tmp_path) == {"j2"}


def test_nothing_is_read_of_others_that_they_can_have_last_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line lies in the memory of the process, its program on any file system."""
    process(tmp_path, 1, 0)
    process(tmp_path, 2, SOMEBODY)
    (tmp_path / "self").symlink_to(tmp_path / "1")
    read_bytes, stat = Path.read_bytes, Path.stat

    def reading(path: Path) -> bytes:
        assert path != tmp_path / "2/cmdline"
        return read_bytes(path)

    def looking(path: Path, **options: bool) -> os.stat_result:
        assert path != tmp_path / "2/exe"
        return stat(path, **options)

    monkeypatch.setattr(Path, "read_bytes", reading)
    monkeypatch.setattr(Path, "stat", looking)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert job_files.living_jobs(tmp_path) == {"j1"}
