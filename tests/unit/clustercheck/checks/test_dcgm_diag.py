"""DCGM's diagnostic: who is given it, how it is ended, and that a failed exit code is read all the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.transport import Completed, NodeUnreachableError
from clustercheck.model import Verdict
from clustercheck.probe import dcgm as probe
from clustercheck.running import suites
from clustercheck.running.diagnose import run_dcgm_diagnostic
from clustercheck.samples import sample
from clustercheck.samples.dcgm import dcgm4_text

SUITE = suites.load("standard")


class Nodes:
    """Nodes that answer the second probe as they are told to; what each was asked is kept."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: dict[str, dict[str, Any]] = {}

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        self.asked[node] = json.loads(argv[3])
        answer = self.answers.get(node, sample.program(dcgm4_text(8)))
        if isinstance(answer, Exception):
            raise answer
        part = {"version": sample.program("version: 4.2.3\n"), "level": "2", "diag": answer}
        return Completed(0, json.dumps({"probe": 1, "errors": {}, "dcgm": part}) + "\n", "")


def before(evidence: Evidence | None = None) -> Evidence:
    """What is known before the diagnostic: its version alone."""
    found = evidence or sample.healthy()
    for node in found.nodes:
        found = seeding.edit(
            node, lambda raw: [raw["dcgm"].pop(name, None) for name in ("diag", "level")] and None
        )(found)
    return found


def verdicts(evidence: Evidence) -> dict[str | None, set[Verdict]]:
    found: dict[str | None, set[Verdict]] = {}
    for result in evaluate(BY_ID["dcgm-diag"], evidence):
        found.setdefault(result.subject.node, set()).add(result.verdict)
    return found


def test_idle_nodes_with_dcgm_get_it_at_the_suites_level() -> None:
    nodes = Nodes(gpu02=dict(sample.program(dcgm4_text(8, memory={1: "Fail"})), rc=226))
    found = run_dcgm_diagnostic(SUITE, before(), nodes)
    assert nodes.asked["gpu01"]["dcgm"] == {"level": 2, "limit_s": 300}
    assert nodes.asked["gpu01"]["parts"] == ["dcgm"]
    assert verdicts(found) == {
        "gpu01": {Verdict.PASS},
        "gpu02": {Verdict.PASS, Verdict.FAIL},
        "gpu03": {Verdict.PASS},
    }


def test_busy_nodes_and_those_without_it_are_left_alone_and_said() -> None:
    evidence = replace(before(), left_out={"gpu01": "the node is busy: Slurm job(s): 7"})
    evidence = seeding.edit("gpu02", lambda raw: raw["dcgm"]["version"].update(missing=True))(evidence)
    nodes = Nodes()
    found = run_dcgm_diagnostic(SUITE, evidence, nodes)
    assert set(nodes.asked) == {"gpu03"}
    assert verdicts(found) == {
        "gpu01": {Verdict.NOT_RUN},
        "gpu02": {Verdict.EXCLUDED},
        "gpu03": {Verdict.PASS},
    }


def test_a_node_that_is_lost_meanwhile_is_not_run_and_keeps_what_it_said_before() -> None:
    found = run_dcgm_diagnostic(
        SUITE, before(), Nodes(gpu02=NodeUnreachableError("gpu02", "no route to host"))
    )
    assert verdicts(found)["gpu02"] == {Verdict.NOT_RUN}
    because = [r.because for r in evaluate(BY_ID["dcgm-diag"], found) if r.subject.node == "gpu02"]
    assert "no route to host" in because[0]
    assert evaluate(BY_ID["gpu-ecc"], found)[8].verdict is Verdict.PASS


def test_a_suite_without_it_asks_nobody_and_is_not_green() -> None:
    nodes = Nodes()
    found = run_dcgm_diagnostic(SUITE.model_copy(update={"dcgm": None}), before(), nodes)
    assert nodes.asked == {}
    assert set.union(*verdicts(found).values()) == {Verdict.NOT_RUN}


def test_what_every_gpu_skipped_is_no_pass() -> None:
    text = dcgm4_text(8).replace('"status": "Pass"', '"status": "Skip"')
    found = run_dcgm_diagnostic(SUITE, before(), Nodes(gpu01=sample.program(text)))
    assert verdicts(found)["gpu01"] == {Verdict.NOT_RUN}


def test_a_test_that_was_skipped_beside_others_that_passed_takes_no_pass_away() -> None:
    whole = json.loads(dcgm4_text(8))
    tests = whole["DCGM Diagnostic"]["test_categories"][1]["tests"]
    tests.append({**json.loads(json.dumps(tests[0]).replace('"Pass"', '"Skip"')), "name": "pcie"})
    found = run_dcgm_diagnostic(SUITE, before(), Nodes(gpu01=sample.program(json.dumps(whole))))
    assert verdicts(found)["gpu01"] == {Verdict.PASS}
    of_node = [r for r in evaluate(BY_ID["dcgm-diag"], found) if r.subject.node == "gpu01"]
    assert all("pcie" in result.evidence["skipped"] for result in of_node)


@pytest.mark.parametrize(("word", "verdict"), [("Pass", Verdict.PASS), ("Skip", Verdict.NOT_RUN)])
def test_level_1_may_test_no_gpu_and_yet_something(word: str, verdict: Verdict) -> None:
    """It may have tests of the software alone; that none of these ran is no pass either."""
    whole = json.loads(dcgm4_text(8).replace('"Pass"', f'"{word}"'))
    del whole["DCGM Diagnostic"]["test_categories"][1:]
    said = {"level": "1", "diag": sample.program(json.dumps(whole))}
    evidence = seeding.edit("gpu01", lambda raw: raw["dcgm"].update(said))(sample.healthy(1))
    assert verdicts(evidence) == {"gpu01": {verdict}}


def test_with_mig_there_is_no_diagnostic() -> None:
    mig = seeding.smi("gpu01", 4, "mig_mode/current_mig", "Enabled")(sample.healthy(1))
    assert evaluate(BY_ID["dcgm-diag"], mig)[4].verdict is Verdict.EXCLUDED


# --- the probe

FAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo "version: 4.2.3"; exit 0; fi
echo "$@" >>"$0.called"
trap 'echo stopped >>"$0.called"; exit 1' INT
%s
"""


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> Path:
    program = tmp_path / "dcgmi"
    program.write_text(FAKE % does)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "dcgmi.called"


def test_the_probe_runs_nothing_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = fake(tmp_path, monkeypatch, "echo '{}'")
    assert "diag" not in probe.dcgm({}, 5.0)
    assert not called.exists()
    asked = probe.dcgm({"dcgm": {"level": 3, "limit_s": 5}}, 5.0)
    assert (asked["level"], asked["diag"]["stdout"], asked["diag"]["rc"]) == ("3", "{}\n", 0)
    assert called.read_text() == "diag -r 3 -j\n"


def test_a_diagnostic_that_takes_too_long_is_interrupted_so_that_it_stops_in_its_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = fake(tmp_path, monkeypatch, "while :; do sleep 0.1; done")
    asked = probe.dcgm({"dcgm": {"level": 1, "limit_s": 0.5}}, 5.0)
    assert asked["diag"]["timed_out"] is True
    assert called.read_text().splitlines() == ["diag -r 1 -j", "stopped"]


def test_where_it_is_not_installed_that_is_all_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probe.dcgm({"dcgm": {"level": 1, "limit_s": 5}}, 5.0)
    assert found["version"]["missing"] is True and "diag" not in found
