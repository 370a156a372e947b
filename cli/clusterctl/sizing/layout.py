"""How GPUs share the work: copies, sharding, tensor and pipeline, from the simplest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from clusterctl.sizing.shape import ModelShape


@dataclass(frozen=True)
class Layout:
    """Data copies x tensor x pipeline GPUs; ``sharding`` is the stage, 0 to 3, among the copies."""

    data: int
    tensor: int = 1
    pipeline: int = 1
    sharding: int = 0

    @property
    def gpus(self) -> int:
        """All that it uses."""
        return self.data * self.tensor * self.pipeline

    @property
    def name(self) -> str:
        """As a person says it; the copies are what is left of the GPUs."""
        parts = [f"tensor {self.tensor}"] if self.tensor > 1 else []
        parts += [f"pipeline {self.pipeline}"] if self.pipeline > 1 else []
        parts += [f"sharding {self.sharding}"] if self.sharding else []
        return ", ".join(parts) or ("data parallel" if self.data > 1 else "one GPU")

    @property
    def short_name(self) -> str:
        """The same for a narrow column."""
        return (
            self.name.replace("pipeline", "pipe").replace("sharding", "shard")
            if self.tensor > 1
            else self.name
        )

    @property
    def kind(self) -> str:
        """What it is named by: data, sharding and its stage, tensor, pipeline, or the last two together."""
        splits = [
            name for name, number in (("tensor", self.tensor), ("pipeline", self.pipeline)) if number > 1
        ]
        if splits:
            return " and ".join(splits)
        return f"sharding {self.sharding}" if self.sharding else "data"

    @property
    def in_paddle(self) -> str:
        """The call that asks Paddle for it."""
        if self.gpus == 1:
            return "no distributed call"
        if self.tensor == self.pipeline == 1:
            level = ("", "os", "os_g", "p_g_os")[self.sharding]
            return f'group_sharded_parallel(level="{level}")' if level else "paddle.DataParallel(model)"
        copies = "sharding_degree" if self.sharding else "dp_degree"
        return (
            f"fleet hybrid_configs: {copies} {self.data}, mp_degree {self.tensor}, pp_degree {self.pipeline}"
        )


def steps(gpus: int, per_node: int, shape: ModelShape, *, linked: bool) -> Iterator[tuple[Layout, ...]]:
    """Layouts by kind, the simplest kind first, in each from the smallest split.

    Tensor parallelism stays within a node, and comes before a pipeline: its all-reduces in each layer need
    the fastest links (Narayanan et al., SC 2021, section 3.2, takeaway 1). Without NVLink (``linked`` False)
    it comes after one.
    """
    yield (Layout(gpus),)
    if gpus == 1:
        return
    for stage in (1, 2, 3):
        yield (Layout(gpus, sharding=stage),)
    splits = _tensor_splits(gpus, per_node, shape)
    tensor = [(split, 1) for split in splits]
    pipeline = _with_stages(gpus, (1,), shape)
    both = _with_stages(gpus, splits, shape)
    for pairs in (tensor, both, pipeline) if linked else (pipeline, tensor, both):
        if pairs:
            yield tuple(layout for split, stages in pairs for layout in _shared(gpus, split, stages))


def _with_stages(gpus: int, splits: tuple[int, ...], shape: ModelShape) -> list[tuple[int, int]]:
    pairs = [
        (split, stages)
        for split in splits
        for stages in range(2, min(shape.layers, gpus // split) + 1)
        if gpus % (split * stages) == 0
    ]
    # Of the same product the wider tensor split: fewer stages wait less.
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], -pair[0]))


def _tensor_splits(gpus: int, per_node: int, shape: ModelShape) -> tuple[int, ...]:
    most = min(gpus, per_node)
    return tuple(t for t in range(2, most + 1) if most % t == 0 and gpus % t == 0 and shape.heads % t == 0)


def _shared(gpus: int, tensor: int, pipeline: int) -> Iterator[Layout]:
    copies = gpus // (tensor * pipeline)
    yield Layout(copies, tensor, pipeline)
    if copies > 1:
        yield Layout(copies, tensor, pipeline, 1)
