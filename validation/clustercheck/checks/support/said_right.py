"""Values that all nodes compute together: whom they are held against where nodes say otherwise of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from clustercheck.checks.base import Finding, failed
from clustercheck.checks.support.samples_shared import UNKNOWN
from clustercheck.launch.model import JobOutcome, RankOutcome
from clustercheck.parse.reading import CannotReadError

WITNESSES = 2  # nodes, whose word counts more than one's


def against_most(outcome: JobOutcome, says_wrong: Callable[[RankOutcome], bool]) -> frozenset[str]:
    """The nodes that do not say that values are wrong, where more nodes, and two at least, say it.

    What is wrong may come from any of them, and so from one that finds nothing wrong, or says nothing that
    can be read: who sends it decides what it says of itself. ``says_wrong`` raises CannotReadError.
    """
    wrong: set[str] = set()
    for rank in outcome.ranks:
        with suppress(CannotReadError):
            if rank.node not in wrong and says_wrong(rank):
                wrong.add(rank.node)
    others = outcome.by_node.keys() - wrong
    return frozenset(others) if len(wrong) >= WITNESSES and len(wrong) > len(others) else frozenset()


def outvoted(what: str, expected: str) -> Finding:
    """The finding on a node that does not say that values are wrong."""
    because = f"it does not report {what}, which most nodes got ({UNKNOWN})"
    return failed(because, f"{what} on most nodes", expected, joint=True)


def excused(outcome: JobOutcome, reason_of: Callable[[RankOutcome], str]) -> Mapping[str, str]:
    """Why the job does not apply, by node that says so of each rank: none where it is not most nodes.

    It follows from what all share: one node neither excuses itself nor keeps others from being excused.
    """
    said = {node: list(map(reason_of, ranks)) for node, ranks in outcome.by_node.items()}
    found = {node: ", ".join(sorted(set(reasons))) for node, reasons in said.items() if all(reasons)}
    return found if len(found) * 2 > len(said) else {}


def without(rank: RankOutcome) -> str:
    """Why a rank did nothing, as it says; else nothing."""
    return str((rank.verdict or {}).get("without") or "")
