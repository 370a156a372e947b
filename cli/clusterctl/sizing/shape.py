"""The shape of a transformer, and how many parameters it has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.errors import ClusterctlError

PRESETS = Path(__file__).with_name("presets.yml")
# Hidden size over layers of GPT-3 6.7B, 13B and 175B (Brown et al., table 2.1), and of LLaMA 7B and 13B.
ASPECT, HEAD = 128, 128
VOCABULARY, SEQUENCE = 50257, 2048  # of GPT-3
MAX_HIDDEN = 1_000_000
# How far a count may be from that of its layers and sizes. A mixture of experts is beyond it.
MAX_OFF = 1.5


@dataclass(frozen=True)
class Family:
    """What layers are made of: a gated inner width has three matrices, dropout keeps masks."""

    gated: bool = False
    biases: bool = True
    learned_positions: bool = True
    tied: bool = True
    dropout: bool = True


FAMILIES = {
    "gpt": Family(),
    "bert": Family(),
    "llama": Family(gated=True, biases=False, learned_positions=False, tied=False, dropout=False),
}


@dataclass(frozen=True)
class ModelShape:
    """A dense transformer. ``ffn`` is the inner width; ``source`` says where the sizes come from."""

    name: str
    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    family: str
    source: str

    @property
    def kind(self) -> Family:
        """What its layers are made of."""
        return FAMILIES[self.family]

    @property
    def kv_width(self) -> float:
        """The width of keys, and of values."""
        return self.hidden * self.kv_heads / self.heads

    @property
    def embedding(self) -> int:
        """Parameters of one table of words."""
        return self.vocabulary * self.hidden

    @property
    def input_parameters(self) -> int:
        """What the first stage has besides layers: words, and positions that are learned."""
        return self.embedding + (self.sequence * self.hidden if self.kind.learned_positions else 0)

    @property
    def layer_parameters(self) -> float:
        """Of one layer: all that is no embedding, divided evenly."""
        tables = self.input_parameters + (0 if self.kind.tied else self.embedding)
        return (self.parameters - tables) / self.layers


def count(shape: ModelShape) -> int:
    """The parameters of a shape, from its sizes.

    For GPT with an inner width of 4h that is 12 L h^2 (1 + 13/(12h) + (V + s)/(12 L h)): Narayanan et al.,
    Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM (SC 2021), equation 2.
    """
    kind, h, f = shape.kind, shape.hidden, shape.ffn
    layer = 2 * h * h + 2 * h * shape.kv_width + (3 if kind.gated else 2) * h * f
    layer += 2 * h  # two norms
    if kind.biases:
        layer += 2 * h + 2 * shape.kv_width + f + h + 2 * h  # of attention, inner width and norms
    tables = shape.input_parameters + (0 if kind.tied else shape.embedding)
    return round(shape.layers * layer + tables)


@cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Public models by name, as presets.yml has them."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(PRESETS.read_text(encoding="utf-8"))
    return found


def preset(name: str) -> ModelShape:
    """The public model of that name. Raises ClusterctlError (``size.model``)."""
    if name not in presets():
        raise ClusterctlError(
            f"there is no model {name!r} among the presets",
            code="size.model",
            where="--model",
            hint=did_you_mean(name, presets()) or "clusterctl size --list-models lists them.",
        )
    entry = presets()[name]
    sizes = {key: entry[key] for key in ("layers", "hidden", "heads", "vocabulary", "sequence", "family")}
    inner = entry.get("ffn", 4 * entry["hidden"])
    kv_heads = entry.get("kv_heads", entry["heads"])
    made = ModelShape(
        name=name, parameters=0, ffn=inner, kv_heads=kv_heads, source=str(entry["source"]), **sizes
    )
    return replace(made, parameters=count(made))


def described(
    *,
    parameters: int | None,
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    vocabulary: int | None = None,
    sequence: int | None = None,
) -> ModelShape:
    """A GPT of these sizes; those that are not given are estimated from the parameters.

    Estimated: layers and hidden size in GPT-3's proportion, h = 128 L, so that P = 12 L h^2; heads of 128.
    Raises ClusterctlError: ``size.model`` if too little is given, ``size.shape`` if it does not agree.
    """
    if parameters is None and (layers is None or hidden is None):
        raise ClusterctlError(
            "the model's size is not given",
            code="size.model",
            hint="Give --model NAME, --parameters 6.5B, or --layers and --hidden.",
        )
    words, length = vocabulary or VOCABULARY, sequence or SEQUENCE
    depth, inner = _estimated(parameters or 0, layers, hidden, words + length)
    given = [n for n, v in (("layers", layers), ("hidden size", hidden)) if v is None]
    source = f"{' and '.join(given)} estimated in the proportion of GPT-3" if given else "as given"
    made = ModelShape(
        name="model",
        parameters=0,
        layers=depth,
        hidden=inner,
        heads=heads or _heads(inner),
        kv_heads=heads or _heads(inner),
        ffn=4 * inner,
        vocabulary=words,
        sequence=length,
        family="gpt",
        source=source,
    )
    made = replace(made, parameters=parameters or count(made))
    _require_agreement(made)
    return made


def _estimated(parameters: int, layers: int | None, hidden: int | None, rows: int) -> tuple[int, int]:
    """Layers and hidden size, the nearest to GPT-3's proportion, or to the layers that are given.

    ``rows`` are those of the tables of words and positions.
    """

    def depth_of(width: int) -> float:
        return (parameters - rows * width) / (12 * width * width)

    def off(width: int) -> float:
        proportion = depth_of(width) / (layers or width / ASPECT)
        return abs(math.log(proportion)) if proportion > 0 else math.inf

    width = hidden or min(_widths(), key=off)
    return layers or max(1, round(depth_of(width))), width


@cache
def _widths() -> tuple[int, ...]:
    """Hidden sizes in steps as published models have them; 8 GPUs can divide the heads of the larger."""
    small, large = range(HEAD, 1024, HEAD), range(1024, 4096, 2 * HEAD)
    return (*small, *large, *range(4096, MAX_HIDDEN, 8 * HEAD))


def _heads(hidden: int) -> int:
    """Heads of 128 where they divide, else of 64, else one."""
    return next((hidden // size for size in (HEAD, HEAD // 2) if hidden % size == 0), 1)


def _require_agreement(shape: ModelShape) -> None:
    counted = count(shape)
    if shape.hidden % shape.heads:
        raise ClusterctlError(
            f"a hidden size of {shape.hidden} cannot be divided among {shape.heads} heads",
            code="size.shape",
            where="--hidden, --heads",
            hint="The hidden size is a multiple of the number of heads.",
        )
    if shape.layer_parameters <= 0 or not 1 / MAX_OFF < counted / shape.parameters < MAX_OFF:
        raise ClusterctlError(
            f"{shape.layers} layers of {shape.hidden} with a vocabulary of {shape.vocabulary} have "
            f"{counted / 1e9:.3g} billion parameters, not {shape.parameters / 1e9:.3g}",
            code="size.shape",
            where="--parameters, --layers, --hidden, --vocabulary",
            hint="Omit one of them, or correct it. Mixtures of experts are not covered.",
        )
