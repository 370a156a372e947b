"""A sizing as JSON for programs: bytes, counts and days, with the source of each assumption."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from clusterctl.sizing import memory, throughput
from clusterctl.sizing.layout import Layout
from clusterctl.sizing.memory import Memory
from clusterctl.sizing.plan import LayoutOption, Sizing


def unsplit(sizing: Sizing) -> dict[str, float]:
    """Bytes of all layers' activations on one GPU, by how they are computed again."""
    task = sizing.task
    return {
        way: memory.on_fullest_gpu(task.shape, task.request, Layout(1), way).activations
        for way in memory.RECOMPUTE
    }


def record(sizing: Sizing) -> dict[str, Any]:
    """The whole sizing."""
    task, hardware = sizing.task, sizing.hardware
    shape, request = task.shape, task.request
    return {
        "type": "size",
        "model": asdict(shape),
        "training": {**asdict(request), "bytes_per_parameter": request.bytes_per_parameter},
        "gpu": {
            "profile": hardware.profile.name,
            "memory_bytes": hardware.profile.memory_gib * memory.GIB,
            "usable_bytes": round(hardware.usable_bytes),
            "peak_flops": hardware.peak_flops(request.precision),
            "nvlink": hardware.linked,
        },
        "gpus": sizing.gpus,
        "per_node": hardware.per_node,
        "states_bytes": _bytes(memory.states(shape.parameters, request)),
        "activations_bytes": {way: round(each) for way, each in unsplit(sizing).items()},
        "options": [_option(option) for option in sizing.options],
        "chosen": _option(sizing.chosen) if sizing.chosen else None,
        "least_gpus": sizing.least_gpus,
        "lora_bytes": round(memory.lora(shape, request)),
        "inference_bytes": round(memory.inference(shape, request)),
        "tokens": task.tokens,
        "flops_per_token": throughput.operations(
            shape.parameters, shape.layers, shape.hidden, request.sequence
        ),
        "utilisation": asdict(sizing.utilisation),
        "assumptions": list(sizing.assumptions),
        "sources": sizing.sources,
    }


def _option(option: LayoutOption) -> dict[str, Any]:
    return {
        "kind": option.layout.kind,
        **asdict(option.layout),
        "recompute": option.recompute,
        "bytes_per_gpu": _bytes(option.memory),
        "fits": not option.why_not,
        "why_not": option.why_not,
        "micro_batches": option.micro_batches,
        "days": option.days,
        "paddle": option.layout.in_paddle,
    }


def _bytes(needed: Memory) -> dict[str, int]:
    parts = {field.name: round(getattr(needed, field.name)) for field in fields(needed)}
    return {**parts, "total": round(needed.total)}
