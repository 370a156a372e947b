"""One run's playbooks: each event goes to the journal and to the person."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine.events import Event, HostFinished
from clusterctl.engine.journal import Journal
from clusterctl.engine.ledger import Ledger
from clusterctl.engine.playbook import (
    MAX_FORKS,
    TIME_LIMIT_S,
    PlaybookOutcome,
    PlaybookRequest,
    Runner,
    run_playbook,
)
from clusterctl.engine.progress import Display
from clusterctl.engine.silence import SILENCE_LIMIT_S
from clusterctl.runs.store import Run


@dataclass(frozen=True)
class Session:
    """What every playbook of one run shares. ``calls``: where to write down what hosts are asked.

    ``runner`` runs them: `run_playbook`, or what stands in for it.
    """

    directory: ClusterDirectory
    run: Run
    journal: Journal
    display: Display
    secret_vars: bytes = field(default=b"", repr=False)
    extra_vars: Mapping[str, Any] = field(default_factory=dict)
    forks: int = MAX_FORKS
    calls: Path | None = None
    runner: Runner = run_playbook


@dataclass(frozen=True)
class WaveLimits:
    """Seconds that a playbook may take as a whole, that a host may say nothing, and that a task may take that
    states no limit of its own (0: a little less than a host may say nothing)."""

    whole_s: float = TIME_LIMIT_S
    silence_s: float = SILENCE_LIMIT_S
    task_s: int = 0


def note(session: Session, event: Event, ledger: Ledger | None = None) -> None:
    """Write one event to the journal and show it."""
    session.journal.write(event)
    session.display.on_event(event, ledger or Ledger(()))


def play(
    session: Session,
    playbook: str,
    hosts: Sequence[str],
    *,
    tags: Sequence[str] = (),
    check: bool = False,
    every_host: bool = True,
    limits: WaveLimits = WaveLimits(),
) -> PlaybookOutcome:
    """Run one playbook on hosts; journal how each left it. Check mode comes with diffs."""
    request = PlaybookRequest(
        playbook=playbook,
        inventory=session.directory.hosts_file,
        hosts=tuple(hosts),
        run_directory=session.run.directory,
        tags=tuple(tags),
        extra_vars=session.extra_vars,
        check=check,
        diff=check,
        every_host=every_host,
        secret_vars=session.secret_vars,
        time_limit_s=limits.whole_s,
        silence_limit_s=limits.silence_s,
        task_limit_s=limits.task_s,
        forks=session.forks,
        calls=session.calls,
    )
    session.display.open(Path(playbook).stem, request.hosts)
    try:
        outcome = session.runner(
            request, lambda event, ledger: note(session, event, ledger), session.display.on_tick
        )
        for host in request.hosts:
            failure = outcome.ledger.hosts[host].failure
            code = failure.code if failure else ""
            ended = HostFinished(time.time(), host, outcome.states[host].value, outcome.reasons[host], code)
            note(session, ended, outcome.ledger)
    finally:
        session.display.close()
    return outcome
