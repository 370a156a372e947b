"""How long training takes: operations a token, and the part of a GPU's peak that training reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clusterctl.sizing.memory import FULL, SELECTIVE
from clusterctl.sizing.shape import ModelShape

SECONDS_PER_DAY = 86400
# Hoffmann et al., Training Compute-Optimal Large Language Models (Chinchilla, 2022), table 3.
TOKENS_PER_PARAMETER = 20
# Of `operations`, as the output names it.
OPERATIONS_SOURCE = (
    "6ND, 6 for each parameter and token: Chinchilla (Hoffmann et al., arXiv 2203.15556), appendix F; those "
    "of attention: PaLM (Chowdhery et al., arXiv 2204.02311), appendix B"
)
# Less of the peak is a mistake, and makes times that no number can hold.
LEAST_PART = 1e-4


@dataclass(frozen=True)
class Utilisation:
    """The part of the peak that the model's own operations reach; ``origin`` says how it is known.

    ``gpus`` is on how many it was measured here, None where it was not.
    """

    part: float
    source: str
    origin: Literal["measured", "given", "published", "assumed"]
    gpus: int | None = None


ASSUMED = Utilisation(
    0.40,
    "assumed; published: Llama 3 405B 38 to 43 % on H100 (Grattafiori et al., 2024, table 4), Megatron 530B "
    "54 % on 2240 A100 (Korthikanti et al., 2023)",
    "assumed",
)
PUBLISHED_AMP = Utilisation(
    0.42,
    "published: BERT-large with Paddle's AMP on 32 DGX A100, 142087 sequences/s of length 128 (NVIDIA "
    "DeepLearningExamples)",
    "published",
)
UNPUBLISHED = Utilisation(0.40, "assumed as for bf16: no published figure for this precision", "assumed")


def published(precision: str) -> Utilisation:
    """What is known of a precision without a measurement here."""
    if precision in ("bf16", "fp16"):
        return ASSUMED
    return PUBLISHED_AMP if precision == "amp" else UNPUBLISHED


def operations(parameters: float, layers: int, hidden: int, sequence: int) -> float:
    """Floating-point operations a token, forward and backward: 6N, and 12 L h s of attention.

    6N: Hoffmann et al. (Chinchilla), appendix F, as Kaplan et al. (2020), section 2.1; the attention's, which
    6N leaves out: Chowdhery et al. (PaLM, 2022), appendix B, from which utilisation takes its meaning.
    """
    return 6 * parameters + 12 * layers * hidden * sequence


def executed(shape: ModelShape, sequence: int, recompute: str) -> float:
    """Operations a token with those that recomputation repeats.

    A forward pass is a third: full recomputation makes 4/3 (Narayanan et al., SC 2021, section 5.1);
    selective repeats the attention's 4 L h s.
    """
    own = operations(shape.parameters, shape.layers, shape.hidden, sequence)
    if recompute == FULL:
        return own * 4 / 3
    return own + (4 * shape.layers * shape.hidden * sequence if recompute == SELECTIVE else 0)


def waiting(stages: int, micro_batches: int) -> float:
    """The time that a pipeline's stages wait, on top of their work: (p - 1)/m.

    Narayanan et al., SC 2021, section 2.2.1.
    """
    return (stages - 1) / micro_batches


def days(tokens: float, operations_per_token: float, gpus: int, flops_per_gpu: float, waits: float) -> float:
    """Days for so many tokens at this rate of each GPU."""
    return tokens * operations_per_token * (1 + waits) / (gpus * flops_per_gpu) / SECONDS_PER_DAY
