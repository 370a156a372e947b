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
]


class ClusterctlError(ExplainedError):
    """What clusterctl raises wherever the request, not the program, is at fault."""
