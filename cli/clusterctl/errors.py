"""Errors of the operator's program, in the shape of clustercheck's ExplainedError."""

from __future__ import annotations

from clustercheck.errors import (
    EXIT_CLUSTER_BAD,
    EXIT_GOOD,
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    ExplainedError,
)

__all__ = [
    "EXIT_CLUSTER_BAD",
    "EXIT_GOOD",
    "EXIT_INCOMPLETE",
    "EXIT_INTERRUPTED",
    "EXIT_USAGE",
    "ClusterctlError",
    "ExplainedError",
    "worst",
]


def worst(*codes: int) -> int:
    """The exit code of a run that ended in several ways: what is known to be bad hides what is not known."""
    order = (EXIT_INTERRUPTED, EXIT_USAGE, EXIT_CLUSTER_BAD, EXIT_INCOMPLETE, EXIT_GOOD)
    return min(codes, key=order.index)


class ClusterctlError(ExplainedError):
    """What clusterctl raises wherever the request, not the program, is at fault."""
