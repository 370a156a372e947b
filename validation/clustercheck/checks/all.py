"""Every check there is, in the order of the report: by section, then by id."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from clustercheck.checks.base import Check
from clustercheck.model import Section

_WITHOUT_CHECK = {"all", "base"}
_SECTIONS = tuple(Section)


def _discover() -> Iterator[Check]:
    """Yields ``CHECK`` or each of ``CHECKS`` of every module next to this one."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.ispkg and module.name not in _WITHOUT_CHECK:
            found = importlib.import_module(f"clustercheck.checks.{module.name}")
            yield from found.CHECKS if hasattr(found, "CHECKS") else (found.CHECK,)


CHECKS: tuple[Check, ...] = tuple(
    sorted(_discover(), key=lambda check: (_SECTIONS.index(check.section), check.id))
)
BY_ID = {check.id: check for check in CHECKS}
