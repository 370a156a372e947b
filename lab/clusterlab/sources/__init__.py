"""The depot's package sources: NVIDIA's repositories with simulated contents, and a subset of Debian."""

from __future__ import annotations

from clusterlab.sources.build import SourcesReport, build
from clusterlab.sources.distribution import DistributionError

__all__ = ["DistributionError", "SourcesReport", "build"]
