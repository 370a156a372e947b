"""The driver of each node against the settings, and against the nodes of which the same is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clustercheck.checks.base import evaluate
from clustercheck.checks.driver_version import CHECK
from clustercheck.checks.support import seeding
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample
from clustercheck.samples.smi import DRIVER

PASS, FAIL = Verdict.PASS, Verdict.FAIL
OTHER = "570.148.08"


def runs(version: str) -> Callable[[seeding.Raw], None]:
    def change(raw: seeding.Raw) -> None:
        raw["nvidia_smi"]["stdout"] = raw["nvidia_smi"]["stdout"].replace(DRIVER, version)
        raw["module"]["version"] = version

    return change


def running(*versions: str, asked: str = "", branch: str = "") -> list[Result]:
    """What is said of nodes whose module and library are these."""
    evidence = sample.healthy(len(versions))
    for node, version in zip(evidence.nodes, versions, strict=True):
        evidence = seeding.edit(node, runs(version))(evidence)
    spec = replace(evidence.spec, driver_version=asked, driver_branch=branch)
    return evaluate(CHECK, replace(evidence, spec=spec))


@pytest.mark.parametrize(
    ("versions", "verdicts"),
    [
        ((DRIVER, DRIVER, DRIVER), (PASS, PASS, PASS)),
        ((DRIVER, OTHER, DRIVER), (PASS, FAIL, PASS)),
        ((DRIVER, OTHER), (FAIL, FAIL)),
    ],
)
def test_where_nothing_is_asked_most_nodes_are_right(
    versions: tuple[str, ...], verdicts: tuple[Verdict, ...]
) -> None:
    assert tuple(result.verdict for result in running(*versions)) == verdicts


def test_the_odd_one_is_told_what_most_run_and_a_tie_names_both() -> None:
    odd = running(DRIVER, OTHER, DRIVER)[1]
    assert odd.because == f"driver {OTHER} is running, most nodes run {DRIVER}"
    tie = running(DRIVER, OTHER)[0]
    assert tie.because.startswith(f"nodes run {OTHER} and {DRIVER}, in equal numbers")
    third = running(DRIVER, DRIVER, OTHER, OTHER, "550.54.14")[4]
    assert third.expected == f"{OTHER} and {DRIVER}"


def test_what_the_settings_ask_for_outweighs_what_most_run() -> None:
    results = running(OTHER, OTHER, DRIVER, asked=DRIVER)
    assert [result.verdict for result in results] == [FAIL, FAIL, PASS]
    assert results[0].because == f"driver {OTHER} is running, the settings require {DRIVER}"
    assert results[2].expected == DRIVER


def test_of_a_branch_one_version_is_wanted() -> None:
    branch = DRIVER.partition(".")[0]
    results = running(OTHER, DRIVER, DRIVER, branch=branch)
    assert [result.verdict for result in results] == [FAIL, PASS, PASS]
    assert results[0].because.endswith(f"require branch {branch}")
    assert results[1].expected == branch
