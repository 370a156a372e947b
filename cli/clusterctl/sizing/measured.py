"""What part of their peak these GPUs reached when the cluster was last validated with training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clustercheck.expect.profiles import Profile
from clustercheck.model import Figure, Verdict
from clustercheck.result.document import Document
from clustercheck.result.reading import MAX_BYTES
from clusterctl.cluster.bounded_file import UnusableFileError, read_bounded
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.errors import ClusterctlError
from clusterctl.report import files
from clusterctl.runs.store import RunStore
from clusterctl.sizing.memory import FORMATS
from clusterctl.sizing.throughput import LEAST_PART, Utilisation, operations

CHECKS = ("training-throughput", "training-throughput-pytorch")
# The jobs' BERT-base, by the sizes in `clustercheck.jobs.models` and the length in suites.yml: its layers
# alone, since a table of words is read, not multiplied.
LAYERS, HIDDEN, LENGTH = 12, 768, 128
METRICS = {
    "bf16": "bert_base_bf16_per_rank",
    "fp16": "bert_base_amp_fp16_per_rank",
    "amp": "bert_base_amp_fp16_per_rank",
    "tf32": "bert_base_tf32_per_rank",
    "fp32": "bert_base_fp32_per_rank",
}
MAX_RUNS = 20  # the newest, of which results are read


def last_measured(directory: ClusterDirectory, profile: Profile, precision: str) -> Utilisation | None:
    """Of the newest run that trained on such GPUs; None if no run did, or none that can be read."""
    for run in reversed(files.judged(RunStore(directory).scan().runs)[-MAX_RUNS:]):
        try:
            if not _mentions(run.path(files.RESULT), METRICS[precision]):
                continue
            found = in_document(files.load(run), profile, precision)
        except (ClusterctlError, UnusableFileError, OSError):
            continue
        if found is not None:
            return found
    return None


def _mentions(result: Path, metric: str) -> bool:
    """Whether a result names the metric: of a thousand nodes it takes seconds to parse, and most have none.

    Raises UnusableFileError and OSError.
    """
    return metric.encode() in read_bounded(result, MAX_BYTES)


def in_document(document: Document, profile: Profile, precision: str) -> Utilisation | None:
    """What one validation measured with BERT-base on GPUs of this profile; None if it says nothing."""
    peak = profile.peak_tflops.get(FORMATS[precision].peak)
    if document.simulated or peak is None:
        return None
    for figure in _figures(document):
        measured = figure.metric == METRICS[precision] and figure.conditions.get("nccl") is True
        if measured and _on_such_gpus(document.environment, figure.conditions, profile):
            reached = figure.measured * LENGTH * operations(12 * LAYERS * HIDDEN**2, LAYERS, HIDDEN, LENGTH)
            part = reached / (peak.value * 1e12)
            if LEAST_PART <= part <= 1:
                ranks = figure.conditions.get("ranks")
                gpus = ranks if isinstance(ranks, int) else None
                return Utilisation(part, _source(document, figure), "measured", gpus)
    return None


def _figures(document: Document) -> Iterator[Figure]:
    for result in document.results:
        if result.check in CHECKS:
            yield from (each.figure for each in result.figures if each.verdict is not Verdict.NOT_RUN)


def _source(document: Document, figure: Figure) -> str:
    return (
        f"measured by run {document.run}: {figure.measured:.4g} {figure.unit} a GPU of BERT-base with "
        f"sequences of {LENGTH}, on {figure.conditions.get('ranks')} GPUs; larger models usually reach more"
    )


def _on_such_gpus(environment: Mapping[str, Any], conditions: Mapping[str, Any], profile: Profile) -> bool:
    """Whether all GPUs of the nodes that trained are of the profile's models, as the nodes say."""
    described, nodes = environment.get("nodes"), conditions.get("nodes")
    if not isinstance(described, Mapping) or not isinstance(nodes, (list, tuple)) or not nodes:
        return False
    models = [_models(described.get(node)) for node in nodes if isinstance(node, str)]
    if len(models) < len(nodes):
        return False
    return all(each and each <= set(profile.gpu_models) for each in models)


def _models(node: Any) -> set[str]:
    gpus = node.get("gpus") if isinstance(node, Mapping) else None
    some = gpus if isinstance(gpus, (list, tuple)) else ()
    return {str(gpu.get("model")) for gpu in some if isinstance(gpu, Mapping)}
