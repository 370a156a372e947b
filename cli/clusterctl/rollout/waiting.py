"""Waiting for hosts that are in use: by their own jobs, or by a run from another controller."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from clusterctl import console
from clusterctl.engine.ledger import HostState
from clusterctl.engine.playbook import PlaybookRequest
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.wording import elapsed, format_hosts, hosts_by
from clusterctl.rollout.preflight import (
    PLAYBOOK,
    TASK_LIMIT_S,
    TIME_LIMIT_S,
    PreflightReport,
    report_of,
    run_preflight,
)
from clusterctl.rollout.session import Session

# Nobody tells us when a job or another controller's run ends: hosts are asked again, ever less often.
FIRST_PAUSE_S = 5.0
MAX_PAUSE_S = 60.0
# While nothing changes, it is said again that we wait.
REMINDER_S = 600.0
NO_ANSWER = frozenset({HostState.UNREACHABLE, HostState.SILENT})


@dataclass
class Wait:
    """Waits ``limit_s`` in all, from the first pause; 0 waits for nobody."""

    limit_s: float = 0.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _deadline: float | None = None
    _pause_s: float = FIRST_PAUSE_S
    _said: Mapping[str, str] = field(default_factory=dict)
    _said_at: float = 0.0

    def pause(self, in_use: Mapping[str, str]) -> bool:
        """Say who is waited for and why, then sleep until hosts are asked again; False past the limit."""
        now = self.clock()
        if self._deadline is None:
            self._deadline = now + self.limit_s
        left_s = self._deadline - now
        if left_s <= 0:
            return False
        if in_use != self._said or now - self._said_at >= REMINDER_S:
            self._say(in_use, left_s)
            self._said, self._said_at = dict(in_use), now
        self.sleep(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        return True

    def _say(self, in_use: Mapping[str, str], left_s: float) -> None:
        for why, hosts in hosts_by(in_use).items():
            console.say(f"waiting up to {elapsed(left_s)} for {format_hosts(hosts)}: {why}")


def until_free(
    session: Session,
    report: PreflightReport,
    wait: Wait,
    *,
    in_use: Callable[[PreflightReport], Mapping[str, str]],
    show: Callable[[PreflightReport], None],
) -> PreflightReport:
    """Wait for hosts that ``in_use`` names, with why, and run preflight again on each that becomes free.

    Returns the report as it is then: past the limit hosts are in use still. An error on another host ends the
    wait, since nothing will be changed. Ctrl-C does, too, and the report says that it was interrupted.
    """
    try:
        with terminated_like_interrupted():
            while (waiting := in_use(report)) and not _is_hopeless(report) and wait.pause(waiting):
                asked = _ask(session, waiting)
                taken = in_use(asked)
                mute = {host for host, state in asked.states.items() if state in NO_ANSWER}
                report = report.updated(asked.of(taken))
                free = tuple(host for host in waiting if host not in taken and host not in mute)
                if free:
                    console.say(f"{format_hosts(free)}: no longer in use")
                    fresh = run_preflight(session, free)
                    show(fresh)
                    report = report.updated(fresh)
    except KeyboardInterrupt:
        return replace(report, interrupted=True)
    return report


def _is_hopeless(report: PreflightReport) -> bool:
    """Whether nothing will be changed, whoever becomes free; another run may be what breaks its own hosts."""
    return report.interrupted or any(one.host not in report.leases for one in report.errors)


def _ask(session: Session, hosts: Collection[str]) -> PreflightReport:
    """Preflight that is neither shown nor journalled: it is asked once a minute for hours."""
    request = PlaybookRequest(
        playbook=PLAYBOOK,
        inventory=session.directory.hosts_file,
        hosts=tuple(hosts),
        run_directory=session.run.directory,
        extra_vars=session.extra_vars,
        secret_vars=session.secret_vars,
        time_limit_s=TIME_LIMIT_S,
        task_limit_s=TASK_LIMIT_S,
        forks=session.forks,
    )
    outcome = session.runner(request, lambda _event, _ledger: None)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return report_of(outcome)
