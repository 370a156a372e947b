"""`validate --list` and `--self-test` as a person and a script call them: no host is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from clustercheck import selftest
from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import passed
from clustercheck.checks.support.seeding_limits import limit_seeds
from clustercheck.model import Severity, Verdict
from clustercheck.running.explained import phrases
from clustercheck.running.suites import suites
from clustercheck.samples.sample import healthy
from clusterctl import main
from clusterctl.report import checks, validate_explained


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("suite", list(suites()))
def test_the_list_explains_every_check_of_the_suite(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["validate", "--list", "--suite", suite]) == 0
    said = capsys.readouterr().out
    for check in suites()[suite].selected():
        assert f"\n{check.id}: {check.title}; " in said
    for name, job in suites()[suite].jobs.items():
        assert f"job {name}: time limit {job.timeout_s:g} s" in said
    assert all(len(line) <= checks.WIDTH for line in said.splitlines()[1:])


@pytest.mark.parametrize(
    ("check", "label"),
    [("gpu-ecc", "a failure"), ("cpu-governor", "a warning"), ("iommu", "a failure or warning")],
)
def test_the_severity_is_of_the_verdicts_that_the_check_may_have(check: str, label: str) -> None:
    severity = BY_ID[check].severity
    assert (label, f"{severity}: {severity.means}") in phrases(BY_ID[check])


def test_the_list_for_programs_has_all_that_a_check_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["validate", "--list", "--json"]) == 0
    *listed, suite = map(json.loads, capsys.readouterr().out.splitlines())
    selected = [check.id for check in suites()["quick"].selected()]
    assert [one["id"] for one in listed] == selected == suite["checks"]
    assert suite["suite"] == "quick" and suite["jobs"]["all_reduce"]["timeout_s"] > 0
    for one in listed:
        assert one["severity"] in set(Severity)
        assert all(one[key] for key in one if key != "job")
        assert {fault["verdict"] for fault in one["faults"]} <= set(Verdict)


def test_an_unknown_suite_is_a_wrong_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["validate", "--list", "--suite", "thorough"]) == 2
    assert "unknown suite 'thorough'" in capsys.readouterr().err
    assert main.run(["validate", "--list", "--self-test"]) == 2


def test_every_check_proves_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["validate", "--self-test"]) == 0
    said = capsys.readouterr().out.splitlines()
    sample = cache(healthy)
    beside = sum(len(seed.limits) for check in CHECKS for seed in limit_seeds(check, sample))
    faults = sum(len(check.faults) for check in CHECKS) + beside
    assert said[-1] == f"{len(CHECKS)} checks, {faults} faults: {faults} caught; every check passed"
    assert [line.split()[0] for line in said[1:-1]] == [check.id for check in CHECKS]
    assert main.run(["validate", "--self-test", "--json"]) == 0
    *proofs, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert summary == {
        "type": "summary", "checks": len(CHECKS), "proofs": len(CHECKS) + faults, "bad": 0, "exit": 0,
    }  # fmt: skip
    assert len(proofs) == summary["proofs"] and all(proof["good"] for proof in proofs)


def test_a_check_that_cannot_fail_is_named_and_turns_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = replace(BY_ID["gpu-ecc"], judge=lambda evidence, subject: passed())
    unproved = replace(BY_ID["nvlink"], faults=())
    monkeypatch.setattr(validate_explained, "prove", lambda: selftest.prove([blind, unproved]))
    assert main.run(["validate", "--self-test"]) == 1
    said = capsys.readouterr().out
    assert "gpu-ecc: ecc-dram: pass instead of fail" in said
    assert "nvlink: (none): no verdict instead of fail; this check has no fault to prove itself by" in said
    assert "proofs failed" in said.splitlines()[-1]
    assert main.run(["validate", "--self-test", "--json"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["exit"] == 1
