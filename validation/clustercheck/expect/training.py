"""What training must reach, from training.yml: scaling, and samples a second of one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from clustercheck.expect.profiles import Profile
from clustercheck.model import Limit
from clustercheck.tables import read_table


@cache
def _data() -> Mapping[str, Any]:
    data: dict[str, Any] = read_table(Path(__file__).with_name("training"))
    return data


def scaling_floor(level: str, model: str, step_s: float, wire_gbps: float) -> Limit | None:
    """For ``node`` (its GPUs against one) or ``cluster`` (all nodes against one), as a part of linear.

    ``step_s`` is the smaller group's, ``wire_gbps`` what carries a GPU's, or a node's, gradients one way.
    None where these take so much of the step that the source's machines are no measure.
    """
    gradients = _data()["gradients"].get(model)
    if gradients is None or 2 * gradients / (wire_gbps * 1e9) > _data()["hidden"] * step_s:
        return None
    entry = _data()["scaling"][level]
    return Limit(float(entry["floor"]), str(entry["source"]))


def recipe_limit(
    recipe: str, quantity: str, profile: Profile | None = None, *, model: str = ""
) -> Limit | None:
    """Of ``speed`` (at least) or ``memory`` (at most), against float32; None if there is no source for it.

    A speed is limited only of the models that its source has, and, as it comes of tensor cores, where the
    profile has them as fast as there.
    """
    entry = _data()["recipes"].get(recipe, {})
    if quantity not in entry:
        return None
    if quantity == "speed" and (
        model not in entry["speed_models"] or _peak_ratio(profile) < entry["peak_ratio"]
    ):
        return None
    return Limit(float(entry[quantity]), str(entry[f"{quantity}_source"]))


def _peak_ratio(profile: Profile | None) -> float:
    """How many times FP32 the GPU can do in FP16; 0 where that is not known."""
    peaks = profile.peak_tflops if profile is not None else {}
    return peaks["fp16"].value / peaks["fp32"].value if {"fp16", "fp32"} <= peaks.keys() else 0.0


def loading_floor() -> Limit:
    """Training from files, as a part of training with data that is in memory."""
    entry = _data()["loading"]
    return Limit(float(entry["floor"]), str(entry["source"]))


def floor_per_gpu(job: str, model: str, precision: str, profiles: frozenset[str]) -> Limit | None:
    """Samples a second of one GPU; None if there is no source for all of these profiles."""
    for entry in _data()["per_gpu"]:
        same = (entry["job"], entry["model"], entry["precision"]) == (job, model, precision)
        if same and profiles and profiles <= set(entry["profiles"]):
            return Limit(float(entry["value"]), str(entry["source"]), tolerance=float(entry["tolerance"]))
    return None
