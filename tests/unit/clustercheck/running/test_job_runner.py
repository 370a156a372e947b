"""What the launcher is told of a job."""

from __future__ import annotations

import importlib

import pytest
from tests.support.validation_in_memory import FakeLauncher

from clustercheck.jobs import nccl_tests
from clustercheck.running.job_runner import JobRunner
from clustercheck.running.suites import load
from clustercheck.samples import sample


@pytest.mark.parametrize("job", ["rdma_write", "cpu_stream", "storage_io", "run_check", "peer_ports"])
def test_a_rank_that_lost_its_peer_lost_the_first_one_only_where_they_meet(job: str) -> None:
    launcher = FakeLauncher()
    runner = JobRunner(load("full"), launcher, lambda event: None, "paddle")
    runner.run_without_framework(sample.healthy(2), job, ["gpu01", "gpu02"])
    meets = importlib.import_module(f"clustercheck.jobs.{job}").join is nccl_tests.join
    (spec,) = launcher.jobs + launcher.connections
    assert spec.through_first == meets
    assert spec.secret
