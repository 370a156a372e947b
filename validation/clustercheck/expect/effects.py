"""How much of a change counts, by the kind of measurement. The data is in effects.yml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

from clustercheck.model import Effect


@cache
def effects() -> Mapping[str, Effect]:
    """Every kind there is."""
    data = yaml.safe_load((Path(__file__).parent / "effects.yml").read_text(encoding="utf-8"))
    return {kind: Effect(float(entry["least"]), str(entry["source"])) for kind, entry in data.items()}


def effect(kind: str) -> Effect:
    """The least change that counts for a kind: ``gpu``, ``nvlink``, ``rdma``, ``tcp`` or ``launch``."""
    return effects()[kind]
