"""Determines the outcome of jobs that a dead controller left running on nodes, before anything else."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.bounded_file import is_there
from clusterctl.cluster.untrusted import ExitCode, HostAnswer, Message, Sentence, read_answer_as
from clusterctl.engine.events import MAX_JOBS, JobFinished, JobId, JobStarted
from clusterctl.engine.failure_kinds import known_code
from clusterctl.engine.journal import Journal, open_jobs
from clusterctl.engine.ledger import HostState
from clusterctl.engine.playbook import PlaybookRequest, Runner, run_playbook
from clusterctl.engine.wording import counted
from clusterctl.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, ClusterctlError
from clusterctl.runs.events import require_few_open
from clusterctl.runs.store import Run, RunStore, UnreadableRun

# How long one query waits on the node before it is reported again that the job still runs.
WAIT_A_ROUND_S = 20.0
MAX_REASON = 300  # of what a job said, on the terminal; all of it is in the journal
# Of one host: jobs that all journals together have open, and as many that it names and no journal has. An
# interrupted run leaves one, and a host may make up any number.
MAX_HOST_JOBS = 32
LOST = "the node was restarted, or the job was killed, before it wrote its result"
# States of a job whose outcome cannot be determined any more.
UNKNOWABLE = {"lost": LOST, "unknown": LOST, "forgotten": "the host is no longer in the inventory"}
CHANGING_KINDS = ("apply", "registry upgrade", "registry restore")


class JobAnswer(HostAnswer):
    """A job as the module `async_jobs` tells of it; ``forgotten`` is said by us."""

    id: JobId
    state: Literal["finished", "running", "lost", "unknown", "forgotten"]
    failed: bool = False
    changed: bool = False
    rc: ExitCode | None = None
    msg: Message = ""
    code: Sentence = ""


@dataclass(frozen=True)
class LeftBehind:
    """An earlier run that did not see the end of its jobs, or did not even write its own end.

    Of an UnreadableRun only the journal is known, if it has one.
    """

    run: Run | UnreadableRun
    jobs: tuple[JobStarted, ...]
    has_journal: bool = True

    @property
    def cut_off(self) -> bool:
        """Whether the run's controller died: it never wrote how it ended."""
        return isinstance(self.run, Run) and self.run.finished is None

    @property
    def sentence(self) -> str:
        """How it ended, and what it left."""
        open_ = f"outcome of {counted(len(self.jobs), 'job')} unknown" if self.jobs else "no open jobs"
        if not self.has_journal:
            open_ = "it has no journal, so what it started is not known"
        if isinstance(self.run, UnreadableRun):
            by = "by its journal: " if self.has_journal else ""
            return f"run {self.run.id}: its record cannot be read; {by}{open_}"
        how = "interrupted" if self.cut_off else "stopped"
        return f"run {self.run.id} ({self.run.operator}) was {how}: {open_}"


def left_behind(store: RunStore, besides: Run, declared: Collection[str]) -> list[LeftBehind]:
    """Runs that were interrupted, runs whose jobs continued, as their journals say, and unreadable ones.

    Of each host with the oldest MAX_HOST_JOBS jobs: when they have ended, later ones follow. Of one that is
    no longer ``declared`` with all: it is not asked. Call it holding the mutex. Raises ClusterctlError
    (``runs.journal-unreadable``, exit 2): nobody knows then whether a job of that run still changes a node.
    """
    listing = store.scan()
    changing = [run for run in listing.runs if run.kind in CHANGING_KINDS and run.id != besides.id]
    runs: list[Run | UnreadableRun] = [*changing, *listing.unreadable]
    # In this order: whether there is a journal is known once it was read.
    found, count = [], 0
    of_host: Counter[str] = Counter()
    for run in runs:
        jobs = []
        for job in open_jobs(run.journal):
            of_host[job.host] += 1
            if of_host[job.host] <= MAX_HOST_JOBS or job.host not in declared:
                jobs.append(job)
        one = LeftBehind(run, tuple(jobs), is_there(run.journal))
        count += sum(job.host in declared for job in jobs)
        require_few_open(run.journal, count)
        if one.jobs or one.cut_off or isinstance(run, UnreadableRun):
            found.append(one)
    return found


def recover(
    store: RunStore,
    left: Sequence[LeftBehind],
    *,
    inventory: Path,
    hosts: Sequence[str],
    declared: Collection[str],
    forks: int,
    run_directory: Path,
    say: Callable[[str], None],
    secret_vars: bytes = b"",
    extra_vars: Mapping[str, Any] | None = None,
    wait_limit_s: float = 2 * 3600.0,
    runner: Runner = run_playbook,
) -> list[JobFinished]:
    """Ask ``hosts`` for the outcome of what earlier runs left; wait for what still runs, and say so.

    Outcomes go into the earlier runs' journals. A host that is not reached keeps its jobs open: preflight
    has the word on it. Jobs of hosts that are no longer ``declared`` are lost. Raises ClusterctlError
    (``engine.job-running`` past the limit, ``engine.job-unknown`` where a host cannot say; exit 3).
    """
    jobs = {(job.host, job.job_id): job for one in left for job in one.jobs if job.host in hosts}
    for one in left:
        say(one.sentence)
    left = [one for one in left if one.jobs or one.cut_off]
    if not left:
        return []
    finished = _forget([job for one in left for job in one.jobs if job.host not in declared], say)
    deadline = time.monotonic() + wait_limit_s
    asking = {host: [job_id for h, job_id in jobs if h == host] for host in hosts}
    wait_s = 0.0
    unasked: Counter[str] = Counter()
    met: set[tuple[str, str]] = set()
    while asking:
        variables = {**(extra_vars or {}), "clusterctl_jobs": asking, "clusterctl_jobs_wait_s": wait_s}
        answers = _ask(
            tuple(asking),
            inventory=inventory,
            run_directory=run_directory,
            secret_vars=secret_vars,
            extra_vars=variables,
            forks=forks,
            runner=runner,
        )
        running: dict[str, list[str]] = {}
        for host, found in answers.items():
            for job in found:
                if (host, job.id) not in jobs and (host, job.id) not in met:
                    if unasked[host] >= MAX_HOST_JOBS:
                        continue
                    unasked[host] += 1
                    met.add((host, job.id))
                if job.state == "running":
                    running.setdefault(host, []).append(job.id)
                elif (host, job.id) not in finished:
                    finished[host, job.id] = ended = _finished(host, job)
                    say(_sentence(ended))
        if running and time.monotonic() > deadline:
            raise ClusterctlError(
                f"a job of an earlier run still runs on {', '.join(sorted(running))}",
                code="engine.job-running",
                where=", ".join(job_id for ids in running.values() for job_id in ids),
                hint="Inspect it on the node; apply does not start a second one next to it.",
                exit_code=EXIT_INCOMPLETE,
            )
        if running:
            say(
                f"waiting for the earlier run's job on {', '.join(sorted(running))}; no second job is started"
            )
        asking, wait_s = running, WAIT_A_ROUND_S
    _settle(store, left, finished)
    return list(finished.values())


def _forget(jobs: Sequence[JobStarted], say: Callable[[str], None]) -> dict[tuple[str, str], JobFinished]:
    """Ends jobs of hosts that are no longer declared: there may be thousands, so each host is named once."""
    for host, number in Counter(job.host for job in jobs).items():
        say(f"{host}: {counted(number, 'job')} lost: {UNKNOWABLE['forgotten']}")
    ended = [_finished(job.host, JobAnswer(id=job.job_id, state="forgotten")) for job in jobs]
    return {(one.host, one.job_id): one for one in ended}


def _ask(
    hosts: tuple[str, ...],
    *,
    inventory: Path,
    run_directory: Path,
    secret_vars: bytes,
    extra_vars: Mapping[str, Any],
    forks: int,
    runner: Runner = run_playbook,
) -> dict[str, list[JobAnswer]]:
    """Each reachable host's jobs; waits on the nodes for a while, so that this is not asked too often.

    A host that was reached and did not answer may have a job all the same: that is an error.
    """
    request = PlaybookRequest(
        playbook="jobs.yml",
        inventory=inventory,
        hosts=hosts,
        run_directory=run_directory,
        extra_vars=extra_vars,
        secret_vars=secret_vars,
        time_limit_s=WAIT_A_ROUND_S + 300,
        task_limit_s=int(WAIT_A_ROUND_S) + 120,  # so that a host that hangs fails alone
        forks=forks,
    )
    outcome = runner(request, lambda _event, _ledger: None)
    if outcome.interrupted:
        raise KeyboardInterrupt
    mute = [name for name, state in outcome.states.items() if state in (HostState.FAILED, HostState.SILENT)]
    if mute:
        failure = outcome.ledger.hosts[mute[0]].failure
        raise ClusterctlError(
            f"{', '.join(mute)} cannot determine whether a job of an earlier run still runs: "
            f"{outcome.reasons[mute[0]] or 'no reason was given'}",
            code="engine.job-unknown",
            where=str(request.log),
            hint=(failure.remedy if failure else "")
            or f"Fix it, or continue without it: clusterctl hosts quarantine {mute[0]} --reason WHY.",
            exit_code=EXIT_INCOMPLETE,
        )
    return {name: read_jobs(one.facts.get("jobs")) for name, one in outcome.ledger.hosts.items()}


def read_jobs(answer: object) -> list[JobAnswer]:
    """What a node says of its jobs, as far as it is about jobs; a job of which it says nothing stays open."""
    jobs = answer if isinstance(answer, list) else []
    found = []
    for job in jobs[:MAX_JOBS]:
        with contextlib.suppress(CannotReadError):
            found.append(read_answer_as(JobAnswer, job, "a job"))
    return found


def _finished(host: str, job: JobAnswer) -> JobFinished:
    because = UNKNOWABLE.get(job.state)
    lost = because is not None
    return JobFinished(
        at=time.time(),
        host=host,
        job_id=job.id,
        failed=lost or job.failed,
        changed=job.changed,
        rc=job.rc,
        msg=because if because is not None else job.msg,
        code=known_code(job.code),
        recovered=True,
        lost=lost,
    )


def _sentence(job: JobFinished) -> str:
    if job.lost:
        return f"{job.host}: job {job.job_id} was lost: {job.msg}"
    reason = one_line(job.msg, MAX_REASON) or f"exit code {job.rc}"
    how = f"failed: {reason}" if job.failed else "succeeded"
    return f"{job.host}: job {job.job_id} of the earlier run {how}"


def _settle(
    store: RunStore, left: Sequence[LeftBehind], finished: Mapping[tuple[str, str], JobFinished]
) -> None:
    """Write outcomes where they belong, and close runs of which nothing is open any more."""
    for one in left:
        still_open = 0
        with Journal(one.run.journal) as journal:
            for job in one.jobs:
                ended = finished.get((job.host, job.job_id))
                if ended is None:
                    still_open += 1
                else:
                    journal.write(ended)
        if isinstance(one.run, UnreadableRun):
            continue  # its journal says all that is known
        if one.cut_off:
            summary = {**one.run.whole_summary(), "open_jobs": still_open, "cut_off": True}
            store.finish(one.run, EXIT_INTERRUPTED, summary)
        else:
            store.annotate(one.run, {**one.run.whole_summary(), "open_jobs": still_open})
