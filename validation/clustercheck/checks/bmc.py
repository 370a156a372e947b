"""What the management controller (BMC) says: its event log, its sensors, the power supplies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.ipmi import (
    BmcEvent,
    BmcSensor,
    parse_bmc_clock,
    parse_bmc_events,
    parse_bmc_sensors,
)
from clustercheck.parse.plain_text import some_of
from clustercheck.parse.reading import CannotReadError, program_output, readable
from clustercheck.samples.machine import POWER_SUPPLY_OK, bmc_event

T = TypeVar("T")
DAYS = 14.0  # as of crashes: older events are shown. Assumed
SHOWN = 3
# Of the IPMI specification's events (tables 42-2 and 42-3), as ipmitool names them: what is critical or not
# recoverable, and what says that hardware is broken.
CRITICAL_EVENTS = (
    "uncorrectable ecc", "failure detected", "power supply ac lost", "upper critical", "lower critical",
    "upper non-recoverable", "lower non-recoverable", "ierr", "thermal trip", "machine check exception",
    "bus uncorrectable error", "bus fatal error", "pci serr", "drive fault", "transition to critical",
    "transition to non-recoverable", "fault status",
)  # fmt: skip
FAILED_SUPPLY = ("failure detected", "predictive failure", "power supply ac lost", "power supply input lost")
LOST_REDUNDANCY = ("redundancy lost", "redundancy degraded", "insufficient resources")
ENTITY_POWER_SUPPLY = "10."
NO_BMC = "there is no management controller: /dev/ipmi0 is missing"
NO_PROGRAM = "ipmitool is not installed: nobody asks the management controller"


def _part(evidence: Evidence, subject: Subject) -> Mapping[str, Any] | Finding:
    """What the controller said, or why there is nothing to judge."""
    part = evidence.nodes[str(subject.node)].mapping("bmc")
    if part.get("device") is None:
        return not_applicable(NO_BMC)
    if part.get("installed") is not True:
        return not_applicable(NO_PROGRAM)
    return part


def _read(part: Mapping[str, Any], name: str, what: str, parse: Callable[[str], T]) -> tuple[T, str]:
    """What it said, and why that is not all of it. Raises CannotReadError where it does not answer."""
    record = part.get(name)
    try:
        return parse(program_output(record, what)), ""
    except CannotReadError as error:
        said = record.get("stdout") if isinstance(record, Mapping) else None
        if isinstance(record, Mapping) and record.get("rc") == 0 and not str(said or "").strip():
            return parse(""), ""  # nothing is logged
        with suppress(CannotReadError):
            if isinstance(said, str) and said.strip():
                return parse(readable(said, what)), str(error)
        raise


def _judged(finding: Finding, gap: str) -> Finding:
    """Good as far as it was read is not good."""
    if finding.verdict is Verdict.PASS and gap:
        return replace(finding, verdict=Verdict.NOT_RUN, because=f"cannot read: {gap}")
    return finding


def judge_events(evidence: Evidence, subject: Subject) -> Finding:
    """Critical events of late, of which no later one says that they are over; by the BMC's own clock."""
    part = _part(evidence, subject)
    if isinstance(part, Finding):
        return part
    found, gap = _read(part, "events", "ipmitool sel elist", parse_bmc_events)
    still = _still_critical(found)
    undated = sum(event.when is None for event in still)
    more = {"last": [*map(_told, found[-5:])], "critical": [*map(_told, still[-5:])]}
    if not [event for event in still if event.when is not None]:
        return _judged(passed(0, 0, evidence={**more, "undated": undated}), gap)
    since, text = _since(evidence, subject, part)
    fresh = [event for event in still if event.when is not None and event.when >= since]
    if fresh:
        told = "; ".join(dict.fromkeys(_told(event) for event in fresh[-SHOWN:]))
        count = f"{len(fresh)} critical event(s) {text}"
        return failed(f"{count}: {told}", len(fresh), 0, evidence=more)
    return _judged(passed(0, 0, evidence=more), gap)


def _still_critical(events: Sequence[BmcEvent]) -> list[BmcEvent]:
    """Those that are critical, and that no later entry takes back; the newest first read."""
    found, over = [], set()
    for event in reversed(events):
        if not event.asserted:
            over.add((event.sensor, event.event))
        elif (event.sensor, event.event) not in over and any(
            words in event.event.lower() for words in CRITICAL_EVENTS
        ):
            found.append(event)
    return found[::-1]


def _told(event: BmcEvent) -> str:
    when = f"{event.when:%Y-%m-%d %H:%M}" if event.when else "without a date"
    return f"{event.sensor}: {event.event} ({when})"


def _since(evidence: Evidence, subject: Subject, part: Mapping[str, Any]) -> tuple[datetime, str]:
    """From when on events count, by the controller's clock, which may be wrong and has a zone of its own."""
    now = parse_bmc_clock(program_output(part.get("clock"), "ipmitool sel time get"))
    acknowledged = evidence.declared[str(subject.node)].acknowledged
    if acknowledged is None:
        return now - timedelta(days=DAYS), f"in the last {DAYS:g} days"
    time = evidence.nodes[str(subject.node)].raw.get("clock_ended")
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not 0 <= time < 1e11:
        raise CannotReadError("the node does not report its time")
    ago = datetime.fromtimestamp(time, timezone.utc) - acknowledged
    return now - ago, "since it was acknowledged"


def judge_sensors(evidence: Evidence, subject: Subject) -> Finding:
    """Each threshold is the maker's own."""
    part = _part(evidence, subject)
    if isinstance(part, Finding):
        return part
    sensors, gap = _read(part, "sensors", "ipmitool sdr elist", parse_bmc_sensors)
    if not sensors:
        return _judged(not_applicable("the management controller has no sensor"), gap)
    wrong = [sensor for sensor in sensors if _status(sensor) in ("cr", "nr")]
    near = [f"{sensor.name}: {sensor.reading}" for sensor in sensors if _status(sensor) == "nc"]
    more = {"sensors": len(sensors), "near": near[:20]}
    if wrong:
        told = [f"{sensor.name} is {_DEGREE[_status(sensor)]} at {sensor.reading}" for sensor in wrong]
        return failed(some_of(told, SHOWN), len(wrong), 0, evidence=more)
    return _judged(passed(0, 0, evidence=more), gap)


_DEGREE = {"cr": "critical", "nr": "non-recoverable"}


def _status(sensor: BmcSensor) -> str:
    """Status without its direction: lcr and ucr are cr."""
    return sensor.status[-2:]


def judge_supplies(evidence: Evidence, subject: Subject) -> Finding:
    """A power supply that failed is noticed when the second one does."""
    part = _part(evidence, subject)
    if isinstance(part, Finding):
        return part
    sensors, gap = _read(part, "sensors", "ipmitool sdr elist", parse_bmc_sensors)
    supplies = [s for s in sensors if s.entity.startswith(ENTITY_POWER_SUPPLY) and "detected" in s.reading]
    redundancy = [s for s in sensors if "redundan" in s.reading.lower() and _of_power(s)]
    wrong = [s for s in supplies if any(words in s.reading.lower() for words in FAILED_SUPPLY)]
    wrong += [s for s in redundancy if any(words in s.reading.lower() for words in LOST_REDUNDANCY)]
    more = {"supplies": {f"{s.name} {s.entity}": s.reading for s in (supplies + redundancy)[:32]}}
    if wrong:
        told = "; ".join(f"{s.name} ({s.entity}): {s.reading}" for s in wrong)
        return failed(told, f"{len(supplies)} power supplies", "none failed, redundancy kept", evidence=more)
    if not supplies and not redundancy:
        return _judged(not_applicable("the management controller has no sensor of power supplies"), gap)
    return _judged(passed(f"{len(supplies)} power supplies", "none failed", evidence=more), gap)


def _of_power(sensor: BmcSensor) -> bool:
    """Entities of IPMI's table 43-13: power supply, power unit, power management, power system board."""
    of = sensor.entity.partition(".")[0]
    return of in ("10", "19", "21") or sensor.name.upper().startswith(("PS", "POWER", "PWR"))


def _says(node: str, event: str, *, days_ago: float = 1.0, sensor: str = "Memory DIMM_A1") -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        raw["bmc"]["events"]["stdout"] += bmc_event(sensor, event, days_ago)

    return seeding.edit(node, change)


def _sensor(node: str, old: str, new: str) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        said = raw["bmc"]["sensors"]["stdout"]
        if old not in said:
            raise LookupError(f"no sensor says {old!r}")
        raw["bmc"]["sensors"]["stdout"] = said.replace(old, new, 1)

    return seeding.edit(node, change)


def _hangs(node: str, part: str) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["bmc"][part].update(rc=None, stdout="", timed_out=True))


_REQUIRES = "a management controller (/dev/ipmi0) and ipmitool; without them n/a"
_HEAT = "| ok  |  7.1 | 24 degrees C"
_TOO_HOT, _MELTING = "| cr  |  7.1 | 46 degrees C", "| nr  |  7.1 | 60 degrees C"
_FAILED = f"{POWER_SUPPLY_OK}, Failure detected"
EVENTS = Check(
    id="bmc-events",
    title="Events of the BMC",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures=f"critical and non-recoverable events that the BMC logged in the last {DAYS:g} days, or since "
    "acknowledged, and that are not over",
    method="the last 256 of `ipmitool sel elist`, in-band, by the BMC's own clock",
    requires=_REQUIRES,
    expectation=f"none (what is critical: IPMI's sensor-specific events; the {DAYS:g} days are assumed); "
    "what has no date is shown",
    remedy=(
        "`ipmitool sel elist` and the vendor's tool say which part it is: have it replaced. Then record that "
        "it was seen to (validate --acknowledge NODE) and count from then on (--since-ack)."
    ),
    subjects=every_node,
    judge=judge_events,
    faults=(
        SeededFault("uncorrectable-ecc", _says("gpu02", "Uncorrectable ECC"), Subject("gpu02")),
        SeededFault("just-within-the-days", _says("gpu01", "Bus Fatal Error", days_ago=DAYS * 0.95),
                    Subject("gpu01")),
        SeededFault("too-hot", _says("gpu03", "Upper Critical going high", sensor="Temperature Inlet"),
                    Subject("gpu03")),
        SeededFault("bmc-hangs", _hangs("gpu01", "events"), Subject("gpu01"), Verdict.NOT_RUN),
        SeededFault(
            "no-bmc", seeding.edit("gpu01", lambda raw: raw.update(bmc={"device": None})), Subject("gpu01"),
            Verdict.EXCLUDED,
        ),
    ),
)  # fmt: skip
SENSORS = Check(
    id="bmc-sensors",
    title="Sensors of the BMC",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="temperatures, voltages and fans that are beyond a critical or non-recoverable limit",
    method="status of each sensor of `ipmitool sdr elist`, in-band",
    requires=_REQUIRES,
    expectation="no status cr or nr, by the limits that the server's maker has set in the BMC",
    remedy=(
        "Fans: replace the one that stands still. Temperatures: look at air flow, blanking panels and the "
        "inlet. Voltages: board or power supply. `ipmitool sensor` shows each limit."
    ),
    subjects=every_node,
    judge=judge_sensors,
    faults=(
        SeededFault("inlet-critical", _sensor("gpu02", _HEAT, _TOO_HOT), Subject("gpu02")),
        SeededFault("inlet-non-recoverable", _sensor("gpu01", _HEAT, _MELTING),
                    Subject("gpu01")),
        SeededFault("bmc-hangs", _hangs("gpu03", "sensors"), Subject("gpu03"), Verdict.NOT_RUN),
    ),
)  # fmt: skip
SUPPLIES = Check(
    id="power-supplies",
    title="Power supplies",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    severity=Severity.MAJOR,
    measures="failed power supplies, supplies without input, and lost redundancy",
    method="sensors of entity 10 (power supply) and their redundancy in `ipmitool sdr elist`, in-band",
    requires=_REQUIRES,
    expectation="no failure, input on every supply that is there, and no redundancy that is lost or degraded",
    remedy=(
        "Check its cable, feed and breaker; if input is there, replace the supply. Without redundancy the "
        "GPUs may be slowed down (power brake), and the next failure stops the node."
    ),
    subjects=every_node,
    judge=judge_supplies,
    faults=(
        SeededFault("supply-failed", _sensor("gpu02", POWER_SUPPLY_OK, _FAILED),
                    Subject("gpu02")),
        SeededFault(
            "input-lost", _sensor("gpu01", POWER_SUPPLY_OK, f"{POWER_SUPPLY_OK}, Power Supply AC lost"),
            Subject("gpu01"),
        ),
        SeededFault("redundancy-lost", _sensor("gpu03", "Fully Redundant", "Redundancy Lost"),
                    Subject("gpu03")),
        SeededFault(
            "redundancy-lost-in-what-was-read",
            seeding.chain(
                _sensor("gpu03", "Fully Redundant", "Redundancy Degraded"),
                seeding.edit("gpu03", lambda raw: raw["bmc"]["sensors"].update(rc=None, timed_out=True)),
            ),
            Subject("gpu03"),
        ),
        SeededFault("bmc-hangs", _hangs("gpu03", "sensors"), Subject("gpu03"), Verdict.NOT_RUN),
    ),
)  # fmt: skip
CHECKS = (EVENTS, SENSORS, SUPPLIES)
