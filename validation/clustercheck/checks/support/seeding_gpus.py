"""Faults of programs for one GPU, to plant into evidence."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from clustercheck.checks.support.seeding import Inject, Raw, chain, with_job
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.samples.sample import healthy


def no_profile() -> Inject:
    """Nobody said what the hardware can do: equals alone can tell."""
    return lambda evidence: replace(evidence, profiles={})


def half_slower(job: str, factor: float) -> Inject:
    """Three of six nodes are slower, by a factor; nobody said what the hardware can do."""

    def inject(_evidence: Evidence) -> Evidence:
        injects = [Seeds(job).scaled(f"gpu0{number}", None, factor) for number in (2, 4, 6)]
        return chain(no_profile(), *injects)(healthy(6))

    return inject


@dataclass(frozen=True)
class Seeds:
    """Faults of one job. ``node`` or ``gpu`` None means all."""

    job: str

    def changed(self, node: str | None, gpu: int | None, change: Callable[[Raw], None]) -> Inject:
        """Change in place what these GPUs' ranks said."""

        def one(rank: RankOutcome) -> RankOutcome:
            answer = copy.deepcopy(dict(rank.verdict or {}))
            change(answer)
            return replace(rank, verdict=answer)

        return self._ranks(node, gpu, one)

    def says(self, node: str, gpu: int, **answer: Any) -> Inject:
        """Parts of a verdict that are otherwise."""
        return self.changed(node, gpu, lambda verdict: verdict.update(answer))

    def wrong(self, node: str, gpu: int, because: str) -> Inject:
        """The program found its results wrong."""
        return self.says(node, gpu, ok=False, because=because)

    def raised(self, node: str, gpu: int, error: str) -> Inject:
        """The program raised an error."""
        because = f"{error} while timing: CUDA error: an illegal memory access was encountered"
        return self.says(node, gpu, ok=False, raised=error, because=because, figures=None)

    def scaled(self, node: str | None, gpu: int | None, factor: float, metric: str = "") -> Inject:
        """Figures (or one of them) that are larger or smaller by a factor."""

        def change(record: Raw) -> None:
            for figure in record["figures"]:
                if metric in ("", figure["metric"]):
                    figure["value"] *= factor

        return self.changed(node, gpu, change)

    def ended(self, node: str, gpu: int, state: RankState) -> Inject:
        """A rank that did not complete."""
        return self._ranks(
            node, gpu, lambda rank: replace(rank, state=state, verdict=None, because="timing fp16")
        )

    def refused(self, node: str) -> Inject:
        """A node on which no container sees a GPU."""

        def inject(evidence: Evidence) -> Evidence:
            outcome = evidence.jobs[self.job]
            others = tuple(rank for rank in outcome.ranks if rank.node != node)
            because = "a container of the image sees no GPU: its paddle 3.3.1 has no CUDA"
            refused = RankOutcome(len(others), node, RankState.FAILED, because=because)
            return with_job(evidence, replace(outcome, ranks=(*others, refused)))

        return inject

    def only_gpus(self, node: str, count: int) -> Inject:
        """The job ran on so many GPUs of one node alone."""

        def inject(evidence: Evidence) -> Evidence:
            outcome = evidence.jobs[self.job]
            kept = tuple(r for r in outcome.ranks if r.node == node and r.gpu is not None and r.gpu < count)
            return with_job(evidence, replace(outcome, ranks=kept))

        return inject

    def missing(self) -> Inject:
        """The job was not run."""

        def inject(evidence: Evidence) -> Evidence:
            rest: dict[str, JobOutcome] = {
                name: job for name, job in evidence.jobs.items() if name != self.job
            }
            return replace(evidence, jobs=rest)

        return inject

    def _ranks(
        self, node: str | None, gpu: int | None, change: Callable[[RankOutcome], RankOutcome]
    ) -> Inject:
        def inject(evidence: Evidence) -> Evidence:
            outcome = evidence.jobs[self.job]
            ranks = tuple(
                change(rank) if node in (None, rank.node) and gpu in (None, rank.gpu) else rank
                for rank in outcome.ranks
            )
            return with_job(evidence, replace(outcome, ranks=ranks))

        return inject
