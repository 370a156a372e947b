"""A check that raises, wherever it does, has judged nothing: its cells are not run, with its error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from tests.support.validation_in_memory import run

from clustercheck.checks import base
from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import GROUP, Check, evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Subject, Verdict
from clustercheck.result import reading
from clustercheck.running import suites
from clustercheck.running.coverage import add_missing_results
from clustercheck.samples import sample
from clustercheck.spec import Exclusion
from clusterctl.report import files
from clusterctl.runs.store import Run

SAID = "the check itself failed: KeyError: 'no such field'"


def explode(*_asked: Any, **_more: Any) -> Any:
    raise KeyError("no such field")


def halfway(evidence: Evidence) -> Iterable[Subject]:
    yield Subject("gpu01", 0)
    explode(evidence)


def of_scope(scope: Scope) -> Check:
    return next(check for check in CHECKS if check.scope is scope)


@pytest.mark.parametrize("subjects", [explode, halfway])
@pytest.mark.parametrize(
    ("scope", "cells"),
    [(Scope.HOST, 3), (Scope.GPU, 24), (Scope.LINK, 24), (Scope.PAIR, 1), (Scope.GROUP, 1)],
)
def test_a_check_that_cannot_name_its_subjects_is_not_run_on_all_that_its_scope_has(
    scope: Scope, cells: int, subjects: Callable[[Evidence], Iterable[Subject]]
) -> None:
    results = evaluate(replace(of_scope(scope), subjects=subjects), sample.healthy())
    assert len({result.subject for result in results}) == len(results) == cells
    assert {(result.verdict, result.because) for result in results} == {(Verdict.NOT_RUN, SAID)}


def test_where_not_even_the_gpus_can_be_counted_it_is_not_run_on_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Evidence, "gpu_count", explode)
    results = evaluate(BY_ID["gpu-ecc"], sample.healthy())
    assert [result.subject for result in results] == [Subject(f"gpu0{n}") for n in (1, 2, 3)]
    assert {result.because for result in results} == {SAID}


def test_where_no_gpu_is_known_of_it_is_not_run_all_the_same() -> None:
    sound = sample.healthy()
    bare = replace(
        sound, spec=replace(sound.spec, nodes=tuple(replace(n, gpu_count=0) for n in sound.spec.nodes))
    )
    (result,) = evaluate(replace(BY_ID["gpu-ecc"], subjects=explode), bare)
    assert (result.subject, result.verdict, result.because) == (GROUP, Verdict.NOT_RUN, SAID)


def test_a_subject_that_is_named_twice_is_the_check_that_fails() -> None:
    twice = replace(BY_ID["gpu-ecc"], subjects=lambda evidence: 2 * list(base.every_gpu(evidence)))
    sound = sample.healthy()
    results = evaluate(twice, sound)
    assert len(results) == 24 and {result.verdict for result in results} == {Verdict.NOT_RUN}
    assert "more than once" in results[0].because
    assert add_missing_results([twice], sound, results) == results


def test_what_is_excluded_by_name_stays_so() -> None:
    by_ann = Exclusion("gpu-ecc", "gpu02", "ann", "board is ordered", date(2027, 1, 1))
    evidence = replace(sample.healthy(), exclusions=(by_ann,))
    results = evaluate(replace(BY_ID["gpu-ecc"], subjects=explode), evidence)
    assert {r.subject.node for r in results if r.verdict is Verdict.EXCLUDED} == {"gpu02"}
    assert {r.subject.node for r in results if r.because == SAID} == {"gpu01", "gpu03"}


def test_a_judge_that_raises_leaves_the_others_judged() -> None:
    check = BY_ID["gpu-ecc"]

    def judge(evidence: Evidence, subject: Subject) -> base.Finding:
        return check.judge(evidence, subject) if subject.node == "gpu01" else explode()

    results = evaluate(replace(check, judge=judge), sample.healthy())
    assert {r.verdict for r in results if r.subject.node == "gpu01"} == {Verdict.PASS}
    assert {(r.verdict, r.because) for r in results if r.subject.node != "gpu01"} == {(Verdict.NOT_RUN, SAID)}


@pytest.mark.parametrize("part", ["judge_all", "before_of", "_kind"])
def test_figures_that_cannot_be_judged_are_no_pass_and_hide_no_failure(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = BY_ID["gpu-gemm"]
    broken = next(fault for fault in check.faults if fault.name == "rank-crashes")
    monkeypatch.setattr(base, part, explode)
    results = {result.subject: result for result in evaluate(check, broken.inject(sample.healthy()))}
    assert results.pop(broken.subject).verdict is Verdict.FAIL
    assert {(r.verdict, r.because, r.figures) for r in results.values()} == {(Verdict.NOT_RUN, SAID, ())}


def test_a_job_on_a_node_that_nobody_declared_is_not_run() -> None:
    check = BY_ID["all-reduce-bandwidth"]
    sound = sample.healthy()
    ranks = tuple(replace(rank, node=f"other{rank.rank}") for rank in sound.jobs[check.job].ranks)
    job = replace(sound.jobs[check.job], ranks=ranks, facts={"backend": "gloo"})
    results = evaluate(check, replace(sound, jobs={**sound.jobs, check.job: job}))
    assert {result.verdict for result in results} == {Verdict.NOT_RUN}
    assert "KeyError" in results[0].because


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_the_ledger_is_whole_whichever_check_raises(check: Check) -> None:
    evidence = sample.healthy()
    broken = replace(check, subjects=explode)
    results = add_missing_results([broken], evidence, evaluate(broken, evidence))
    assert {(result.verdict, result.because) for result in results} == {(Verdict.NOT_RUN, SAID)}


def test_a_whole_validation_with_such_a_check_is_incomplete_and_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    raising = {scope: replace(of_scope(scope), subjects=explode) for scope in Scope}
    ids = {check.id for check in raising.values()}
    changed = tuple(next((r for r in raising.values() if r.id == c.id), c) for c in CHECKS)
    monkeypatch.setattr(suites, "CHECKS", changed)
    document = run()
    assert document["verdict"] == "incomplete"
    assert {r["check"] for r in document["results"] if r["verdict"] == "not_run"} == ids
    assert {r["because"] for r in document["results"] if r["verdict"] == "not_run"} == {SAID}
    kept = Run(document["run"], "validate", (), document["started"], "", "", 3, directory=tmp_path)
    assert files.write_reports(kept, reading.read(json.dumps(document))) == []
    assert all(check in (tmp_path / "report.html").read_text() for check in ids)
