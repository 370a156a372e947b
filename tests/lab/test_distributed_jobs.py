"""Distributed jobs on real hosts: what crashes, hangs, is lost or interrupted is named, in bounded time."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import clustercheck.jobs
from clustercheck.launch.docker import DockerLauncher
from clustercheck.launch.model import JobOutcome, JobSpec, RankState
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import load
from clusterctl.cluster.spec import cluster_spec
from clusterctl.cluster.ssh import OpenSshTransport

pytestmark = pytest.mark.lab

JOBS = Path(clustercheck.jobs.__file__).parent
NODES = ("gpu01", "gpu02", "gpu03")
MEETS = "def run(world, arguments):\n    world.set_phase('meeting', collective=True)\n    world.barrier()\n"
GOES_ON = (
    "    world.set_phase('a barrier', collective=True)\n    world.barrier()\n"
    "    return {'ok': True, 'because': ''}\n"
)
PROGRAMS = {
    "crashes": f"import os\n{MEETS}    if world.rank == 1:\n        world.set_phase('crashing')\n"
    f"        os.kill(os.getpid(), 11)\n{GOES_ON}",
    "hangs": f"import time\n{MEETS}    if world.rank == 2:\n        world.set_phase('sleeping')\n"
    f"        time.sleep(600)\n{GOES_ON}",
    "lasts": "import time\ndef run(world, arguments):\n    for step in range(600):\n"
    "        world.set_phase(f'step {step}', collective=True)\n        world.barrier()\n"
    "        time.sleep(0.1)\n"
    "    return {'ok': True, 'because': ''}\n",
    "forgets": "import data_parallel\ndef run(world, arguments):\n"
    "    world.data_parallel = lambda model: model\n    return data_parallel.run(world, arguments)\n",
    "corrupts": "import all_reduce\ndef run(world, arguments):\n    honest = world.all_reduce\n"
    "    def corrupt(tensor, **more):\n        if world.rank == 1:\n            tensor[0] += 1\n"
    "        honest(tensor, **more)\n    world.all_reduce = corrupt\n"
    "    return all_reduce.run(world, arguments)\n",
}

Launch = Callable[..., JobOutcome]


@pytest.fixture
def launch(applied_lab: Any, tmp_path: Path) -> Iterator[Launch]:
    """Runs one of the programs above, or of ours, on all nodes of the lab."""
    jobs = tmp_path / "jobs"
    shutil.copytree(JOBS, jobs)
    for name, source in PROGRAMS.items():
        (jobs / f"{name}.py").write_text(source)
    directory = ClusterDirectory(applied_lab.cluster)
    inventory = load(directory)
    spec = cluster_spec(inventory)
    with OpenSshTransport(directory, inventory.hosts) as transport:
        addresses = {node.name: node.address for node in spec.nodes}
        launcher = DockerLauncher(transport, run_id="lab-test", addresses=addresses, jobs=jobs)

        def run(
            program: str,
            arguments: Mapping[str, Any] | None = None,
            on_event: Callable[[Mapping[str, Any]], None] = lambda event: None,
            *,
            limit_s: float = 90.0,
        ) -> JobOutcome:
            job = JobSpec(
                program.replace("_", "-"), f"{program}.py", NODES, spec.image, limit_s, arguments or {}
            )
            return launcher.run(job, on_event=on_event)

        yield run


def nothing_is_left(lab: Any, nodes: tuple[str, ...] = NODES) -> None:
    """No container and no directory of a job."""
    look = "sudo docker ps -aq --filter label=clusterctl.run; sudo find /var/lib/clusterctl/jobs -mindepth 1"
    for node in nodes:
        left = lab.ssh(node, look)
        assert left == "", f"{node}: {left}"


@pytest.mark.drawn("jobs")
def test_a_rank_that_crashes_is_named_and_nothing_is_left(launch: Launch, applied_lab: Any) -> None:
    outcome = launch("crashes")
    assert outcome.first_failure is not None
    assert outcome.first_failure.node == "gpu02"
    assert outcome.first_failure.state is RankState.CRASHED
    assert outcome.first_failure.because == "killed by SIGSEGV while crashing"
    assert outcome.duration_s < 60
    nothing_is_left(applied_lab)


@pytest.mark.drawn("jobs")
def test_a_rank_that_hangs_is_named_with_its_stack(launch: Launch, applied_lab: Any) -> None:
    # Stalled after 26 s: gloo gives up on a peer after 30 s, which soon after the start names nobody.
    outcome = launch("hangs", limit_s=65.0)
    assert outcome.first_failure is not None, outcome
    assert outcome.first_failure.node == "gpu03"
    assert outcome.first_failure.state is RankState.HUNG
    assert "hung while sleeping" in outcome.first_failure.because
    assert "hangs.py" in outcome.first_failure.stack
    assert outcome.duration_s < 100
    nothing_is_left(applied_lab)


@pytest.mark.drawn("jobs")
def test_wrong_numbers_are_found(launch: Launch) -> None:
    forgot = launch("forgets", {"steps": 5, "batch": 48})
    assert forgot.good
    assert all("parameters differ" in rank.verdict["because"] for rank in forgot.ranks)
    corrupt = launch("corrupts", {"sizes_bytes": [4096], "iterations": 1})
    assert corrupt.good
    assert {rank.verdict["ok"] for rank in corrupt.ranks} == {False}
    assert {rank.verdict["points"][0]["max_abs_error"] for rank in corrupt.ranks} == {1.0}


@pytest.mark.drawn("jobs")
def test_a_node_lost_in_the_middle_is_named_while_the_others_are_ended(launch: Launch, faults: Any) -> None:
    started: list[str] = []
    cut: list[threading.Thread] = []

    def on_event(event: Mapping[str, Any]) -> None:
        if event["type"] == "job_started":
            started.append(event["node"])
            if len(started) == len(NODES):
                cut.append(threading.Timer(4.0, faults.inject, ("gpu02", "node-down")))
                cut[0].start()

    outcome = launch("lasts", on_event=on_event)
    cut[0].join()
    assert outcome.first_failure is not None
    assert outcome.first_failure.node == "gpu02"
    assert outcome.first_failure.state is RankState.UNREACHABLE
    assert outcome.duration_s < 75
    nothing_is_left(faults, ("gpu01", "gpu03"))


@pytest.mark.drawn("jobs")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
def test_a_validation_that_is_ended_leaves_nothing_or_is_found_again(
    applied_lab: Any, number: signal.Signals, code: int
) -> None:
    program = Path(applied_lab.clusterctl("--version", at_cluster=False).args[0])
    process = subprocess.Popen(
        [program, "-C", str(applied_lab.cluster), "validate", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    said, started = [], 0
    for line in process.stdout:
        said.append(line)
        event = json.loads(line)
        started += (event["type"], event.get("job")) == ("job_started", "all-reduce")
        if started == len(NODES):
            break
    process.send_signal(number)
    begun = time.monotonic()
    said += process.stdout.readlines()
    assert process.wait(60) == code, "".join(said)
    assert time.monotonic() - begun < 45
    if number != signal.SIGKILL:
        nothing_is_left(applied_lab)
        return
    shown = applied_lab.done("runs", "show", "last")
    assert "cut off" in shown
    assert all(f"of job all-reduce on {node}" in shown for node in NODES)
    again = applied_lab.clusterctl("validate")
    assert again.returncode == 0, again.stderr
    assert "removed leftover of an earlier run" in again.stderr
    nothing_is_left(applied_lab)
