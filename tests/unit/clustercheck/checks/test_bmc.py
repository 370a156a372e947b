"""What a management controller says, in the words of ipmitool: events, sensors, power supplies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.bmc import CRITICAL_EVENTS, DAYS
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.shipment import shipment
from clustercheck.model import Result, Verdict
from clustercheck.parse.ipmi import parse_bmc_clock, parse_bmc_events, parse_bmc_sensors
from clustercheck.parse.reading import CannotReadError
from clustercheck.probe import bmc
from clustercheck.samples import sample
from clustercheck.samples.machine import BMC_NOW, SENSORS, bmc_event

PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED
IDS = ("bmc-events", "bmc-sensors", "power-supplies")


def judged(check: str, evidence: Evidence) -> Result:
    return evaluate(BY_ID[check], evidence)[0]


def saying(**said: str) -> Evidence:
    def change(raw: seeding.Raw) -> None:
        for part, stdout in said.items():
            raw["bmc"][part]["stdout"] = stdout

    return seeding.edit("gpu01", change)(sample.healthy(1))


@pytest.mark.parametrize(
    ("line", "when", "asserted"),
    [
        (" 2e | 09/08/2021 | 06:34:16 | Power Supply PS2 | Power Supply AC lost | Asserted", 2021, True),
        (" 2e | 09/08/21 | 06:34:16 UTC | Power Supply PS2 | Power Supply AC lost | Deasserted", 2021, False),
        (" 2e |  Pre-Init  |0000000093| Power Supply PS2 | Power Supply AC lost | Asserted", None, True),
        (" 2e | 09/08/2021 | 06:34:16 | Power Supply PS2 | Power Supply AC lost | Asserted | x", 2021, True),
    ],
)
def test_events_of_both_releases_are_read(line: str, when: int | None, asserted: bool) -> None:
    (event,) = parse_bmc_events(line + "\n")
    assert (event.when and event.when.year) == when
    assert (event.sensor, event.event, event.asserted) == (
        "Power Supply PS2",
        "Power Supply AC lost",
        asserted,
    )


def test_an_empty_log_and_records_of_a_makers_own_form_have_no_events() -> None:
    assert parse_bmc_events("") == parse_bmc_events("SEL has no entries\n") == ()
    assert parse_bmc_events("  1 | OEM record c0 | 000137 | 0000aabb\n") == ()
    for wrong in ("Get SEL Info command failed\n", "a | b\n"):
        with pytest.raises(CannotReadError):
            parse_bmc_events(wrong)
    with pytest.raises(CannotReadError):
        parse_bmc_sensors("Unable to open SDR for reading\n")
    assert parse_bmc_clock("11/18/26 15:13:20 UTC\n") == BMC_NOW
    for wrong in ("13/45/2026 15:13:20", "now", ""):
        with pytest.raises(CannotReadError):
            parse_bmc_clock(wrong)


@pytest.mark.parametrize(
    ("days_ago", "verdict"), [(0, FAIL), (DAYS * 0.95, FAIL), (DAYS * 1.05, PASS), (400, PASS)]
)
def test_an_event_counts_for_some_days_by_the_clock_of_the_bmc(days_ago: float, verdict: Verdict) -> None:
    assert judged("bmc-events", saying(events=bmc_event("CPU1", "IERR", days_ago))).verdict is verdict
    # A clock that was never set: events and clock are wrong alike.
    then = BMC_NOW.replace(year=1970) - timedelta(days=days_ago)
    line = f"1 | {then:%m/%d/%Y | %H:%M:%S} | CPU1 | IERR | Asserted"
    assert judged("bmc-events", saying(events=line, clock="11/18/1970 15:13:20")).verdict is verdict


def test_what_was_acknowledged_and_what_is_over_does_not_count() -> None:
    evidence = saying(events=bmc_event("PS1", "Power Supply AC lost", 3))
    ended = datetime.fromtimestamp(sample.NOON, UTC)
    for days_ago, verdict in ((4, FAIL), (2, PASS)):
        node = replace(evidence.spec.nodes[0], acknowledged=ended - timedelta(days=days_ago))
        seen_to = replace(evidence, spec=replace(evidence.spec, nodes=(node,)))
        assert judged("bmc-events", seen_to).verdict is verdict
    lost, back = (
        bmc_event("PS1", "Power Supply AC lost", 3 - n, way)
        for n, way in enumerate(("Asserted", "Deasserted"))
    )
    assert judged("bmc-events", saying(events=lost + back)).verdict is PASS
    assert judged("bmc-events", saying(events=lost + back.replace("PS1", "PS2"))).verdict is FAIL
    assert judged("bmc-events", saying(events=lost + back + lost)).verdict is FAIL


@pytest.mark.parametrize("event", ["Upper Non-critical going high", "Correctable ECC", "S0/G0: working"])
def test_what_is_not_critical_is_shown(event: str) -> None:
    result = judged("bmc-events", saying(events=bmc_event("Some sensor", event, 1)))
    assert result.verdict is PASS and event in result.evidence["last"][0]
    assert all(words == words.lower() for words in CRITICAL_EVENTS)


@pytest.mark.parametrize(
    ("status", "verdict"), [("ok", PASS), ("nc", PASS), ("cr", FAIL), ("nr", FAIL), ("ucr", FAIL)]
)
def test_sensors_are_judged_by_their_status(status: str, verdict: Verdict) -> None:
    said = SENSORS.replace("| ok  | 29.1", f"| {status}  | 29.1")
    result = judged("bmc-sensors", saying(sensors=said))
    assert result.verdict is verdict
    assert ("FAN1" in result.because) is (verdict is FAIL)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("x", "x", PASS),
        ("10.2 | Presence detected", "10.2 | Presence detected, Power Supply AC lost", FAIL),
        ("10.2 | Presence detected", "10.2 | Presence detected, Predictive failure", FAIL),
        ("Fully Redundant", "Non-Redundant: Insufficient Resources", FAIL),
        ("Fully Redundant", "Redundancy Degraded", FAIL),
        ("Fully Redundant", "Non-Redundant: Sufficient from Insufficient", PASS),  # so it was bought
        (
            "PS Redundancy    | 77h | ok  |  7.1 | Fully Redundant",
            "FAN Redundancy | 77h | ok | 7.1 | Redundancy Lost",
            PASS,
        ),
        ("PS2 Status", "Some supply", PASS),
    ],
)
def test_power_supplies_are_judged_by_what_each_says(old: str, new: str, verdict: Verdict) -> None:
    assert judged("power-supplies", saying(sensors=SENSORS.replace(old, new))).verdict is verdict


def test_a_bmc_that_tells_of_redundancy_alone_is_judged_by_it() -> None:
    redundancy = "PS Redundancy    | 77h | ok  |  7.1 | Fully Redundant\n"
    assert judged("power-supplies", saying(sensors=redundancy)).verdict is PASS
    lost = redundancy.replace("Fully Redundant", "Redundancy Lost")
    assert judged("power-supplies", saying(sensors=lost)).verdict is FAIL


def test_without_a_bmc_its_program_or_its_sensors_nothing_is_judged() -> None:
    for without in ({"device": None}, {"device": "/dev/ipmi0", "installed": False}):
        change = lambda raw, without=without: raw.update(bmc=without)  # noqa: E731
        evidence = seeding.edit("gpu01", change)(sample.healthy(1))
        assert {judged(check, evidence).verdict for check in IDS} == {EXCLUDED}
    bare = saying(sensors="", events="")
    assert [judged(check, bare).verdict for check in IDS] == [PASS, EXCLUDED, EXCLUDED]


def test_a_bmc_that_hangs_is_not_green_and_what_it_said_before_counts() -> None:
    def hang(raw: seeding.Raw) -> None:
        for part in ("events", "sensors"):
            raw["bmc"][part].update(rc=None, timed_out=True)

    hung = seeding.edit("gpu01", hang)
    assert {judged(check, hung(sample.healthy(1))).verdict for check in IDS} == {NOT_RUN}
    bad = hung(saying(events=bmc_event("CPU1", "IERR", 1), sensors=SENSORS.replace("| ok ", "| nr ")))
    assert [judged(check, bad).verdict for check in IDS[:2]] == [FAIL, FAIL]


IPMITOOL = """#!/bin/sh
case "$*" in
'sdr dump '*) echo known > "$3" ;;
'mc info') echo 'Firmware Revision : 1.73' ;;
*'sel time get') echo '11/18/2026 15:13:20' ;;
'-S '*' sel elist last 256') cat "$2" ;;
'-S '*' sdr elist') yes 'FAN1 | 30h | ok | 29.1 | 9800 RPM' | head -c 200000 ;;
*) exit 1 ;;
esac
"""


def test_the_bmc_is_asked_by_ipmitool_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ipmitool"
    program.write_text(IPMITOOL)
    program.chmod(0o755)
    monkeypatch.setattr(bmc, "DEVICES", (str(tmp_path),))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = bmc.bmc(30.0)
    assert (found["device"], found["installed"]) == (str(tmp_path), True)
    assert found["events"]["stdout"] == "known\n"  # asked with what was dumped first
    assert found["clock"]["stdout"] == "11/18/2026 15:13:20\n"
    assert len(found["sensors"]["stdout"]) == bmc.KEEP
    assert found["controller"]["stdout"] == "Firmware Revision : 1.73\n"
    monkeypatch.setenv("PATH", "/nowhere")
    assert bmc.bmc(5.0) == {"device": str(tmp_path), "installed": False}
    monkeypatch.setattr(bmc, "DEVICES", ())
    assert bmc.bmc(5.0)["device"] is None


def test_the_probe_has_it_as_a_part() -> None:
    options = json.dumps({"parts": ["bmc", "crashes", "processes"]})
    ran = subprocess.run(
        [sys.executable, "-I", "-", options],
        input=shipment("probe"),
        capture_output=True,
        text=True,
        check=True,
    )
    record: dict[str, Any] = json.loads(ran.stdout)
    assert record["errors"] == {} and {"bmc", "crashes", "processes"} <= set(record)


def test_a_bmc_that_hangs_takes_the_limit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ipmitool"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    limits: list[float] = []
    real = bmc.command

    def command(argv: list[str], limit_s: float) -> dict[str, Any]:
        limits.append(limit_s)
        return real(argv, limit_s)

    monkeypatch.setattr(bmc, "command", command)
    monkeypatch.setattr(bmc, "DEVICES", (str(tmp_path),))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = bmc.bmc(0.4)
    assert limits[0] <= 0.4 and limits[1:] == [0.1] * 4  # nothing is left for the others
    assert all(found[part]["timed_out"] for part in ("clock", "events", "sensors"))
    record = seeding.edit("gpu01", lambda raw: raw.update(bmc=found))(sample.healthy(1))
    assert {judged(check, record).verdict for check in IDS} == {NOT_RUN}
