"""Which jobs of Ansible still run on a host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import job_files


def process(proc: Path, number: int, job: str, program: Path) -> Path:
    entry = proc / str(number)
    entry.mkdir(parents=True)
    (entry / "cmdline").write_bytes(b"\0".join([b"python3", b"/x/async_wrapper.py", job.encode(), b""]))
    (entry / "exe").symlink_to(program)
    return entry


def test_processes_of_others_and_those_of_sudo_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody chooses the words of a process."""
    python, sudo = tmp_path / "python3", tmp_path / "sudo"
    for program, mode in ((python, 0o755), (sudo, 0o4755)):
        program.write_bytes(b"")
        program.chmod(mode)
    process(tmp_path / "proc", 1, "j1", python)
    process(tmp_path / "proc", 2, "j2", sudo)
    assert job_files.living_jobs(tmp_path / "proc") == {"j1"}
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert job_files.living_jobs(tmp_path / "proc") == set()
