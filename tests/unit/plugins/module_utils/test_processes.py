"""Whose a process is, whatever it says of itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.processes import is_of


@pytest.mark.parametrize(
    ("user", "mode", "expected"), [(0, 0o755, True), (1000, 0o755, False), (0, 0o4755, False)]
)
def test_a_program_that_runs_as_root_for_others_is_not_roots(
    tmp_path: Path, user: int, mode: int, expected: bool
) -> None:
    """As sudo, which waits for a password as root, with words that anybody chose."""
    (tmp_path / "status").write_text(f"Name:\tx\nUid:\t{user}\t0\t0\t0\n")
    (tmp_path / "program").touch()
    (tmp_path / "program").chmod(mode)
    (tmp_path / "exe").symlink_to(tmp_path / "program")
    assert is_of(tmp_path, 0) is expected


@pytest.mark.parametrize(("namespace", "expected"), [("host", True), ("container", False)])
def test_root_of_a_container_is_no_root_of_this_host(tmp_path: Path, namespace: str, expected: bool) -> None:
    for name, inside in (("self", "host"), ("17", namespace)):
        (tmp_path / name / "ns").mkdir(parents=True)
        (tmp_path / name / "status").write_text("Uid:\t0\t0\t0\t0\n")
        (tmp_path / inside).touch()
        (tmp_path / name / "ns/pid").symlink_to(tmp_path / inside)
    assert is_of(tmp_path / "17", 0) is expected


def test_this_process_is_its_users() -> None:
    assert is_of(Path("/proc/self"), os.getuid())
    assert not is_of(Path("/proc/self"), os.getuid() + 1)
