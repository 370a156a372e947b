"""Compares answers with records: which hosts are unchanged, and what differs on the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusterctl.cluster.untrusted import read_answer_as
from clusterctl.engine.ledger import HostRecord, HostState
from clusterctl.engine.module_report import ModuleReport
from clusterctl.rollout.drift.answers import fingerprint, pending_change
from clusterctl.rollout.drift.calls import CONTROLLER, PREFLIGHT, Call
from clusterctl.rollout.drift.records import DriftRecord
from clusterctl.rollout.drift.replay import Answers
from clusterctl.rollout.preflight import PreflightFinding, PreflightReport, findings_of

MAX_DIFFERENCES_SHOWN = 3


@dataclass(frozen=True)
class DriftReport:
    """What the drift probe found. Ansible runs on every host that is not in ``quiet``.

    ``quiet`` holds a record for each host on which nothing is to be done, ``differing`` what has changed on
    the other hosts that have a record, ``findings`` those of preflight on quiet hosts.
    """

    quiet: Mapping[str, HostRecord] = field(default_factory=dict)
    differing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    findings: tuple[PreflightFinding, ...] = ()

    def rest(self, hosts: Sequence[str]) -> tuple[str, ...]:
        """Returns those of ``hosts`` on which Ansible must run."""
        return tuple(host for host in hosts if host not in self.quiet)

    def merged(self, report: PreflightReport) -> PreflightReport:
        """Returns preflight's ``report`` of the rest, with the findings on quiet hosts."""
        states = {**dict.fromkeys(self.quiet, HostState.GOOD), **report.states}
        return replace(report, findings=(*report.findings, *self.findings), states=states)

    @property
    def reasons(self) -> dict[str, str]:
        """Why each quiet host counts as good."""
        return {
            host: f"nothing to do: the drift probe repeated {one.ok} tasks"
            for host, one in self.quiet.items()
        }


def build_report(
    records: Mapping[str, DriftRecord], controller: Answers, answers: Mapping[str, Answers]
) -> DriftReport:
    """Returns which hosts are quiet, by their records and by what they and the controller answered."""
    quiet, differing, findings = {}, {}, []
    for name, record in records.items():
        differences = find_differences(record, {CONTROLLER: controller, "": answers[name]})
        if differences:
            differing[name] = differences
            continue
        quiet[name] = HostRecord(name, ok=record.tasks, aimed=True, heard=True)
        findings += _preflight_findings(record, answers[name])
    return DriftReport(quiet, differing, tuple(findings))


def find_differences(record: DriftRecord, answers: Mapping[str, Answers]) -> tuple[str, ...]:
    """Returns what differs from the record, one sentence per call; empty if nothing does."""
    found = []
    for call in record.calls:
        given = answers[call.at]
        if isinstance(given, str):
            return (given,)
        result = given.get(call.identity)
        if not isinstance(result, Mapping):
            found.append(f"{call.task}: no answer")
        elif because := pending_change(call, result):
            found.append(f"{call.task}: {because}")
        elif fingerprint(call, result) != record.answers.get(_key(call)):
            found.append(f"{call.task}: its result differs from that of the last apply")
    return tuple(found)


def summarize_differences(differences: Sequence[str]) -> str:
    """Returns the first few differences, and how many more there are."""
    more = len(differences) - MAX_DIFFERENCES_SHOWN
    rest = f"; and {more} more" if more > 0 else ""
    return "; ".join(differences[:MAX_DIFFERENCES_SHOWN]) + rest


def fingerprint_answers(calls: Sequence[Call], answers: Mapping[str, Answers]) -> dict[str, str]:
    """Returns the fingerprint of each answer, to be recorded."""
    kept = {}
    for call in calls:
        given = answers[call.at]
        if not isinstance(given, str) and call.identity in given:
            kept[_key(call)] = fingerprint(call, given[call.identity])
    return kept


def _key(call: Call) -> str:
    return f"{call.at}/{call.identity}"


def _preflight_findings(record: DriftRecord, answers: Answers) -> list[PreflightFinding]:
    given: Mapping[str, Any] = {} if isinstance(answers, str) else answers
    own = [call for call in record.calls if call.module == PREFLIGHT]
    reports = [given.get(call.identity, {}).get("clusterctl") or {} for call in own]
    # Without a difference `pending_change` has read them.
    read = [read_answer_as(ModuleReport, report, "what preflight found") for report in reports]
    return [one for report in read for one in findings_of(record.host, report.findings)]
