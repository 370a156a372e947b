"""What the training jobs left, read and checked for form: shared by the checks of numerics and throughput."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from clustercheck.checks.base import Finding, not_applicable
from clustercheck.checks.support import seeding
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect.votes import count_votes, find_majority
from clustercheck.launch.model import JobOutcome, RankOutcome
from clustercheck.parse.reading import CannotReadError, is_number

JOBS = {"training_paddle": "Paddle", "training_torch": "PyTorch"}
WAY = {"training_paddle": "Paddle's DataParallel", "training_torch": "PyTorch's DistributedDataParallel"}
NUMBERS = ("step_s", "batch", "steps")
MAYBE_NUMBERS = ("parameters_spread", "repeat_difference", "fp32_difference", "peak_memory_bytes")

TERMS = ("batch", "steps", "unit")  # of a case: the suite's, and so the same on every rank

Key = tuple[str, str]
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


def cases_of(rank: RankOutcome) -> dict[Key, Case]:
    """What a rank trained, by model and precision. Raises CannotReadError where it is none, or malformed."""
    cases = (rank.verdict or {}).get("cases")
    if not isinstance(cases, list) or not cases:
        raise CannotReadError(f"rank {rank.rank} trained nothing")
    for case in cases:
        if not (isinstance(case, Mapping) and _is_whole(case)):
            raise CannotReadError(f"rank {rank.rank} did not report all of its training")
    return {(case["model"], case["precision"]): case for case in cases}


def terms_of(rank: RankOutcome) -> dict[Key, Case]:
    """What a rank says that the suite asked of it, by model and precision. Raises CannotReadError."""
    return {key: {term: case[term] for term in TERMS} for key, case in cases_of(rank).items()}


def terms_of_most(outcome: JobOutcome) -> dict[Key, Case]:
    """The same as more than half of the nodes say. Raises CannotReadError where these differ."""
    votes, said = [], {}
    for ranks in outcome.by_node.values():
        texts: Counter[str] = Counter()
        for rank in ranks:
            text = ""  # of one that cannot be read
            with suppress(CannotReadError):
                terms = terms_of(rank)
                text = repr(sorted(terms.items()))
                said[text] = terms
            texts[text] += 1
        votes.append(texts)
    most = find_majority(count_votes(votes))
    if not most:
        for rank in outcome.ranks:
            cases_of(rank)  # raises for who trained nothing
        raise CannotReadError("the nodes differ in what they trained, and none is as most are")
    return said[most]


def cases_as_of_most(rank: RankOutcome, terms: Mapping[Key, Case]) -> dict[Key, Case]:
    """The cases of a rank that trained what most did. Raises CannotReadError."""
    if terms_of(rank) != terms:
        raise CannotReadError(f"rank {rank.rank} trained something else than most nodes did")
    return cases_of(rank)


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
