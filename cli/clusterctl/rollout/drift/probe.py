"""The interface of this room: inspect hosts before an apply, and record them after it.

A run makes one `DriftProbe`. Before anything is changed, ``inspect`` reports which hosts need no Ansible.
While Ansible runs, the session of ``logging_session`` logs its module calls; hosts that are about to be
changed lose their record (``discard``). Afterwards ``record`` repeats the logged calls on hosts that are
good, and keeps calls and answers for the next run. No host is changed by any of this.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clusterctl import console
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.inventory import load_anew
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.cluster.sudo_password import PasswordRefusedError
from clusterctl.engine.events import HostLooked
from clusterctl.engine.wording import counted
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.drift import call_log
from clusterctl.rollout.drift.call_log import read_call_log, remove_call_logs
from clusterctl.rollout.drift.calls import CONTROLLER, Call, NotRepeatableError, select_calls
from clusterctl.rollout.drift.inputs import digest_inputs, digest_with_secrets, find_obstacles
from clusterctl.rollout.drift.records import DriftRecord, load_record, remove_record, save_record
from clusterctl.rollout.drift.replay import Answers, replay_calls
from clusterctl.rollout.drift.report import (
    DriftReport,
    build_report,
    find_differences,
    fingerprint_answers,
    summarize_differences,
)
from clusterctl.rollout.opening import Selection
from clusterctl.rollout.parts import Asked
from clusterctl.rollout.session import Session, note
from clusterctl.rollout.training import pinned

__all__ = ["DriftProbe", "DriftReport", "remove_call_logs", "summarize_differences"]


@dataclass(frozen=True)
class DriftProbe:
    """The drift probe of one run. ``inputs`` is the digest of what decided when the run started.

    Only a run of the whole site (``whole_site``) inspects and records; with ``every_task`` (``--full``) it
    records only.
    """

    session: Session
    chosen: Selection
    passwords: Passwords
    inputs: str
    whole_site: bool
    every_task: bool

    @classmethod
    def for_run(cls, session: Session, chosen: Selection, asked: Asked, passwords: Passwords) -> DriftProbe:
        """Returns the probe of a run of ``asked``; its inputs are read here, before Ansible reads them."""
        inputs = digest_inputs(chosen.inventory, session.extra_vars)
        return cls(session, chosen, passwords, inputs, whole_site=not asked.only, every_task=asked.full)

    @property
    def logging_session(self) -> Session:
        """The session for playbooks: it logs module calls if the whole site is applied."""
        if not self.whole_site:
            return self.session
        return replace(self.session, calls=self.session.run.path(call_log.FILE))

    def inspect(self) -> DriftReport:
        """Inspects every host that was recorded with the same inputs, and reports which are unchanged.

        Changes nothing. A host that is not in the report has no such record. Raises ClusterctlError
        (``access.sudo-password``) if sudo refuses the password: the next step would try it on every host.
        """
        if self.every_task or not self.whole_site:
            return DriftReport()
        directory = self.chosen.directory
        inputs = digest_with_secrets(self.inputs, directory)
        found = {name: load_record(directory, name) for name in self.chosen.names}
        records = {name: one for name, one in found.items() if one is not None and one.inputs == inputs}
        if not records:
            return DriftReport()
        controller, answers = self._replay({name: one.calls for name, one in records.items()})
        report = build_report(records, controller, answers)
        for name, record in records.items():
            differences = report.differing.get(name, ())
            note(self.session, HostLooked(time.time(), name, not differences, record.tasks, differences))
        return report

    def discard(self, hosts: Sequence[str]) -> None:
        """Removes the records of hosts that are about to be changed: half an apply must not seem complete."""
        for name in hosts:
            remove_record(self.chosen.directory, name)

    def record(self, good: Mapping[str, int]) -> dict[str, str]:
        """Records the hosts that are good: what Ansible asked of them, and what they answer now.

        ``good`` says how many tasks succeeded on each. Returns the hosts that were not recorded, and why.
        """
        path = self.logging_session.calls
        if path is None or not good:
            return {}
        log = read_call_log(path)
        if not log.is_complete(good):
            return dict.fromkeys(good, "the log of module calls is incomplete")
        if self._digest_inputs_now() != self.inputs:
            return dict.fromkeys(good, "the settings were changed during the apply")
        hosts = [host for host in self.chosen.hosts if host.name in good]
        not_recorded = find_obstacles(hosts, self.chosen.inventory)
        calls: dict[str, tuple[Call, ...]] = {}
        for name in (host.name for host in hosts if host.name not in not_recorded):
            try:
                calls[name] = select_calls(name, log.calls)
            except NotRepeatableError as error:
                not_recorded[name] = str(error)
        return not_recorded | self._record_answers(calls)

    def _record_answers(self, calls: Mapping[str, tuple[Call, ...]]) -> dict[str, str]:
        """Repeats the calls, and records the hosts that would not change; returns the others, and why."""
        if not calls:
            return {}
        console.say(f"recording the state of {counted(len(calls), 'host')} to speed up the next apply")
        not_recorded: dict[str, str] = {}
        controller, answers = self._replay(calls)
        inputs = digest_with_secrets(self.inputs, self.chosen.directory)
        for name, own in calls.items():
            given = {CONTROLLER: controller, "": answers[name]}
            record = DriftRecord(name, self.session.run.id, inputs, own, fingerprint_answers(own, given))
            if differences := find_differences(record, given):
                not_recorded[name] = summarize_differences(differences)
                continue
            try:
                save_record(self.chosen.directory, record)
            except ClusterctlError as error:
                not_recorded[name] = error.what
        return not_recorded

    def _digest_inputs_now(self) -> str:
        """Returns the inputs as they are after Ansible has read them, wave by wave; empty if unreadable."""
        try:
            now = pinned(load_anew(self.chosen.directory))
            return digest_inputs(now.inventory, {**self.session.extra_vars, **now.extra_vars})
        except ClusterctlError:
            return ""

    def _replay(self, calls: Mapping[str, Sequence[Call]]) -> tuple[Answers, dict[str, Answers]]:
        """Returns the controller's own answers, and those of each host."""
        try:
            with OpenSshTransport(self.session.directory, self.chosen.hosts, self.passwords) as transport:
                return replay_calls(calls, transport)
        except PasswordRefusedError as error:
            raise _password_refused(error) from None
        except ClusterctlError as error:
            return error.what, dict.fromkeys(calls, error.what)


def _password_refused(error: PasswordRefusedError) -> ClusterctlError:
    return ClusterctlError(
        f"{error.because}; it was tried on no further host, and no host was changed",
        code="access.sudo-password",
        where=error.node,
        hint="Give the right password. If only this host has another one: clusterctl hosts quarantine "
        f"{error.node} --reason WHY",
    )
