"""Leases on real nodes: one Ansible process takes them all, one frees them; reached as every playbook is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.untrusted import HostAnswer, read_answer_as
from clusterctl.engine.events import MAX_JOBS, is_job_id
from clusterctl.engine.failure_kinds import UNREADABLE
from clusterctl.engine.lease import from_record
from clusterctl.engine.lease_protocol import NO_ANSWER, Acquire, LeaseAnswer, Release
from clusterctl.engine.ledger import BAD, HostRecord, HostState
from clusterctl.engine.playbook import MAX_FORKS, PlaybookRequest, Runner, run_playbook

PLAYBOOK = "leases.yml"
# Two small tasks: whoever takes longer is not there.
TIME_LIMIT_S = 300.0


class LeaseReport(HostAnswer):
    """What the module `node_lease` returns."""

    taken: bool = False
    freed: bool = False
    holder: dict[str, Any] | None = None
    jobs: Annotated[list[Any], Field(max_length=MAX_JOBS)] = Field(default=[])


@dataclass(frozen=True)
class LeaseNodes:
    """The nodes of one inventory. Asked from the main thread alone.

    Raises KeyboardInterrupt where the operator broke it off: any node asked may have done it, or not.
    """

    inventory: Path
    run_directory: Path
    secret_vars: bytes = field(default=b"", repr=False)
    forks: int = MAX_FORKS
    extra_vars: Mapping[str, Any] = field(default_factory=dict)
    runner: Runner = run_playbook

    def __call__(self, step: Acquire | Release) -> dict[str, LeaseAnswer]:
        """Carry out one step. A node that was not asked has no answer."""
        lease = step.lease
        if isinstance(step, Release):
            # What names it, and no more: the rest may be what a node told us.
            named = {"run": lease.run, "nonce": lease.nonce}
            return self._play(step.hosts, {"clusterctl_lease_state": "freed", "clusterctl_lease": named})
        variables = {"clusterctl_lease_state": "taken", "clusterctl_lease": lease.as_record()}
        return self._play(step.hosts, {**variables, "clusterctl_lease_first": step.hosts[0]})

    def show(self, hosts: Sequence[str]) -> dict[str, LeaseAnswer]:
        """Who holds each node now."""
        return self._play(hosts, {"clusterctl_lease_state": "shown"})

    def _play(self, hosts: Sequence[str], variables: Mapping[str, Any]) -> dict[str, LeaseAnswer]:
        request = PlaybookRequest(
            playbook=PLAYBOOK,
            inventory=self.inventory,
            hosts=tuple(hosts),
            run_directory=self.run_directory,
            extra_vars={**self.extra_vars, **variables},
            secret_vars=self.secret_vars,
            time_limit_s=TIME_LIMIT_S,
            forks=self.forks,
        )
        outcome = self.runner(request, lambda _event, _ledger: None)
        if outcome.interrupted:
            raise KeyboardInterrupt
        answers = {
            host: _answer(outcome.ledger.hosts[host], state, outcome.reasons[host])
            for host, state in outcome.states.items()
        }
        return {host: answer for host, answer in answers.items() if answer is not None}


def _answer(one: HostRecord, state: HostState, reason: str) -> LeaseAnswer | None:
    """What a node said; None where its tasks were all skipped, since another refused before."""
    if "lease" in one.facts and state is not HostState.FAILED:
        try:
            answer = read_answer_as(LeaseReport, one.facts["lease"], "its answer about the lease")
        except CannotReadError as error:
            return LeaseAnswer(failed=str(error), code=UNREADABLE.code)
        return LeaseAnswer(
            taken=answer.taken,
            freed=answer.freed,
            holder=None if answer.holder is None else from_record(answer.holder),
            jobs=tuple(filter(is_job_id, answer.jobs)),
        )
    if state in BAD:
        return LeaseAnswer(failed=reason or NO_ANSWER.failed, code=one.failure.code if one.failure else "")
    return None
