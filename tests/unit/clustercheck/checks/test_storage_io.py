"""Storage under load: wrong data fails, what a site decides does not, and only what is mounted is touched."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest
from tests.support.validation_in_memory import FakeLauncher

from clustercheck.checks import storage_io as checked
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Result, Verdict
from clustercheck.running.group_jobs import run_storage_io
from clustercheck.running.job_runner import JobRunner
from clustercheck.running.suites import load
from clustercheck.samples import sample
from clustercheck.samples.fio import fio_text


def of_gpu02(evidence: Evidence) -> Result:
    return next(r for r in evaluate(checked.CHECK, evidence) if r.subject.node == "gpu02")


def judged(inject: seeding.Inject, nodes: int = 3) -> Result:
    return of_gpu02(inject(sample.healthy(nodes)))


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (checked.CHECKSUM_DIFFERS, Verdict.FAIL),
        (errno.EIO, Verdict.FAIL),
        (errno.ESTALE, Verdict.FAIL),
        (9999, Verdict.FAIL),
        (errno.ENOSPC, Verdict.NOT_RUN),
        (errno.EDQUOT, Verdict.NOT_RUN),
        (errno.EACCES, Verdict.NOT_RUN),
    ],
)
def test_how_fio_ended_says_whose_fault_it_is(error: int, verdict: Verdict) -> None:
    assert judged(checked._ends(error)).verdict is verdict


def test_wrong_data_on_one_path_fail_whatever_is_not_known_of_another() -> None:
    unknown = checked._of("/data", unable="PermissionError: Permission denied")
    result = judged(seeding.chain(checked._ends(checked.CHECKSUM_DIFFERS), unknown))
    assert result.verdict is Verdict.FAIL and "/scratch returns other data" in result.because


@pytest.mark.parametrize(("factor", "verdict"), [(1.4, Verdict.PASS), (2.5, Verdict.FAIL)])
def test_storage_is_held_to_what_it_was(factor: float, verdict: Verdict) -> None:
    assert (
        judged(seeding.with_baseline("storage-io", checked.judge, checked._NODE, factor)).verdict is verdict
    )


def test_a_node_far_behind_its_equals_fails() -> None:
    slow = checked._of("/scratch", json=fio_text(0.3, 0.4))
    assert judged(slow, nodes=8).verdict is Verdict.FAIL


def test_a_pass_needs_all_that_was_written_to_be_read() -> None:
    half = fio_text(1.8, 2.9).replace('"read": {"io_bytes": 1073741824', '"read": {"io_bytes": 536870912')
    assert "1073741824" in half and "536870912" in half
    assert judged(checked._of("/scratch", json=half)).verdict is Verdict.NOT_RUN


def mounted(change: Any) -> seeding.Inject:
    return seeding.edit("gpu02", lambda raw: change(raw["mounts"][1]))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(mounted=None),
        lambda record: record["touched"].update(timed_out=True),
        lambda record: record["touched"].update(rc=1),
    ],
)
def test_only_what_is_mounted_and_answers_is_given_to_a_container(change: Any) -> None:
    evidence = mounted(change)(sample.healthy())
    assert checked.places_of(evidence, ["gpu01", "gpu02"]) == {
        "gpu01": {"/data": f"{checked.HERE}0", "/scratch": f"{checked.HERE}1"},
        "gpu02": {"/data": f"{checked.HERE}0"},
    }


@pytest.mark.parametrize("path", ["/data,readonly", '/data"', "/data\n", "data"])
def test_a_path_that_docker_would_read_otherwise_is_left_out(path: str) -> None:
    sound = sample.healthy()
    mounts = (replace(sound.spec.mounts[0], path=path),)
    evidence = seeding.edit("gpu02", lambda raw: raw["mounts"][0].update(path=path))(sound)
    evidence = replace(evidence, spec=replace(evidence.spec, mounts=mounts))
    assert checked.places_of(evidence, ["gpu02"]) == {}
    assert of_gpu02(evidence).verdict is Verdict.NOT_RUN


def test_the_job_has_the_paths_in_its_containers_and_time_for_each() -> None:
    evidence = mounted(lambda record: record.update(mounted=None))(sample.healthy(2))
    launcher = FakeLauncher()
    runner = JobRunner(load("full"), launcher, lambda event: None, "paddle")
    run_storage_io(runner, evidence, ["gpu01", "gpu02"])
    (spec,) = launcher.jobs
    mount = "type=bind,source=/scratch,target=/mnt/clusterctl-storage-1"
    assert mount in spec.container_on("gpu01")[1] and mount not in spec.container_on("gpu02")[1]
    assert spec.arguments["places"][1] == ["gpu02", {"/data": f"{checked.HERE}0"}]
    assert spec.timeout_s == 2 * load("full").jobs[checked.JOB].timeout_s
