"""What the training jobs left, read and checked for form: shared by the checks of numerics and throughput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import Finding, not_applicable
from clustercheck.checks.support import seeding
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.launch.model import JobOutcome, RankOutcome
from clustercheck.parse.reading import CannotReadError, is_number

JOBS = {"training_paddle": "Paddle", "training_torch": "PyTorch"}
WAY = {"training_paddle": "Paddle's DataParallel", "training_torch": "PyTorch's DistributedDataParallel"}
NUMBERS = ("step_s", "batch", "steps")
MAYBE_NUMBERS = ("parameters_spread", "repeat_difference", "fp32_difference", "peak_memory_bytes")

Case = Mapping[str, Any]


def one_job(job: str) -> str:
    """The same training on one rank alone."""
    return f"{job}_one"


def node_job(job: str) -> str:
    """The same training on the ranks of one node."""
    return f"{job}_node"


def without(outcome: JobOutcome) -> str:
    """Why the image cannot run it at all, as all ranks say: one excuses no other. Empty where it can."""
    reasons = {str((rank.verdict or {}).get("without") or "") for rank in outcome.ranks}
    return "" if "" in reasons else ", ".join(sorted(reasons))


def framework_missing(outcome: JobOutcome) -> Finding | None:
    """The finding where the image lacks the framework: then nobody trains with it here."""
    because = without(outcome)
    return not_applicable(because) if because else None


def cases_of(rank: RankOutcome) -> dict[tuple[str, str], Case]:
    """What a rank trained, by model and precision. Raises CannotReadError where it is none, or malformed."""
    cases = (rank.verdict or {}).get("cases")
    if not isinstance(cases, list) or not cases:
        raise CannotReadError(f"rank {rank.rank} trained nothing")
    for case in cases:
        if not (isinstance(case, Mapping) and _is_whole(case)):
            raise CannotReadError(f"rank {rank.rank} did not report all of its training")
    return {(case["model"], case["precision"]): case for case in cases}


def _is_whole(case: Case) -> bool:
    losses = case.get("losses")
    return (
        all(is_positive(case.get(key)) for key in NUMBERS)
        and all(key in case and (case[key] is None or is_number(case[key])) for key in MAYBE_NUMBERS)
        and all(isinstance(case.get(key), str) for key in ("model", "precision", "unit"))
        and all(
            isinstance(case.get(key), str) and len(case[key]) >= 16
            for key in ("initial_sha256", "parameters_sha256")
        )
        and isinstance(losses, list)
        and len(losses) > 1
        and all(loss is None or is_number(loss) for loss in losses)
    )


def named(case: Case) -> str:
    """A case as people call it."""
    return f"{case['model']} in {case['precision']}"


def change(job: str, how: Any, node: str = "") -> seeding.Inject:
    """Change every case of a training, on one node or on all."""

    def on(rank: RankOutcome, record: seeding.Raw) -> None:
        for case in record["cases"]:
            if node in ("", rank.node):
                how(case)

    return seeding.verdicts(job, on)


def lacks_framework(job: str) -> seeding.Inject:
    """The image lacks the framework."""
    return seeding.verdicts(job, lambda _, answer: answer.update(cases=[], without="the image has none"))
