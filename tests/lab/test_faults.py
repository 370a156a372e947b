"""Every fault that the lab can host is found, blamed on its place, and gone when cleared.

All of them in the campaign; in an ordinary run a sample that the date chooses, or CLUSTERCTL_FAULT_SEED.
What a fault leaves behind would be blamed with the next one, which is put in place elsewhere; after the last
one test_road validates a good cluster.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from . import reliability
from .conftest import REPOSITORY, bring_up, run_clusterctl
from .fault_cases import BY_KIND, CASES, Case, sample
from .validating import (
    assert_found,
    assert_good,
    assert_warned,
    failed_of,
    power_cycle,
    validated,
    warned_of,
)

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

SEED = os.environ.get("CLUSTERCTL_FAULT_SEED") or f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
SAMPLE = 2  # two families a day
POWER_CYCLED = 4  # of each family one, in place at once
CLEAN_RUNS = int(os.environ.get("CLUSTERCTL_CLEAN_RUNS", "50"))
# These cannot be put in place next to others on one node, or nothing can next to them: what waits for
# userfaultfd (process-stuck) cannot be frozen, as a node that hangs is.
NOT_BESIDE_OTHERS = (
    "fabricmanager-stopped", "pair-slow", "disk-read-only", "node-down", "node-hung", "registry-down",
    "persistence-off", "mount-gone", "process-stuck",
)  # fmt: skip


@pytest.fixture(scope="module")
def labs(applied_lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Case], Any]]:
    """The applied lab that can have a fault: another one is brought up for each other hardware."""
    others: dict[str, Any] = {}
    with ExitStack() as stack:

        def lab_of(case: Case) -> Any:
            named = case.fault.hardware
            if named and named not in others:
                directory = tmp_path_factory.mktemp(named) / "lab"
                up = contextmanager(bring_up)(directory, "--nodes", "3", "--hardware", named)
                others[named] = stack.enter_context(up)
                others[named].done("apply", "--yes", "--canary", "0")
            return others[named] if named else applied_lab

        yield lab_of


@pytest.fixture
def broken(applied_lab: Any) -> Iterator[Any]:
    """The applied lab, for a test that breaks something: faults are cleared afterwards."""
    yield applied_lab
    applied_lab.clear_faults()


def seen(lab: Any, *cases: Case) -> dict[str, Any]:
    """The document of a validation in which these faults are in place and found."""
    for case in cases:
        lab.inject(case.node, case.kind, *case.options)
    (suite,) = {case.fault.suite for case in cases}
    code, document = validated(lab, suite=suite)
    failing = [case for case in cases if case.fault.verdict == "fail"]
    assert (code, document["verdict"]) == ((1, "fail") if failing else (0, "pass"))
    if failing:
        assert_found(document, *failing)
    else:
        for case in cases:
            assert_warned(document, case)
    return document


@pytest.mark.quiet
@pytest.mark.parametrize("case", sample(SEED, SAMPLE), ids=lambda case: f"seed {SEED}: {case.kind}")
def test_a_fault_of_the_sample_is_found_and_blamed_on_its_place(broken: Any, case: Case) -> None:
    document = seen(broken, case)
    report = broken.cluster / ".clusterctl/runs" / document["run"] / "report.md"
    words = case.remedy if document["culprits"] else case.because
    assert words in report.read_text(encoding="utf-8")


@pytest.mark.campaign
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_each_fault_is_found_and_blamed_on_its_place(labs: Callable[[Case], Any], case: Case) -> None:
    lab = labs(case)
    try:
        document = seen(lab, case)
    finally:
        lab.clear_faults()
    culprit = next((one for one in document["culprits"] if one["node"] == case.node), None)
    found = failed_of(document) if culprit else warned_of(document)
    record = {
        "node": case.node,
        "gpu": case.gpu,
        "peer": case.peer,
        "checks": reliability.checks_of(found),
        "blamed": culprit and {name: culprit[name] for name in ("scope", "node", "gpu", "peer")},
        "seconds": round(document["seconds"], 1),
    }
    reliability.keep(REPOSITORY / "docs", "faults", case.kind, record)


@pytest.mark.campaign
@pytest.mark.timeout(CLEAN_RUNS * 300)
def test_clean_runs_raise_no_alarm(applied_lab: Any) -> None:
    documents = [validated(applied_lab) for _ in range(CLEAN_RUNS)]
    alarms = [document for code, document in documents if code != 0 or document["culprits"]]
    assert [(one["run"], one["verdict"], one["culprits"]) for one in alarms] == []
    seconds = [round(document["seconds"], 1) for _, document in documents]
    record = {"alarms": len(alarms), "seconds": seconds}
    reliability.keep(REPOSITORY / "docs", "clean runs", "quick", record)


@pytest.mark.drawn("several faults")
@pytest.mark.quiet
@pytest.mark.parametrize(
    "kinds",
    [
        ("clock-skew", "mount-read-only"),
        pytest.param(("dns-broken", "inodes-full"), marks=pytest.mark.campaign),
        pytest.param(("node-hung", "registry-down"), marks=pytest.mark.campaign),
        pytest.param(("rank-killed", "rank-hang"), marks=pytest.mark.campaign),
        pytest.param(("gpu-missing", "slow-link", "remap-failed"), marks=pytest.mark.campaign),
    ],
    ids=" and ".join,
)
def test_faults_at_once_are_all_found(broken: Any, kinds: tuple[str, ...]) -> None:
    seen(broken, *(BY_KIND[kind] for kind in kinds))


def test_a_stranger_is_refused_whatever_the_kind(applied_lab: Any, tmp_path: Path) -> None:
    """The inventory means another host by that name: nothing is touched."""
    text = (applied_lab.cluster / "hosts.yml").read_text(encoding="utf-8")
    (tmp_path / "hosts.yml").write_text(
        re.sub(r"(ansible_host: ['\"]?)[0-9.]+", r"\g<1>192.0.2.7", text), encoding="utf-8"
    )
    for case in sample(SEED, SAMPLE):
        done = run_clusterctl(
            "-C", str(tmp_path), "lab", "fault", "inject", "--dir", str(applied_lab.directory),
            case.node, case.kind, *case.options,
        )  # fmt: skip
        assert done.returncode == 2, case.kind
        assert "lab.not-ours" in done.stderr, done.stderr
    assert "in place now: none" in applied_lab.lab("fault", "list").stdout


def test_a_gpu_falls_off_the_bus_as_a_real_one_does(broken: Any) -> None:
    broken.inject("gpu02", "gpu-fell-off-bus", "--gpu", "3")
    assert "Unknown header type 7f" in broken.ssh("gpu02", "lspci -vs 4e:00.0")
    assert "GPU is lost" in broken.ssh("gpu02", "nvidia-smi -q -x", check=False)
    assert broken.ssh("gpu02", "sudo journalctl -k -b --quiet | grep Xid", check=False) == ""


@pytest.mark.drawn("several faults")
@pytest.mark.quiet
@pytest.mark.parametrize(
    "cases",
    [sample(SEED, POWER_CYCLED), pytest.param(CASES, marks=pytest.mark.campaign)],
    ids=[f"sample of {SEED}", "all"],
)
def test_faults_are_cleared_after_a_power_cycle_and_twice(broken: Any, cases: list[Case]) -> None:
    # Where Docker is stopped, no image is found that could be spoiled.
    for case in sorted(cases, key=lambda case: case.kind == "docker-stopped"):
        if case.kind not in NOT_BESIDE_OTHERS and not case.fault.hardware:
            peer = ["--peer", "registry01"] if case.peer else []
            broken.inject("gpu02", case.kind, *(case.options if case.gpu is not None else peer))
    broken.inject("registry01", "registry-down")
    broken.inject("gpu02", "node-hung")
    for node in ("gpu02", "registry01"):
        power_cycle(broken, node)
    broken.lab("fault", "clear", "registry01")
    broken.lab("fault", "clear", "gpu02")
    assert "no fault is in place" in broken.lab("fault", "clear").stderr
    assert_good(broken)
