"""The look before an apply: which hosts are as the last one left them, by asking each of them once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusterctl import console
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import load_anew
from clusterctl.cluster.ssh import OpenSshTransport, PasswordRefusedError
from clusterctl.engine.events import HostLooked
from clusterctl.engine.ledger import HostRecord, HostState
from clusterctl.engine.wording import counted
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.opening import Selection
from clusterctl.rollout.parts import Asked
from clusterctl.rollout.preflight import Finding, PreflightReport, findings_of
from clusterctl.rollout.probe import records
from clusterctl.rollout.probe.ask import Answers, ask, ask_here
from clusterctl.rollout.probe.calls import HERE, PREFLIGHT, Call, CannotAskError, of_host
from clusterctl.rollout.probe.decided import inputs, require_clear, with_secrets
from clusterctl.rollout.probe.judge import decisive, wanting
from clusterctl.rollout.probe.records import Record
from clusterctl.rollout.probe.written import read
from clusterctl.rollout.session import Session, note
from clusterctl.rollout.training import pinned

CALLS = "calls.jsonl"
DIFFERENCES_SAID = 3


@dataclass(frozen=True)
class DriftReport:
    """What one probe of hosts has found. Hosts that are not in ``quiet`` go through all of the apply.

    ``quiet`` holds one record per host on which nothing is to be done, ``differing`` how other known hosts
    differ from what the last apply left, ``findings`` those of preflight on quiet hosts.
    """

    quiet: Mapping[str, HostRecord] = field(default_factory=dict)
    differing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def rest(self, hosts: Sequence[str]) -> tuple[str, ...]:
        """Those of ``hosts`` that go through all of the apply."""
        return tuple(host for host in hosts if host not in self.quiet)

    def merged(self, report: PreflightReport) -> PreflightReport:
        """``report`` of the rest, with what quiet hosts have to say."""
        states = {**dict.fromkeys(self.quiet, HostState.GOOD), **report.states}
        return replace(report, findings=(*report.findings, *self.findings), states=states)

    @property
    def reasons(self) -> dict[str, str]:
        """How it is known of each quiet host that it is good."""
        return {
            host: f"nothing to do: {one.ok} tasks looked at in one probe" for host, one in self.quiet.items()
        }


@dataclass(frozen=True)
class DriftProbe:
    """What one run may ask of its hosts before it changes them, and remember of them afterwards."""

    session: Session
    chosen: Selection
    passwords: Passwords
    decided: str
    whole: bool
    full: bool

    @classmethod
    def of_run(cls, session: Session, chosen: Selection, asked: Asked, passwords: Passwords) -> DriftProbe:
        """Those of a run of ``asked``; its inputs are read here, before Ansible reads them."""
        decided = inputs(chosen.inventory, session.extra_vars)
        return cls(session, chosen, passwords, decided, whole=not asked.only, full=asked.full)

    @property
    def told(self) -> Session:
        """The session in which is written down what hosts are asked, where that is the whole site."""
        return replace(self.session, calls=self.session.run.path(CALLS)) if self.whole else self.session

    def first(self) -> DriftReport:
        """Ask every host of which an apply by the same inputs is remembered; changes nothing.

        Raises ClusterctlError (``access.sudo-password``) where sudo refuses the password: whoever goes on
        tries it on every host.
        """
        if self.full or not self.whole:
            return DriftReport()
        directory = self.chosen.directory
        digest = with_secrets(self.decided, directory)
        known = {name: records.load(directory, name) for name in self.chosen.names}
        same = {name: one for name, one in known.items() if one is not None and one.inputs == digest}
        if not same:
            return DriftReport()
        here, answers = self._answers({name: one.calls for name, one in same.items()})
        look = judged(same, here, answers)
        for name, record in same.items():
            differs = look.differing.get(name, ())
            note(self.session, HostLooked(time.time(), name, not differs, record.tasks, differs))
        return look

    def forget(self, hosts: Sequence[str]) -> None:
        """Before hosts are changed: what is half done must not pass for what was good."""
        for name in hosts:
            records.forget(self.chosen.directory, name)

    def settle(self, good: Mapping[str, int]) -> dict[str, str]:
        """Remember what was asked of the hosts that are good, and what they answer now that it is done.

        ``good`` says how many tasks of each succeeded. Returns why a host is not remembered, by host.
        """
        path = self.told.calls
        if path is None or not good:
            return {}
        written = read(path)
        if not written.is_whole(good):
            return dict.fromkeys(good, "not all that was asked of it was written down")
        if self._decided_now() != self.decided:
            return dict.fromkeys(good, "the settings were changed while it was at work")
        calls: dict[str, tuple[Call, ...]] = {}
        not_kept: dict[str, str] = {}
        for host in (host for host in self.chosen.hosts if host.name in good):
            try:
                require_clear(host, self.chosen.inventory)
                calls[host.name] = of_host(host.name, written.calls)
            except CannotAskError as error:
                not_kept[host.name] = str(error)
        return not_kept | self._look_again(calls)

    def _look_again(self, calls: Mapping[str, tuple[Call, ...]]) -> dict[str, str]:
        """Ask the hosts, and remember those that answer well; why it was not to be, of the others."""
        if not calls:
            return {}
        console.say(f"recording the state of {counted(len(calls), 'host')} to speed up the next apply")
        not_kept: dict[str, str] = {}
        here, answers = self._answers(calls)
        digest = with_secrets(self.decided, self.chosen.directory)
        for name, asked in calls.items():
            given = {HERE: here, "": answers[name]}
            record = Record(name, self.session.run.id, digest, asked, _baseline(asked, given))
            if differs := differences(record, given):
                not_kept[name] = in_short(differs)
                continue
            try:
                records.save(self.chosen.directory, record)
            except ClusterctlError as error:
                not_kept[name] = error.what
        return not_kept

    def _decided_now(self) -> str:
        """The inputs as they are after Ansible has read them, wave by wave; empty where none can be read."""
        try:
            found = pinned(load_anew(self.chosen.directory))
            return inputs(found.inventory, {**self.session.extra_vars, **found.extra_vars})
        except ClusterctlError:
            return ""

    def _answers(self, calls: Mapping[str, Sequence[Call]]) -> tuple[Answers, dict[str, Answers]]:
        """The controller's own answers, and those of each host."""
        local = {call.identity: call for own in calls.values() for call in own if call.at == HERE}
        try:
            with OpenSshTransport(self.session.directory, self.chosen.hosts, self.passwords) as transport:
                answers = ask(calls, transport)
        except PasswordRefusedError as error:
            raise _refusal(error) from None
        except ClusterctlError as error:
            answers = dict.fromkeys(calls, error.what)
        return ask_here(list(local.values()), self.session.directory), answers


def _refusal(error: PasswordRefusedError) -> ClusterctlError:
    return ClusterctlError(
        f"{error.because}; it was not tried again, and no host was changed",
        code="access.sudo-password",
        where=error.node,
        hint="Give the right password. Where this host alone has another one: clusterctl hosts quarantine "
        f"{error.node} --reason WHY",
    )


@contextlib.contextmanager
def calls_put_away(directory: ClusterDirectory) -> Iterator[None]:
    """However the block ends, no task's arguments stay behind: of this run, or of one that died."""
    try:
        yield
    finally:
        for path in directory.runs.glob(f"*/{CALLS}"):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def in_short(differs: Sequence[str]) -> str:
    """The first few differences, and how many more there are."""
    more = f"; and {len(differs) - DIFFERENCES_SAID} more" if len(differs) > DIFFERENCES_SAID else ""
    return "; ".join(differs[:DIFFERENCES_SAID]) + more


def judged(known: Mapping[str, Record], here: Answers, answers: Mapping[str, Answers]) -> DriftReport:
    """Pure: which hosts are quiet, by what was remembered and what was answered."""
    quiet, differing, findings = {}, {}, []
    for name, record in known.items():
        differs = differences(record, {HERE: here, "": answers[name]})
        if differs:
            differing[name] = differs
            continue
        quiet[name] = HostRecord(name, ok=record.tasks, aimed=True, heard=True)
        findings += _findings(record, answers[name])
    return DriftReport(quiet, differing, tuple(findings))


def differences(record: Record, answers: Mapping[str, Answers]) -> tuple[str, ...]:
    """What is not as the record has it, in words; empty where all of it is."""
    found = []
    for call in record.calls:
        given = answers[call.at]
        if isinstance(given, str):
            return (given,)
        result = given.get(call.identity)
        if result is None:
            found.append(f"{call.task}: no answer")
        elif because := wanting(call, result):
            found.append(f"{call.task}: {because}")
        elif decisive(call, result) != record.answers.get(_key(call)):
            found.append(f"{call.task}: its answer is another than after the last apply")
    return tuple(found)


def _baseline(calls: Sequence[Call], answers: Mapping[str, Answers]) -> dict[str, str]:
    kept = {}
    for call in calls:
        given = answers[call.at]
        if not isinstance(given, str) and call.identity in given:
            kept[_key(call)] = decisive(call, given[call.identity])
    return kept


def _key(call: Call) -> str:
    return f"{call.at}/{call.identity}"


def _findings(record: Record, answers: Answers) -> list[Finding]:
    looks = [call for call in record.calls if call.module == PREFLIGHT]
    given: Mapping[str, Any] = {} if isinstance(answers, str) else answers
    return [one for call in looks for one in findings_of(record.host, given.get(call.identity, {}))]
