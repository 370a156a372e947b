"""A lab of three nodes for the lab tests of one pytest process, and what tests do with it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from lanes import LABS

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = Path(sys.executable).with_name("clusterctl")
# Set to anything, the lab stays up after the tests, and the next run starts with it.
KEEP_VARIABLE = "CLUSTERCTL_KEEP_TEST_LAB"
# The lane of script/test that this process is: each lane has a lab of its own.
LAB_VARIABLE = "CLUSTERCTL_TEST_LAB"
# Its lab is the one that script/demo applied: a second one would cost minutes.
LANE_OF_THE_DEMO = "site"
# A file that script/test has locked until all other lanes have ended.
QUIET_VARIABLE = "CLUSTERCTL_TEST_QUIET"
COMMAND_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order of their lane; then what judges bandwidth, the good cluster after the faults."""
    order = [name for names in LABS.values() for name in names]

    def place(item: pytest.Item) -> tuple[bool, int]:
        quiet = item.get_closest_marker("quiet") is not None
        number = order.index(item.path.stem) + 1 if item.path.stem in order else 0
        return quiet, -number if quiet else number

    items.sort(key=place)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before the clock of a test's time limit starts
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What judges bandwidth waits for the end of the other lanes, if this is one of several."""
    quiet = os.environ.get(QUIET_VARIABLE)
    if quiet and item.get_closest_marker("quiet"):
        with Path(quiet).open() as stream:
            fcntl.flock(stream, fcntl.LOCK_SH)
    return (yield)


@dataclass(frozen=True)
class RunningLab:
    """A lab that is up."""

    directory: Path

    @property
    def cluster(self) -> Path:
        """Its cluster directory."""
        return self.directory / "cluster"

    def clusterctl(
        self, *arguments: str, at_cluster: bool = True, timeout: float = COMMAND_S
    ) -> subprocess.CompletedProcess[str]:
        """``clusterctl -C CLUSTER ARGUMENTS``, or without -C; ``lab`` is told the lab's directory."""
        if arguments[:1] == ("lab",):
            position = 3 if arguments[1] == "fault" else 2
            arguments = (*arguments[:position], "--dir", str(self.directory), *arguments[position:])
        cluster = ("-C", str(self.cluster)) if at_cluster else ()
        return run_clusterctl(*cluster, *arguments, timeout_s=timeout)

    def done(self, *arguments: str, timeout: float = COMMAND_S) -> str:
        """The same, on the cluster; fails the test unless it ends with 0. Returns standard output."""
        return must_be_good(self.clusterctl(*arguments, timeout=timeout))

    def lab(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """``clusterctl lab ARGUMENTS`` of this lab; with ``check``, fails the test unless it ends with 0."""
        done = self.clusterctl("lab", *arguments, at_cluster=False)
        if check:
            must_be_good(done)
        return done

    def ssh(self, node: str, command: str, *, check: bool = True) -> str:
        """What ``command`` prints on the node, as its operator over SSH.

        Without ``clusterctl lab ssh``, whose start takes longer than most commands.
        """
        done = subprocess.run(
            [
                "ssh", "-F", "none", "-i", str(self.cluster / "ssh/id_ed25519"), "-o", "IdentitiesOnly=yes",
                "-o", f"UserKnownHostsFile={self.cluster}/.clusterctl/known_hosts",
                "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR",
                f"ops@{self.address(node)}", "--", command,
            ],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=COMMAND_S, check=False,
        )  # fmt: skip
        return must_be_good(done).strip() if check else done.stdout.strip()

    def address(self, node: str) -> str:
        """Where the inventory says the node is."""
        groups = yaml.safe_load((self.cluster / "hosts.yml").read_text(encoding="utf-8"))["all"]["children"]
        return next(
            str(group["hosts"][node]["ansible_host"]) for group in groups.values() if node in group["hosts"]
        )

    def inject(self, node: str, kind: str, *options: str) -> None:
        """Put a fault in place."""
        self.lab("fault", "inject", node, kind, *options)

    def clear_faults(self) -> None:
        """Take all faults away."""
        self.lab("fault", "clear")

    def container(self, node: str) -> str:
        """The name of the node's container."""
        suffix = json.loads((self.directory / "state.json").read_text())["suffix"]
        return f"clusterlab-{suffix}-{node}"


def run_clusterctl(*arguments: str, timeout_s: float = COMMAND_S) -> subprocess.CompletedProcess[str]:
    """The program as a person runs it, from the repository."""
    return subprocess.run(
        [str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
        cwd=REPOSITORY,
        env={**os.environ, "CI": "1", "NO_COLOR": "1"},
        check=False,
    )


def must_be_good(done: subprocess.CompletedProcess[str]) -> str:
    """Fail the test, with what the program said, unless it ended with 0. Returns its results."""
    if done.returncode != 0:
        pytest.fail(
            f"{' '.join(done.args)} ended with {done.returncode}\n"
            f"--- its messages\n{done.stderr[-6000:]}\n--- its results\n{done.stdout[-3000:]}"
        )
    return done.stdout


def json_lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Standard output as JSON lines."""
    return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]


def bring_up(directory: Path, *options: str, keep: bool = False) -> Iterator[RunningLab]:
    """A lab for as long as it is needed; unless ``keep``, one that an earlier run left is taken down."""
    if os.geteuid() != 0:
        pytest.fail("the lab needs root")
    running = RunningLab(directory)
    if not keep:
        running.lab("down")
    try:
        running.lab("up", *options)
        yield running
    finally:
        if not keep:
            running.lab("down")


@dataclass(frozen=True)
class Demo:
    """A fresh clone in which script/demo was run, and what it printed."""

    clone: Path
    done: subprocess.CompletedProcess[str]


def demo_of(directory: Path, *arguments: str) -> Iterator[Demo]:
    """script/demo in a fresh clone of what is committed; its lab is taken down then, leaving nothing."""
    clone = directory / "clusterctl"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True, timeout=60)
    try:
        yield Demo(clone, run_in(clone, "script/demo", *arguments))
    finally:
        program, state = clone / ".venv/bin/clusterctl", clone / ".lab/state.json"
        suffix = json.loads(state.read_text())["suffix"] if state.exists() else None
        if program.exists():
            run_in(clone, str(program), "lab", "down")
    assert not (clone / ".lab").exists()
    for what in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
        command = ["docker", *what, "--quiet", "--filter", f"label=clusterlab.lab={suffix}"]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def run_in(clone: Path, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in a clone; fails the test unless it ends with this exit code."""
    done = subprocess.run(
        command, cwd=clone, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=1500,
        env={**os.environ, "CI": "1", "NO_COLOR": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == code, (
        f"{command}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
    )
    return done


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """script/demo with three nodes, as a new user runs it."""
    yield from demo_of(tmp_path_factory.mktemp("demo"), "--nodes", "3")


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[RunningLab]:
    """Three GPU nodes and a registry host, reached over SSH: bare ones, but in one lane those of the demo."""
    lane = os.environ.get(LAB_VARIABLE, "by-hand")
    if lane == LANE_OF_THE_DEMO:
        yield RunningLab(request.getfixturevalue("demo").clone / ".lab")
    else:
        yield from bring_up(REPOSITORY / ".lab-test" / lane, "--nodes", "3", keep=KEEP_VARIABLE in os.environ)


@pytest.fixture(scope="session")
def applied_lab(lab: RunningLab) -> RunningLab:
    """The same lab with the whole site applied: tests leave it as they found it."""
    if os.environ.get(LAB_VARIABLE) != LANE_OF_THE_DEMO:
        lab.done("apply", "--yes", "--canary", "0")
    return lab


@pytest.fixture
def faults(applied_lab: RunningLab) -> Iterator[RunningLab]:
    """The applied lab, for a test that breaks something: faults are cleared afterwards."""
    yield applied_lab
    applied_lab.clear_faults()
