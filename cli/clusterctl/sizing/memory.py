"""Memory of training by part, in bytes per GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from clusterctl.sizing.layout import Layout
from clusterctl.sizing.shape import ModelShape

GIB = 2**30
NONE, SELECTIVE, FULL = "none", "selective", "full"
RECOMPUTE = (NONE, SELECTIVE, FULL)  # from the most memory to the least
# Of the formulas below, as the output names them.
STATES_SOURCE = "ZeRO (Rajbhandari et al., SC 2020, arXiv 1910.02054), section 3.1"
ACTIVATIONS_SOURCE = "Korthikanti et al. (arXiv 2205.05198), section 4"
LORA_SOURCE = "LoRA (Hu et al., ICLR 2022, arXiv 2106.09685), section 4"


@dataclass(frozen=True)
class NumberFormat:
    """Bytes a parameter and an activation; ``peak`` names the profile's figure for its arithmetic."""

    weight: int
    gradient: int
    master: int
    element: int
    peak: str


# Mixed precision (fp16, bf16): weights and gradients of 2 bytes, and a master copy of 4 with the optimizer
# (Rajbhandari et al., ZeRO, section 3.1). amp is Paddle's level O1: the weights stay in fp32, and what is
# cast for the forward pass is kept for the backward pass.
FORMATS = {
    "fp32": NumberFormat(4, 4, 0, 4, "fp32"),
    "tf32": NumberFormat(4, 4, 0, 4, "tf32"),
    "amp": NumberFormat(4 + 2, 4, 0, 2, "fp16"),
    "fp16": NumberFormat(2, 2, 4, 2, "fp16"),
    "bf16": NumberFormat(2, 2, 4, 2, "bf16"),
}
# Bytes a parameter of the states themselves, always fp32: two moments, one, none.
OPTIMIZERS = {"adam": 8, "adamw": 8, "momentum": 4, "sgd": 0}


@dataclass(frozen=True)
class TrainingRequest:
    """How is trained. ``sequence_parallel`` divides by the tensor split what it alone leaves whole."""

    precision: str = "bf16"
    optimizer: str = "adam"
    micro_batch: int = 1
    sequence: int = 2048
    sequence_parallel: bool = False

    @property
    def number_format(self) -> NumberFormat:
        """The bytes of its precision."""
        return FORMATS[self.precision]

    @property
    def bytes_per_parameter(self) -> int:
        """Of weights, gradients and optimizer states: 16 for Adam in mixed precision (ZeRO, section 3.1)."""
        chosen = self.number_format
        return chosen.weight + chosen.gradient + chosen.master + OPTIMIZERS[self.optimizer]


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest GPU."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def states(self) -> float:
        """All that does not depend on the batch."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return self.states + self.activations


def states(parameters: float, request: TrainingRequest, *, stage: int = 0, shards: int = 1) -> Memory:
    """Weights, gradients and optimizer states of this many parameters, sharded in a stage.

    ZeRO (Rajbhandari et al., SC 2020), section 3.1 and figure 1: in mixed precision with Adam 2 + 2 + 12
    bytes a parameter; stage 1 divides the optimizer's 12 by the number of shards, stage 2 the gradients'
    too, stage 3 all.
    """
    chosen = request.number_format
    return Memory(
        weights=parameters * chosen.weight / (shards if stage >= 3 else 1),
        gradients=parameters * chosen.gradient / (shards if stage >= 2 else 1),
        optimizer=parameters
        * (chosen.master + OPTIMIZERS[request.optimizer])
        / (shards if stage >= 1 else 1),
        activations=0,
    )


def layer_activations(
    shape: ModelShape, request: TrainingRequest, *, tensor: int = 1, scores: bool = True
) -> float:
    """What one layer keeps for the backward pass, of one micro batch.

    Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, section 4: for a GPT
    in 16 bits sbh (34 + 5as/h), split t ways sbh (10 + 24/t + 5as/(ht)), with sequence parallelism all
    divided by t. The same count for other elements, inner widths, grouped keys and layers without dropout:
    each matrix keeps its input, each norm and activation function too, softmax its result, dropout a mask of
    one byte. ``scores`` False: selective recomputation, or FlashAttention, which never stores them.
    """
    e, h, s = request.number_format.element, shape.hidden, request.sequence
    dropout = shape.kind.dropout
    whole = 4 * h * e + (2 * h if dropout else 0)  # inputs of two norms, attention and inner part; two masks
    split = e * (2 * h + 2 * shape.kv_width + (4 if shape.kind.gated else 2) * shape.ffn)
    if scores:
        split += shape.heads * s * (2 * e + 1 if dropout else e)
    rows = s * request.micro_batch
    return rows * (whole / (tensor if request.sequence_parallel else 1) + split / tensor)


def stage_activations(
    shape: ModelShape,
    request: TrainingRequest,
    layout: Layout,
    recompute: str,
    *,
    last: bool,
    micro_batches: int | None = None,
) -> float:
    """Activations on a GPU of the first or of the ``last`` pipeline stage; one stage alone is the last.

    Korthikanti et al., sections 4.2 and 4.3: in the schedule 1F1B the first stage holds as many micro batches
    as there are stages, so of all layers together, and no more than a step has (None: enough of them); full
    recomputation keeps the input of each layer (2sbh), and, while one is computed again, that layer. The
    embedding keeps a mask, the output its inputs and the logits in fp32.
    """
    held = 1 if last else min(layout.pipeline, micro_batches or layout.pipeline)
    layers, t = ceil(shape.layers / layout.pipeline), layout.tensor
    width = request.sequence * request.micro_batch * shape.hidden
    width_here = width / (t if request.sequence_parallel else 1)
    element = request.number_format.element
    if recompute == FULL:
        kept = held * layers * element * width_here + layer_activations(shape, request, tensor=t)
    else:
        kept = held * layers * layer_activations(shape, request, tensor=t, scores=recompute == NONE)
    if shape.kind.dropout and (not last or layout.pipeline == 1):
        kept += held * width_here
    if last:
        kept += 2 * element * width_here
        kept += 4 * request.sequence * request.micro_batch * shape.vocabulary / t
    return kept


def on_fullest_gpu(
    shape: ModelShape,
    request: TrainingRequest,
    layout: Layout,
    recompute: str,
    micro_batches: int | None = None,
) -> Memory:
    """The memory of the GPU that needs the most: of the first pipeline stage or of the last."""
    first, last = (
        _on_stage(shape, request, layout, recompute, last=end, micro_batches=micro_batches)
        for end in (False, True)
    )
    return max(first, last, key=lambda end: end.total)


def _on_stage(
    shape: ModelShape,
    request: TrainingRequest,
    layout: Layout,
    recompute: str,
    *,
    last: bool,
    micro_batches: int | None,
) -> Memory:
    parameters: float = shape.parameters
    if layout.pipeline > 1:
        parameters = ceil(shape.layers / layout.pipeline) * shape.layer_parameters
        parameters += shape.embedding if last else shape.input_parameters
    held = states(parameters / layout.tensor, request, stage=layout.sharding, shards=layout.data)
    kept = stage_activations(shape, request, layout, recompute, last=last, micro_batches=micro_batches)
    # What is sharded is whole while it is used: the largest layer, or the table of words.
    used = states(max(shape.layer_parameters, shape.embedding) / layout.tensor, request)
    whole = states(parameters / layout.tensor, request)
    return Memory(
        min(whole.weights, held.weights + used.weights),
        min(whole.gradients, held.gradients + used.gradients),
        held.optimizer,
        kept,
    )


def lora(shape: ModelShape, request: TrainingRequest, *, rank: int = 16) -> float:
    """Frozen weights, the states of adapters on queries and values, and activations with full recomputation.

    Hu et al., LoRA (ICLR 2022), section 4: an adapter of rank r on a matrix of d x k trains r (d + k).
    """
    adapters = shape.layers * rank * (2 * shape.hidden + shape.hidden + shape.kv_width)
    kept = stage_activations(shape, request, Layout(1), FULL, last=True)
    return shape.parameters * request.number_format.weight + states(adapters, request).total + kept


def inference(shape: ModelShape, request: TrainingRequest) -> float:
    """Weights, and keys and values of one micro batch at full length: 2 a token, layer and width."""
    cache = 2 * shape.layers * shape.kv_width * request.sequence * request.micro_batch
    return (shape.parameters + cache) * request.number_format.element
