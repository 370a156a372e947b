"""MIG profiles by GPU model, from NVIDIA's MIG User Guide: what to expect before a GPU can be asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from clustercheck.parse.nvidia_smi import plain_model
from clustercheck.tables import read_table


@dataclass(frozen=True)
class MigProfile:
    """Memory slices that an instance takes, where it may start, and how many a GPU has room for."""

    size: int
    starts: tuple[int, ...]
    limit: int


@cache
def mig_profiles(model: str) -> Mapping[str, MigProfile]:
    """The profiles of a GPU model by name; empty where the table does not know it."""
    table: dict[str, Any] = read_table(Path(__file__).with_name("mig"))
    for known in table["models"]:
        if re.search(known["model"], plain_model(model)):
            geometry = table["geometries"][known["geometry"]]
            return {
                name: MigProfile(place["size"], tuple(place["starts"]), place["limit"])
                for name, place in zip(known["names"], geometry)
            }
    return {}
