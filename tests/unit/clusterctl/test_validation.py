"""A validation as a request and a result, on nodes that answer from memory: no Click, nothing patched."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.validation_in_memory import FakeLauncher, FakeTransport, records

from clustercheck.errors import ExplainedError
from clustercheck.launch.model import JobSpec, RankState
from clustercheck.samples import sample
from clusterctl import main
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.report.progress import ValidationProgress
from clusterctl.runs.store import RunStore
from clusterctl.validation import (
    Connect,
    NodeConnections,
    ValidateRequest,
    ValidateResult,
    make_plan,
    validate,
)

NODES = {f"gpu0{number}": {"ansible_host": f"192.0.2.{number}"} for number in (1, 2, 3)}


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterDirectory:
    (tmp_path / "hosts.yml").write_text(json.dumps({"gpu_nodes": {"hosts": NODES}}), encoding="utf-8")
    return ClusterDirectory(tmp_path)


def from_memory(launcher: FakeLauncher, abort: Callable[[], list[str]] = list) -> Connect:
    @contextlib.contextmanager
    def connect(*_: Any) -> Iterator[NodeConnections]:
        yield NodeConnections(FakeTransport(records()), launcher, abort)

    return connect


def validated(cluster: ClusterDirectory, connect: Connect, **asked: Any) -> ValidateResult:
    plan = make_plan(ValidateRequest(cluster.root, **asked))
    plan = replace(plan, spec=sample.spec(3))
    return validate(plan, progress=ValidationProgress(as_json=False), connect=connect)


def test_a_healthy_cluster_passes_and_its_result_is_kept(cluster: ClusterDirectory) -> None:
    result = validated(cluster, from_memory(FakeLauncher()), force_busy=True)
    assert result.document is not None and result.page is not None
    assert (result.exit_code, result.document.verdict) == (0, "pass")
    assert result.page.is_file()
    run = RunStore(cluster).get("last")
    assert (run.kind, run.exit_code, run.summary["verdict"]) == ("validate", 0, "pass")
    assert run.arguments == ("--suite", "quick", "--force-busy")
    assert json.loads(run.path("result.json").read_text())["run"] == run.id
    assert set(json.loads(run.path("evidence.json").read_text())["nodes"]) == {"gpu01", "gpu02", "gpu03"}


def test_a_cluster_that_fails_is_exit_code_1(cluster: ClusterDirectory) -> None:
    def fails(spec: JobSpec) -> tuple[str, RankState] | None:
        return ("gpu02", RankState.FAILED) if spec.program == "all_reduce.py" else None

    result = validated(cluster, from_memory(FakeLauncher(fail=fails)))
    assert result.document is not None
    assert (result.exit_code, result.document.verdict) == (1, "fail")
    assert RunStore(cluster).get("last").exit_code == 1


@pytest.mark.parametrize(("failing", "code"), [(False, 3), (True, 1)])
def test_a_verdict_that_cannot_be_written_is_shown_and_no_pass(
    cluster: ClusterDirectory, failing: bool, code: int
) -> None:
    @contextlib.contextmanager
    def connect(_plan: Any, run: str, _ended: Any) -> Iterator[NodeConnections]:
        fail = ("gpu02", RankState.FAILED) if failing else None
        yield NodeConnections(FakeTransport(records()), FakeLauncher(fail=lambda _spec: fail), list)
        shutil.rmtree(cluster.runs / run)

    result = validated(cluster, connect)
    assert result.document is not None
    assert (result.exit_code, result.document.verdict) == (code, "fail" if failing else "pass")
    assert result.page is None
    (why,) = result.unmade or ()
    assert why.startswith("this verdict is not recorded: run.json cannot be written")


@pytest.mark.parametrize(("aborted", "left"), [(["gpu02"], 0), ([], 1)])
def test_an_interrupted_validation_has_no_verdict_and_names_what_it_left(
    cluster: ClusterDirectory, aborted: list[str], left: int
) -> None:
    class Interrupted(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[dict[str, Any]], None]) -> Any:
            on_event({"type": "job_started", "job": spec.name, "node": "gpu02", "container": "c0ffee"})
            raise KeyboardInterrupt

    result = validated(cluster, from_memory(Interrupted(), lambda: aborted))
    assert (result.exit_code, result.document, result.page) == (130, None, None)
    assert [one["container"] for one in result.left] == ["c0ffee"] * left
    assert RunStore(cluster).get("last").exit_code == 130


@pytest.mark.parametrize(("asked", "framework"), [(None, "paddle"), ("torch", "torch")])
def test_the_framework_that_is_named_is_what_jobs_compute_with(
    cluster: ClusterDirectory, asked: str | None, framework: str
) -> None:
    plan = make_plan(ValidateRequest(cluster.root, framework=asked))
    assert plan.spec.settings_of("gpu01").framework == framework
    assert main.run(["-C", str(cluster.root), "validate", "--framework", "jax"]) == 2


def test_a_plan_has_the_nodes_and_checks_that_are_named(cluster: ClusterDirectory) -> None:
    plan = make_plan(ValidateRequest(cluster.root, limit="gpu02,gpu03", checks=("xid",)))
    assert [node.name for node in plan.spec.nodes] == ["gpu02", "gpu03"]
    assert list(plan.suite.only) == ["xid"]
    with pytest.raises(ExplainedError) as caught:
        make_plan(ValidateRequest(cluster.root, suite="thorough"))
    assert caught.value.code == "validate.unknown-suite"


def test_jobs_are_refused_on_nodes_with_containerd_alone_and_other_checks_are_not(
    cluster: ClusterDirectory,
) -> None:
    (cluster.root / "host_vars").mkdir()
    (cluster.root / "host_vars/gpu02.yml").write_text("container_runtime_engine: containerd\n")
    with pytest.raises(ExplainedError) as caught:
        make_plan(ValidateRequest(cluster.root))
    error = caught.value
    assert (error.code, error.where) == ("validate.no-docker", "host_vars/gpu02.yml:1")
    assert str(error) == "the jobs of quick run in Docker, and gpu02 has containerd alone"
    assert make_plan(ValidateRequest(cluster.root, limit="gpu01")).spec.nodes
    assert make_plan(ValidateRequest(cluster.root, checks=("xid", "nvlink"))).spec.nodes


ENVIRONMENT = """\
validation_environment: {NCCL_IB_TC: "106", NCCL_OF_NEXT_YEAR: "1"}
validation_environment_suites: {standard: {NCCL_IB_TC: "105"}}
"""


def test_a_plan_has_the_environment_of_its_suite_and_it_is_said_before_the_run(
    cluster: ClusterDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.group_vars.mkdir()
    (cluster.group_vars / "all.yml").write_text(ENVIRONMENT, encoding="utf-8")
    (cluster.root / "host_vars").mkdir()
    (cluster.root / "host_vars/gpu03.yml").write_text('validation_environment: {UCX_TLS: "rc"}\n')
    given = make_plan(ValidateRequest(cluster.root, suite="standard")).spec.settings_of
    assert given("gpu01").environment == {"NCCL_IB_TC": "105", "NCCL_OF_NEXT_YEAR": "1"}
    assert given("gpu03").environment == {"UCX_TLS": "rc", "NCCL_IB_TC": "105"}
    capsys.readouterr()
    # It asks before it disturbs anything, and there is no terminal: what it would do has been said by then.
    assert main.run(["-C", str(cluster.root), "validate", "--force-busy"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "sets NCCL_OF_NEXT_YEAR, which NCCL up to" in said
    assert (
        "environment of the jobs: NCCL_IB_TC=106 on gpu01, gpu02, NCCL_OF_NEXT_YEAR=1 on gpu01, gpu02" in said
    )


def test_a_name_that_nccl_does_not_know_is_refused_before_a_run_is_made(
    cluster: ClusterDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.group_vars.mkdir()
    (cluster.group_vars / "all.yml").write_text("validation_environment: {NCCL_IB_HAC: mlx5}\n")
    assert main.run(["-C", str(cluster.root), "validate"]) == 2
    said = capsys.readouterr().err
    assert "settings.environment" in said and "Did you mean NCCL_IB_HCA?" in said and "all.yml:1" in said
    assert RunStore(cluster).list() == []
