"""What processes may have, read from a made-up /proc and from Docker's configuration."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Result, Verdict
from clustercheck.probe.limits import limits, may_lock, of_process
from clustercheck.samples import sample

# As Linux writes it; the values are those of Docker's service on Debian 12.
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units     
Max core file size        unlimited            unlimited            bytes     
Max processes             unlimited            unlimited            processes 
Max open files            1048576              1048576              files     
Max locked memory         8388608              8388608              bytes     
Max realtime timeout      unlimited            unlimited            us        
"""  # noqa: W291 - as it is written
OF_DOCKER = {"core": [-1, -1], "nofile": [1048576, 1048576], "memlock": [8388608, 8388608]}


def process(root: Path, pid: int, name: str, said: str = LIMITS, *, user: int = 0) -> None:
    directory = root / f"proc/{pid}"
    directory.mkdir(parents=True)
    (directory / "comm").write_text(name + "\n")
    (directory / "limits").write_text(said)
    (directory / "status").write_text(f"Name:\t{name}\nUid:\t{user}\t0\t0\t0\n")


def test_containers_have_the_limits_of_who_starts_them(tmp_path: Path) -> None:
    process(tmp_path, 1, "systemd", LIMITS.replace("8388608", "65536"))
    process(tmp_path, 70, "dockerd", LIMITS.replace("8388608", "131072"))
    assert limits(str(tmp_path))["containers"] == {**OF_DOCKER, "memlock": [131072, 131072]}
    process(tmp_path, 80, "containerd")
    assert limits(str(tmp_path))["containers"] == OF_DOCKER


def test_a_program_that_the_probe_itself_started_starts_no_containers(tmp_path: Path) -> None:
    """`containerd --version` has that name, too, and the limits of the log-in."""
    process(tmp_path, 80, "containerd")
    process(tmp_path, 900, "containerd", LIMITS.replace("unlimited", "0"))
    for pid, ticks in ((80, 2_000), ("self", 50_000), (900, 50_010)):
        (tmp_path / f"proc/{pid}").mkdir(exist_ok=True)
        stat = f"80 (a (name) S {'0 ' * 18}{ticks} 0 0"
        (tmp_path / f"proc/{pid}/stat").write_text(stat)
    assert limits(str(tmp_path))["containers"] == OF_DOCKER


def test_whoever_names_a_process_as_the_daemon_says_nothing_of_containers(tmp_path: Path) -> None:
    process(tmp_path, 80, "containerd")
    process(tmp_path, 90, "containerd", LIMITS.replace("1048576", "64"), user=1000)
    process(tmp_path, 91, "dockerd", LIMITS.replace("1048576", "64"), user=1000)
    assert limits(str(tmp_path))["containers"] == OF_DOCKER


def test_what_docker_gives_by_default_comes_before(tmp_path: Path) -> None:
    process(tmp_path, 80, "containerd")
    (tmp_path / "etc/docker").mkdir(parents=True)
    asked = {"default-ulimits": {"memlock": {"Name": "memlock", "Soft": -1, "Hard": -1}}}
    (tmp_path / "etc/docker/daemon.json").write_text(json.dumps(asked))
    assert limits(str(tmp_path))["containers"] == {**OF_DOCKER, "memlock": [-1, -1]}


@pytest.mark.parametrize("text", ["{", "[]", '{"default-ulimits": 3}', '{"default-ulimits": {"core": []}}'])
def test_a_configuration_that_cannot_be_read_changes_no_limit(tmp_path: Path, text: str) -> None:
    process(tmp_path, 80, "containerd")
    (tmp_path / "etc/docker").mkdir(parents=True)
    (tmp_path / "etc/docker/daemon.json").write_text(text)
    assert limits(str(tmp_path))["containers"] == OF_DOCKER


def test_without_docker_only_the_log_in_is_known(tmp_path: Path) -> None:
    found = limits(str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert found["containers"] is None
    assert found["log-in"]["nofile"] == [soft, hard]


@pytest.mark.parametrize(
    "text",
    ["", "Max open files", "Max open files  many  few files", "Max open files  \u00b9 \u00b2", LIMITS[:90]],
)
def test_limits_that_cannot_be_read_are_left_out(text: str) -> None:
    assert "nofile" not in of_process(text)


def judged(change: Any) -> Result:
    return evaluate(BY_ID["limits"], seeding.edit("gpu01", change)(sample.healthy(1)))[0]


def locked(value: int, *, rdma: bool) -> Any:
    def change(raw: seeding.Raw) -> None:
        raw["rdma"] = [{"device": "mlx5_0", "port": "1"}] if rdma else []
        raw["limits"]["containers"]["memlock"] = [value, value]

    return change


@pytest.mark.parametrize(
    ("value", "rdma", "verdict"),
    [
        (8 << 20, False, Verdict.PASS),  # nothing pins memory if there is no adapter for it
        (8 << 20, True, Verdict.FAIL),
        (-1, True, Verdict.PASS),
        (1_000_000_000 * 1024, True, Verdict.PASS),  # all of the memory is as good as no limit
        (1_000_000_000 * 1024 - 1, True, Verdict.FAIL),
        (0, True, Verdict.FAIL),
    ],
)
def test_locked_memory_matters_where_there_is_rdma(value: int, rdma: bool, verdict: Verdict) -> None:
    result = judged(locked(value, rdma=rdma))
    assert result.verdict is verdict
    assert verdict is Verdict.PASS or "containers, by default" in result.because


@pytest.mark.parametrize(
    ("may_lock", "verdict"), [(True, Verdict.PASS), (False, Verdict.FAIL), (None, Verdict.FAIL)]
)
def test_a_log_in_that_may_lock_memory_is_not_bound_by_its_limit(
    may_lock: bool | None, verdict: Verdict
) -> None:
    def change(raw: seeding.Raw) -> None:
        raw["rdma"] = [{"device": "mlx5_0", "port": "1"}]
        raw["limits"]["log-in"]["memlock"] = [8 << 20, 8 << 20]  # what systemd gives, root too
        raw["limits"]["may_lock"] = may_lock

    assert judged(change).verdict is verdict


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("Name:\tpython3\nCapEff:\t000001ffffffffff\n", True),
        ("CapEff:\t00000000a80425fb\n", False),  # root of a container as Docker starts it
        ("CapEff:\t0000000000000000\n", False),
        ("CapEff:\tmany\n", False),
        ("", False),
    ],
)
def test_who_may_lock_memory_is_read_from_its_capabilities(
    tmp_path: Path, status: str, expected: bool
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text(status)
    assert may_lock(str(tmp_path)) is expected


def test_the_hard_limit_of_files_counts_since_nccl_raises_the_soft_one() -> None:
    soft = judged(lambda raw: raw["limits"]["log-in"].update(nofile=[256, 4096]))
    hard = judged(lambda raw: raw["limits"]["log-in"].update(nofile=[256, 4095]))
    assert (soft.verdict, hard.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert "a log-in" in hard.because
