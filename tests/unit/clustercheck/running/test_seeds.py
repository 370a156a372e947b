"""The suite `seeds` as a whole: which jobs it starts, in which order, and what a site without Paddle gets."""

from __future__ import annotations

from tests.support.validation_in_memory import FakeLauncher, blamed, run, verdicts

from clustercheck.checks import storage_io
from clustercheck.checks.support import seeding
from clustercheck.launch.model import JobSpec
from clustercheck.running.suites import load
from clustercheck.samples import sample

PADDLE_PROGRAMS = [
    "paddle_launch.py", "sharding.py", "sharding_stages.py", "training_paddle.py", "training_paddle.py",
    "recipes.py", "step_trace.py", "inference.py", "paddle_inference.py", "data_loading.py",
]  # fmt: skip


def test_a_healthy_cluster_passes_and_each_technique_has_a_verdict() -> None:
    launcher = FakeLauncher()
    document = run(launcher=launcher, suite="seeds")
    assert (document["verdict"], blamed(document)) == ("pass", [])
    assert {result["check"] for result in document["results"]} == {c.id for c in load("seeds").selected()}
    assert [job.program for job in launcher.jobs] == PADDLE_PROGRAMS
    for check in ("training-amp", "training-tf32", "data-loading", "sharding-stages", "paddle-launch"):
        assert set(verdicts(document, check).values()) == {"pass"}


def test_a_power_limit_that_makes_amp_slow_is_named_beside_it() -> None:
    """Each probe-only check is in the suite, as in the others: it takes no time of its own."""
    known = {check.id for check in load("seeds").selected()}
    assert known >= {check.id for check in load("quick").selected() if not check.job} - {"dcgm-diag"}
    assert {"gpu-limits", "gpu-throttle", "pcie-link", "gpu-ecc", "xid"} <= known
    low = seeding.smi("gpu02", 3, "gpu_power_readings/current_power_limit", "200.00 W")
    found = {name: dict(node.raw) for name, node in low(sample.healthy()).nodes.items()}
    document = run(found, suite="seeds")
    assert verdicts(document, "gpu-limits")["gpu02/3"] == "fail"
    assert blamed(document) == [("gpu", "gpu02", 3, None)]


def test_one_check_brings_its_own_job_alone() -> None:
    launcher = FakeLauncher()
    run(launcher=launcher, suite="seeds", checks=["data-loading"])
    assert [job.program for job in launcher.jobs] == ["data_loading.py"]
    (job,) = launcher.jobs
    assert job.arguments["storage"] == storage_io.HERE


def test_a_slow_gpu_is_blamed_by_the_times_of_its_steps() -> None:
    def slow(_spec: JobSpec, node: str, verdict: dict[str, object]) -> None:
        if node == "gpu02" and "median_s" in verdict:
            verdict.update(median_s=0.2, slowest_s=0.25)

    document = run(launcher=FakeLauncher(change=slow), suite="seeds")
    assert document["verdict"] == "fail"
    assert ("node", "gpu02", None, None) in blamed(document)


def test_with_pytorch_it_is_not_run_and_says_why() -> None:
    launcher = FakeLauncher()
    document = run(launcher=launcher, spec=sample.spec(3).with_framework("torch"), suite="seeds")
    assert launcher.jobs == []
    because = {one["because"] for one in document["results"] if one["check"] == "training-amp"}
    assert because == {"the job is written for Paddle, and validation_framework is torch"}
