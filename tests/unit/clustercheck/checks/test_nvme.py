"""NVMe drives: how many there are, and what each says of itself in the words of two programs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.nvme import WORN
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Result, Verdict
from clustercheck.parse.nvme import NvmeHealth, parse_smart
from clustercheck.parse.reading import CannotReadError
from clustercheck.probe.nvme import nvme
from clustercheck.samples import sample
from clustercheck.samples.machine import smart_log

PASS, FAIL, WARNING = Verdict.PASS, Verdict.FAIL, Verdict.WARNING
NOT_RUN, EXCLUDED = Verdict.NOT_RUN, Verdict.EXCLUDED


def judged(evidence: Evidence) -> Result:
    return evaluate(BY_ID["nvme"], evidence)[0]


def with_drive(number: int = 0, **fields: Any) -> seeding.Inject:
    return seeding.edit("gpu01", lambda raw: raw["nvme"][number].update(fields))


def saying(**fields: Any) -> Evidence:
    answer = {"rc": 0, "stdout": smart_log(**fields), "stderr": ""}
    return with_drive(smart=answer)(sample.healthy(1))


def declared(evidence: Evidence, count: int | None) -> Evidence:
    nodes = tuple(replace(node, nvme=count) for node in evidence.spec.nodes)
    return replace(evidence, spec=replace(evidence.spec, nodes=nodes))


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, PASS),
        ({"percent_used": round(WORN * 0.95)}, PASS),
        ({"percent_used": WORN}, WARNING),
        ({"percent_used": round(WORN * 1.05)}, WARNING),
        ({"media_errors": 1}, WARNING),
        ({"avail_spare": 10}, PASS),
        ({"avail_spare": 9}, FAIL),
        *(({"critical_warning": 1 << bit}, FAIL) for bit in range(8)),
        ({"critical_warning": 4, "media_errors": 3}, FAIL),
        ({"critical_warning": {"value": 0, "available_spare": 0}}, PASS),
        ({"media_errors": "340282366920938463463374607431768211455"}, WARNING),
        ({"media_errors": None}, NOT_RUN),
        ({"critical_warning": -1}, NOT_RUN),
    ],
)
def test_a_drive_is_judged_by_what_it_says(fields: dict[str, Any], verdict: Verdict) -> None:
    assert judged(saying(**fields)).verdict is verdict


@pytest.mark.parametrize(("count", "verdict"), [(None, EXCLUDED), (0, PASS), (1, PASS), (2, PASS), (3, FAIL)])
def test_there_are_as_many_as_declared(count: int | None, verdict: Verdict) -> None:
    result = judged(declared(sample.healthy(1), count))
    assert result.verdict is verdict
    assert (
        result.evidence["drives"]["nvme1"] == "Maker NVMe 3840, 0000:23:00.0, live, 3 % used, 0 media errors"
    )


def test_what_is_not_declared_is_shown_and_not_judged() -> None:
    result = judged(declared(saying(critical_warning=8), None))
    assert result.verdict is EXCLUDED and "hardware_nvme is not set" in result.because


def test_a_drive_that_is_dead_fails_and_a_container_has_none_of_its_own() -> None:
    dead = with_drive(1, state="dead", smart=None)(sample.healthy(1))
    assert judged(dead).because == "1 NVMe drives, 2 declared; nvme1 is dead"
    contain = seeding.edit("gpu01", lambda raw: raw["virtual"].update(rc=0, stdout="docker\n"))
    assert judged(contain(dead)).verdict is EXCLUDED
    in_kvm = seeding.edit("gpu01", lambda raw: raw["virtual"].update(rc=0, stdout="kvm\n"))
    assert judged(in_kvm(dead)).verdict is FAIL


def test_without_a_program_the_state_counts_and_the_report_says_so() -> None:
    missing = {"rc": None, "stdout": "", "stderr": "", "missing": True}
    result = judged(with_drive(smart=missing)(sample.healthy(1)))
    assert result.verdict is PASS and "SMART not read" in str(result.measured)
    silent = judged(with_drive(smart={"rc": None, "timed_out": True})(sample.healthy(1)))
    assert silent.verdict is NOT_RUN and silent.because.startswith("cannot read: nvme0:")
    both = seeding.chain(with_drive(smart=None), with_drive(1, state="resetting"))
    assert judged(both(sample.healthy(1))).verdict is FAIL


def test_both_programs_are_read() -> None:
    smartctl = {
        "smart_status": {"passed": False},
        "nvme_smart_health_information_log": {
            "critical_warning": 4, "available_spare": 90, "available_spare_threshold": 5,
            "percentage_used": 12, "media_errors": 7,
        },
    }  # fmt: skip
    # 8: the drive's health is bad, which it says in its log too.
    health = parse_smart({"rc": 8, "stdout": json.dumps(smartctl), "stderr": ""})
    assert health == NvmeHealth(critical=4, used=12, media_errors=7, spare=90, spare_threshold=5)
    assert health.warnings == ("reliability degraded",)
    assert parse_smart({"rc": 0, "stdout": smart_log()}).used == 3
    for rc, stdout in ((2, json.dumps(smartctl)), (0, "[]"), (0, "{"), (0, '{"x": 1}'), (0, "")):
        with pytest.raises(CannotReadError):
            parse_smart({"rc": rc, "stdout": stdout})


def drive(root: Path, name: str, **files: str) -> None:
    at = root / "sys/class/nvme" / name
    at.mkdir(parents=True)
    for file, text in {"state": "live", "transport": "pcie", "model": "Maker 1 ", **files}.items():
        (at / file).write_text(text + "\n")


def test_drives_on_pci_express_are_asked_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(tmp_path, "nvme0", address="0000:22:00.0")
    drive(tmp_path, "nvme1", transport="tcp")
    drive(tmp_path, "nvme2", state="dead")
    (tmp_path / "sys/class/nvme/nvme-subsystem").mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/nowhere")
    assert nvme(5.0, str(tmp_path))[0]["smart"]["missing"] is True
    for name in ("smartctl", "nvme"):  # the first that is there is asked
        (programs / name).write_text(f"#!/bin/sh\necho {name} $*\n")
        (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.defpath}")
        first, second = nvme(5.0, str(tmp_path))
        assert first["smart"]["stdout"].startswith(name) and "/dev/nvme0" in first["smart"]["stdout"]
        assert (first["model"], first["address"]) == ("Maker 1", "0000:22:00.0")
        assert (second["name"], second["state"], second["smart"]) == ("nvme2", "dead", None)
    assert nvme(5.0, str(tmp_path / "none")) == []


def test_a_dead_drive_fails_where_as_many_as_declared_are_live() -> None:
    evidence = with_drive(state="dead", smart=None)(sample.healthy(1))
    drives = len(evidence.nodes["gpu01"].raw["nvme"])
    result = judged(declared(evidence, drives - 1))
    assert (result.verdict, "is dead" in result.because) == (FAIL, True)
    assert "declared" not in result.because
