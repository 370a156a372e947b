"""The whole road over real SSH: apply, apply again, plain Ansible, validate, four faults, wrong settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.lab_limits import NOT_IN_A_LAB

pytestmark = pytest.mark.lab

BOUND_S = 300.0  # a validate with a fault in it succeeds within this, whatever the fault


def records(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_second_apply_changes_nothing(applied_lab: Any) -> None:
    done = applied_lab.clusterctl("apply", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    summary = records(done.stdout)[-1]
    assert summary["type"] == "summary"
    assert summary["exit"] == 0
    assert (summary["changed"], summary["failed"], summary["unreachable"]) == (0, 0, 0)
    assert set(summary["hosts"]) == {"gpu01", "gpu02", "gpu03", "registry01"}
    for host, counts in summary["hosts"].items():
        assert counts["ok"] > 0, host
        assert counts["changed"] == counts["failed"] == 0, host
        assert counts["unreachable"] is False, host
    run = json.loads((applied_lab.cluster / ".clusterctl/runs" / summary["run"] / "run.json").read_text())
    assert run["exit_code"] == 0


def test_no_service_of_an_applied_host_has_failed(applied_lab: Any) -> None:
    for host in ("gpu01", "gpu02", "gpu03", "registry01"):
        assert applied_lab.ssh(host, "systemctl --failed --plain --no-legend") == "", host


def test_plan_finds_nothing_to_change_and_says_so(applied_lab: Any) -> None:
    done = applied_lab.clusterctl("plan", "--json")
    assert done.returncode == 0, done.stderr
    assert records(done.stdout)[-1]["changed"] == 0


@pytest.mark.drawn("the site again")
def test_plain_ansible_does_the_same(applied_lab: Any, repository: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "-i",
            str(applied_lab.cluster / "hosts.yml"),
            "playbooks/site.yml",
        ],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    recap = done.stdout[done.stdout.index("PLAY RECAP") :]
    for host in ("gpu01", "gpu02", "gpu03", "registry01"):
        line = next(line for line in recap.splitlines() if line.startswith(host))
        assert "changed=0" in line, line
        assert "failed=0" in line, line
        assert "unreachable=0" in line, line


@pytest.mark.quiet
def test_a_good_cluster_is_validated(applied_lab: Any, repository: Path) -> None:
    done = applied_lab.clusterctl("validate", "--json")
    assert done.returncode == 0, done.stderr
    document = records(done.stdout)[-1]
    jsonschema.validate(document, json.loads((repository / "docs/result.schema.json").read_text()))
    assert document["verdict"] == "pass"
    assert document["simulated"] is True
    assert document["culprits"] == []
    coverage = document["coverage"]
    assert coverage["fail"] == coverage["not_run"] == 0
    excluded = [result for result in document["results"] if result["verdict"] == "excluded"]
    assert {result["check"] for result in excluded} == NOT_IN_A_LAB, "see tests/support/lab_limits.py"
    assert all(result["because"] for result in excluded)
    assert coverage["pass"] == coverage["expected"] - len(excluded) > 0
    seen = {(r["subject"]["node"], r["subject"]["gpu"]) for r in document["results"] if r["scope"] == "gpu"}
    assert {(node, gpu) for node in ("gpu01", "gpu02", "gpu03") for gpu in range(8)} <= seen
    run = applied_lab.cluster / ".clusterctl/runs" / document["run"]
    html = (run / "report.html").read_text(encoding="utf-8")
    assert "simulated" in html.lower()
    assert 'src="http' not in html
    assert 'href="http' not in html
    assert (run / "junit.xml").is_file()
    assert json.loads((run / "result.json").read_text()) == document


def validate_with(lab: Any, *faults: tuple[str, ...]) -> tuple[int, dict[str, Any], str]:
    """Inject faults, validate, take them back. Returns exit code, document and messages.

    What one leaves behind would be blamed next to the next, which is put on another node.
    """
    for fault in faults:
        injected = lab.clusterctl("lab", "fault", "inject", *fault, at_cluster=False)
        assert injected.returncode == 0, injected.stderr
    try:
        begun = time.monotonic()
        done = lab.clusterctl("validate", "--json", timeout=BOUND_S)
        assert time.monotonic() - begun < BOUND_S
    finally:
        cleared = lab.clusterctl("lab", "fault", "clear", at_cluster=False)
    assert cleared.returncode == 0, cleared.stderr
    return done.returncode, records(done.stdout)[-1], done.stderr


def named(document: dict[str, Any]) -> set[tuple[str, str | None, int | None]]:
    return {(c["scope"], c["node"], c["gpu"]) for c in document["culprits"]}


def advised(document: dict[str, Any]) -> str:
    """Every remedy of the culprits."""
    return " ".join(culprit["remedy"] for culprit in document["culprits"])


@pytest.mark.drawn("several faults")
@pytest.mark.quiet
def test_a_missing_gpu_and_another_driver_are_each_blamed_on_their_node(applied_lab: Any) -> None:
    code, document, words = validate_with(
        applied_lab, ("gpu02", "gpu-missing", "--gpu", "3"), ("gpu03", "driver-version-skew")
    )
    assert code == 1, words
    assert document["verdict"] == "fail"
    assert named(document) == {("gpu", "gpu02", 3), ("node", "gpu03", None)}
    assert all(c["remedy"] and c["because"] for c in document["culprits"])
    assert "clusterctl apply --only driver --limit" in advised(document)
    failed = {r["check"] for r in document["results"] if r["verdict"] == "fail"}
    assert any("driver" in check for check in failed)


@pytest.mark.drawn("several faults")
@pytest.mark.quiet
def test_a_dead_node_is_named_and_what_could_not_be_judged_is_not_green(applied_lab: Any) -> None:
    code, document, words = validate_with(applied_lab, ("gpu01", "node-down"))
    assert code == 1, words
    assert ("node", "gpu01", None) in named(document)
    assert {c["node"] for c in document["culprits"]} == {"gpu01"}
    assert "power and network" in advised(document)
    assert document["coverage"]["not_run"] > 0
    green = [r for r in document["results"] if r["subject"]["node"] == "gpu01" and r["verdict"] == "pass"]
    assert green == []


@pytest.mark.drawn("several faults")
@pytest.mark.quiet
def test_a_slow_link_is_blamed_on_its_node(applied_lab: Any) -> None:
    code, document, words = validate_with(applied_lab, ("gpu02", "slow-link"))
    assert code == 1, words
    (culprit,) = document["culprits"]
    assert (culprit["scope"], culprit["node"], culprit["gpu"]) == ("node", "gpu02", None)
    assert culprit["remedy"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nvidia_driver_brunch: '580'", "nvidia_driver_branch"),
        ("nvidia_driver_flavor: closed", "proprietary"),
        ("registry_port: many", "int"),
    ],
)
def test_wrong_settings_exit_2_before_any_host_is_touched(applied_lab: Any, line: str, expected: str) -> None:
    settings = applied_lab.cluster / "group_vars/all.yml"
    before = settings.read_text(encoding="utf-8")
    # Where the key is set already, it is that line which is made wrong: a second one would be a duplicate.
    kept = [text for text in before.splitlines() if not text.startswith(line.split(":", maxsplit=1)[0] + ":")]
    settings.write_text("\n".join([*kept, line]) + "\n", encoding="utf-8")
    try:
        for command in (("apply", "--yes"), ("validate",), ("plan",), ("preflight",)):
            runs = set((applied_lab.cluster / ".clusterctl/runs").iterdir())
            done = applied_lab.clusterctl(*command)
            assert done.returncode == 2, (command, done.stderr)
            assert expected in done.stderr
            assert f"all.yml:{len(kept) + 1}" in done.stderr
            assert "Traceback" not in done.stderr
            assert set((applied_lab.cluster / ".clusterctl/runs").iterdir()) == runs
    finally:
        settings.write_text(before, encoding="utf-8")
