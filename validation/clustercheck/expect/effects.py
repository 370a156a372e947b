"""How much of a change counts, by the kind of measurement. The data is in effects.yml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from clustercheck.model import Effect
from clustercheck.tables import read_table


@cache
def effects() -> Mapping[str, Effect]:
    """Every kind there is."""
    data = read_table(Path(__file__).with_name("effects"))
    return {kind: Effect(float(entry["least"]), str(entry["source"])) for kind, entry in data.items()}


def effect(kind: str) -> Effect:
    """The least change that counts for a kind: ``gpu``, ``nvlink``, ``rdma``, ``tcp`` or ``launch``."""
    return effects()[kind]
