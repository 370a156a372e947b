"""Faults of the lab: rows of tables where they are data (gpus, hosts, ranks), code where they are not.

Each module here lists its faults in ``FAULTS``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from clusterlab.faults.base import LabFault


@cache
def known() -> Mapping[str, LabFault]:
    """Every fault, by kind."""
    names = [found.name for found in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    faults = [fault for module in modules for fault in getattr(module, "FAULTS", ())]
    return {fault.kind: fault for fault in sorted(faults, key=lambda fault: fault.kind)}
