"""Waves of the site playbook, one process each, with our gate between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusterctl.engine.events import HostFinished, WaveFinished, WaveStarted
from clusterctl.engine.failure import Failure
from clusterctl.engine.failure_kinds import UNREACHABLE
from clusterctl.engine.ledger import BAD, HostRecord, HostState
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INCOMPLETE, EXIT_INTERRUPTED
from clusterctl.rollout.gate import decide
from clusterctl.rollout.leases import Holding, lost
from clusterctl.rollout.session import Session, WaveLimits, note, play
from clusterctl.rollout.waves import Wave, WavePlan

PLAYBOOK = "site.yml"
NOT_STARTED = "not started"


@dataclass
class SiteOutcome:
    """How every host stands after the waves that ran. A host of no wave that ran has no state."""

    plan: WavePlan
    states: dict[str, HostState] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    records: dict[str, HostRecord] = field(default_factory=dict)
    busy: dict[str, str] = field(default_factory=dict)
    stopped: str = ""
    interrupted: bool = False
    probed: frozenset[str] = frozenset()
    leased: dict[str, str] = field(default_factory=dict)

    def add_quiet(self, quiet: Mapping[str, HostRecord], reasons: Mapping[str, str]) -> None:
        """Hosts that no wave had to touch: good as they are, with how that is known."""
        self.probed = frozenset(quiet)
        self.records |= quiet
        self.reasons |= reasons
        self.states |= dict.fromkeys(quiet, HostState.GOOD)

    def add_failure(self, failure: Failure) -> None:
        """A host that failed next to what its tasks said."""
        host, unreachable = failure.host, failure.code == UNREACHABLE.code
        one = self.records.setdefault(host, HostRecord(host))
        one.failed, one.unreachable, one.failure = max(one.failed, 1), unreachable, failure
        self.states[host] = HostState.UNREACHABLE if unreachable else HostState.FAILED
        self.reasons[host] = failure.headline

    def add_leases(self, holding: Holding) -> None:
        """What became of the leases: those that hosts hold still, and hosts that were not ours to the end."""
        self.leased = dict(holding.kept)
        for host, how in holding.lost.items():
            if self.states.get(host) not in (None, *BAD):
                self.add_failure(lost(host, how))

    @property
    def exit_code(self) -> int:
        """0 all good, 1 a host is not, 3 a host was left out because it is busy, 130 interrupted."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        if self.stopped or any(state in BAD for state in self.states.values()):
            return EXIT_CLUSTER_BAD
        if self.busy or HostState.BUSY in self.states.values():
            return EXIT_INCOMPLETE
        return EXIT_GOOD

    @property
    def open_jobs(self) -> int:
        """Jobs that still run on nodes as far as we know."""
        return sum(len(one.jobs) for one in self.records.values())

    @property
    def failures(self) -> list[Failure]:
        """Why hosts stopped, in the tasks' own words."""
        return [one.failure for one in self.records.values() if one.failure]

    @property
    def reboots(self) -> dict[str, str]:
        """Hosts that need a reboot, with the reason."""
        return {name: one.reboot for name, one in self.records.items() if one.reboot}


def apply_waves(
    session: Session,
    plan: WavePlan,
    *,
    tags: Sequence[str] = (),
    check: bool = False,
    limits: WaveLimits = WaveLimits(),  # noqa: B008 - frozen
    again: Callable[[Sequence[str]], Sequence[Failure]] = lambda _hosts: (),
) -> SiteOutcome:
    """Run the waves in order; stop where the gate says so, but not where ``check`` changes nothing.

    ``tags`` name parts of the site, none is all.

    ``again`` makes sure, before each wave but the first, that its hosts are ours still, and says of whom not.
    """
    outcome = SiteOutcome(plan)
    for number, wave in enumerate(plan.waves, 1):
        try:
            gone = again(wave.hosts) if number > 1 else ()
        except KeyboardInterrupt:
            outcome.interrupted = True
            break
        if gone:
            _blame(session, outcome, gone)
            break
        note(session, WaveStarted(time.time(), wave.name, number, len(plan.waves), wave.hosts))
        told = _with_waves_before(session, plan.waves[: number - 1]) if check else session
        done = play(told, PLAYBOOK, wave.hosts, tags=tags, check=check, every_host=not tags, limits=limits)
        outcome.states |= done.states
        outcome.reasons |= done.reasons
        outcome.records |= done.ledger.hosts
        decision = decide(wave.hosts, done.states, done.reasons)
        states = {host: state.value for host, state in done.states.items()}
        note(session, WaveFinished(time.time(), wave.name, decision.go, decision.reason, states))
        if done.interrupted:
            outcome.interrupted = True
            break
        if not decision.go and not check:
            outcome.stopped = decision.reason
            break
    return outcome


def _with_waves_before(session: Session, waves: Sequence[Wave]) -> Session:
    """For check mode: what changes on the controller may be reported by the play of these waves already."""
    hosts = [host for wave in waves for host in wave.hosts]
    return replace(session, extra_vars={**session.extra_vars, "clusterctl_waves_before": hosts})


def not_begun(session: Session, plan: WavePlan, failures: Sequence[Failure]) -> SiteOutcome:
    """The outcome where hosts failed before the first wave: they are the cause, and no other was changed."""
    outcome = SiteOutcome(plan)
    _blame(session, outcome, failures)
    return outcome


def _blame(session: Session, outcome: SiteOutcome, failures: Sequence[Failure]) -> None:
    """Stop, since hosts failed before their wave started."""
    outcome.stopped = "; ".join(f"{one.host}: {one.headline}" for one in failures)
    for one in failures:
        outcome.add_failure(one)
        ended = HostFinished(time.time(), one.host, outcome.states[one.host].value, one.headline, one.code)
        note(session, ended)


def summary(run_id: str, hosts: Sequence[str], outcome: SiteOutcome, exit_code: int) -> dict[str, Any]:
    """The last line of ``apply --json``, in the shape that scripts rely on."""
    counts: dict[str, dict[str, Any]] = {}
    for host in hosts:
        one, state = outcome.records.get(host), outcome.states.get(host)
        bad = state in BAD and state not in (HostState.UNREACHABLE, HostState.INTERRUPTED)
        counts[host] = {
            "ok": one.ok if one else 0,
            "changed": one.changed if one else 0,
            "failed": max(one.failed if one else 0, int(bad)),
            "unreachable": state is HostState.UNREACHABLE,
        }
    return {
        "type": "summary",
        "run": run_id,
        "hosts": counts,
        "changed": sum(c["changed"] for c in counts.values()),
        "failed": sum(c["failed"] for c in counts.values()),
        "unreachable": sum(c["unreachable"] for c in counts.values()),
        "exit": exit_code,
        **({"probed": sorted(outcome.probed)} if outcome.probed else {}),
        **({"leased": outcome.leased} if outcome.leased else {}),
    }
