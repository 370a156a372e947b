"""All findings about all hosts at once, before anything is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator

from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.untrusted import HostAnswer, Message, Sentence, read_answer_as
from clusterctl.engine.failure_kinds import UNREADABLE, kind_of
from clusterctl.engine.lease import Lease, from_record
from clusterctl.engine.ledger import BAD, HostRecord, HostState
from clusterctl.engine.playbook import PlaybookOutcome
from clusterctl.rollout.session import Session, WaveLimits, play

PLAYBOOK = "preflight.yml"
TIME_LIMIT_S = 900.0
# Of its facts, and of what needs no root; so that a host that hangs fails alone.
TASK_LIMIT_S = 240
LONGEST = 2000  # characters of each text of a finding, which is one line


def _as_text(value: Any) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# Text, or what is told as text.
Described = Annotated[Message, BeforeValidator(_as_text)]


class PreflightSeverity(StrEnum):
    """An error stops what would change hosts; a warning is said; an info is for who asks."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


ORDER = {PreflightSeverity.ERROR: 0, PreflightSeverity.WARNING: 1, PreflightSeverity.INFO: 2}


@dataclass(frozen=True)
class PreflightFinding:
    """One thing found on one host, what it should be, and what to do.

    ``code`` is that of the failure that an error leads to, if `clusterctl.engine.failure_kinds` knows it.
    """

    host: str
    severity: PreflightSeverity
    subject: str
    found: str
    expected: str = ""
    remedy: str = ""
    code: str = ""

    def as_record(self) -> dict[str, Any]:
        """For --json and the run's summary."""
        return {"type": "finding", **asdict(self), "severity": self.severity.value}


@dataclass(frozen=True)
class PreflightReport:
    """Findings, the worst first, and what else the hosts said: who uses them, whose run changes them."""

    findings: tuple[PreflightFinding, ...]
    states: Mapping[str, HostState]
    busy: Mapping[str, str]
    leases: Mapping[str, Lease]
    interrupted: bool = False

    @property
    def unfit(self) -> dict[str, HostState]:
        """Hosts with an error: unreachable where that is the error, else failed."""
        dead = HostState.UNREACHABLE
        return {f.host: dead if self.states[f.host] is dead else HostState.FAILED for f in self.errors}

    @property
    def errors(self) -> tuple[PreflightFinding, ...]:
        """Findings that stop an apply."""
        return tuple(f for f in self.findings if f.severity is PreflightSeverity.ERROR)

    def of(self, hosts: Collection[str]) -> PreflightReport:
        """What it says of these hosts alone."""
        return PreflightReport(
            tuple(finding for finding in self.findings if finding.host in hosts),
            {host: state for host, state in self.states.items() if host in hosts},
            {host: why for host, why in self.busy.items() if host in hosts},
            {host: lease for host, lease in self.leases.items() if host in hosts},
            self.interrupted,
        )

    def updated(self, newer: PreflightReport) -> PreflightReport:
        """The same report, with what a newer one says of its hosts."""
        kept = self.of(self.states.keys() - newer.states.keys())
        return PreflightReport(
            tuple(sorted((*kept.findings, *newer.findings), key=lambda finding: ORDER[finding.severity])),
            {**self.states, **newer.states},
            {**kept.busy, **newer.busy},
            {**kept.leases, **newer.leases},
            self.interrupted or newer.interrupted,
        )


def run_preflight(session: Session, hosts: Sequence[str]) -> PreflightReport:
    """Run the preflight playbook on all hosts at once; on none it has nothing to say."""
    if not hosts:
        return PreflightReport((), {}, {}, {})
    outcome = play(session, PLAYBOOK, hosts, limits=WaveLimits(TIME_LIMIT_S, task_s=TASK_LIMIT_S))
    return report_of(outcome)


def report_of(outcome: PlaybookOutcome) -> PreflightReport:
    """Findings of a preflight run; a host that failed, or said nothing, is an error of its own."""
    findings: list[PreflightFinding] = []
    for name, one in outcome.ledger.hosts.items():
        lines = _findings_or_why_not(name, one.findings)
        findings += list(dict.fromkeys(lines))
        state = outcome.states[name]
        explained = state is HostState.FAILED and any(f.severity is PreflightSeverity.ERROR for f in lines)
        ended_by_us = state is HostState.INTERRUPTED and outcome.interrupted
        if state in BAD and not ended_by_us and not explained:
            remedy = one.failure.remedy if one.failure else "See ansible.log of this run."
            because = one.failure.message if one.failure else outcome.reasons[name]
            findings.append(
                PreflightFinding(
                    name,
                    PreflightSeverity.ERROR,
                    SUBJECTS.get(state, "preflight"),
                    because,
                    remedy=remedy,
                    code=one.failure.code if one.failure else "",
                )
            )
    hosts = {name: number for number, name in enumerate(outcome.ledger.hosts)}
    findings.sort(key=lambda f: (ORDER[f.severity], hosts[f.host]))
    ledger = outcome.ledger.hosts.items()
    return PreflightReport(
        findings=tuple(findings),
        states=outcome.states,
        busy={name: one.busy for name, one in ledger if one.busy},
        leases={name: lease for name, one in ledger if (lease := _lease(one))},
        interrupted=outcome.interrupted,
    )


SUBJECTS = {HostState.UNREACHABLE: "reach", HostState.SILENT: "answer"}


class FindingRecord(HostAnswer):
    """A finding as the module returns it; an unknown severity counts as an error."""

    severity: Sentence = ""
    subject: Sentence = ""
    found: Described = ""
    expected: Described = ""
    remedy: Described = ""
    code: Any = ""


def _findings_or_why_not(host: str, records: Iterable[Mapping[str, Any]]) -> list[PreflightFinding]:
    """The findings; one error in their place where they cannot be read."""
    try:
        return findings_of(host, records)
    except CannotReadError as error:
        unreadable = PreflightFinding(
            host,
            PreflightSeverity.ERROR,
            "preflight",
            str(error),
            remedy=UNREADABLE.remedy.format(host=host),
            code=UNREADABLE.code,
        )
        return [unreadable]


def findings_of(host: str, records: Iterable[Mapping[str, Any]]) -> list[PreflightFinding]:
    """What the preflight module found on a host. Raises CannotReadError."""
    return [_finding(host, record) for record in records]


def _finding(host: str, record: Mapping[str, Any]) -> PreflightFinding:
    one = read_answer_as(FindingRecord, record, "a finding of preflight")
    known = one.severity in set(PreflightSeverity)
    severity = PreflightSeverity(one.severity) if known else PreflightSeverity.ERROR
    kind = kind_of(one.found, one.code)
    return PreflightFinding(
        host=host,
        severity=severity,
        subject=one.subject,
        found=one_line(one.found, LONGEST),
        expected=one_line(one.expected, LONGEST),
        remedy=one_line(one.remedy, LONGEST),
        code=kind.code if kind and severity is PreflightSeverity.ERROR else "",
    )


def _lease(one: HostRecord) -> Lease | None:
    record = one.facts.get("lease")
    return from_record(record) if isinstance(record, Mapping) else None
