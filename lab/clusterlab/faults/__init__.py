"""Faults to inject: each is one module here with a ``FAULT``; the module's name is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from clusterlab.faults.base import Fault


@cache
def known() -> Mapping[str, Fault]:
    """Every fault, by kind."""
    names = [found.name for found in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    faults = [module.FAULT for module in modules if hasattr(module, "FAULT")]
    return {fault.kind: fault for fault in sorted(faults, key=lambda fault: fault.kind)}
