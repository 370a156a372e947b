"""The operator's settings: what may be set, and what is wrong with what was set."""

from __future__ import annotations

from clusterctl.cluster.settings.check import check, require_valid
from clusterctl.cluster.settings.problem import SettingsProblem

__all__ = ["SettingsProblem", "check", "require_valid"]
