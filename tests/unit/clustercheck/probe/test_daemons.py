"""Which processes are daemons of the node, whatever anybody calls his own."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustercheck.probe.daemons import find_daemons


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    process(tmp_path / "proc", "self", "python3", started=50_000)
    return tmp_path / "proc"


def process(
    proc: Path, pid: str, name: str, *, user: int = 0, namespace: str = "host", started: int = 2_000,
    mode: int = 0o755,
) -> None:  # fmt: skip
    (proc / pid / "ns").mkdir(parents=True)
    (proc / pid / "comm").write_text(f"{name}\n")
    (proc / pid / "status").write_text(f"Name:\t{name}\nUid:\t{user}\t0\t0\t0\n")
    (proc / pid / "stat").write_text(f"80 (a (name) S {'0 ' * 18}{started} 0 0")
    (proc / namespace).touch()
    (proc / pid / "ns/pid").symlink_to(proc / namespace)
    (proc / pid / "exe").touch(mode)
    (proc / pid / "exe").chmod(mode)


def test_the_oldest_of_roots_own_processes_is_the_daemon(proc: Path) -> None:
    process(proc, "80", "containerd", started=3_000)
    process(proc, "700", "containerd", started=2_000)
    process(proc, "90", "dockerd")
    assert find_daemons("containerd", str(proc.parent)) == ["700", "80"]


@pytest.mark.parametrize(
    "strange",
    [{"user": 1000}, {"namespace": "container"}, {"started": 50_010}, {"mode": 0o4755}],
    ids=["of-a-user", "of-a-container", "of-the-probe", "through-sudo"],
)
def test_a_process_of_that_name_that_is_not_roots_own_is_no_daemon(proc: Path, strange: dict) -> None:
    process(proc, "80", "nvlsm", **strange)
    assert find_daemons("nvlsm", str(proc.parent)) == []


def test_a_process_that_has_ended_is_no_daemon(proc: Path) -> None:
    (proc / "80").mkdir()
    (proc / "80/comm").write_text("nvlsm\n")
    assert find_daemons("nvlsm", str(proc.parent)) == []
