"""`clusterctl size`: what training a model needs, before GPUs are bought or waited for."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from clusterctl import console
from clusterctl.cluster import inventory
from clusterctl.cluster.directory import ClusterDirectory, find_cluster_directory
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, ClusterctlError
from clusterctl.sizing import hardware, memory, plan, record, shape, table, throughput
from clusterctl.sizing.measured import last_measured

MAX_PARAMETERS, MAX_TOKENS = 1e13, 1e16
NOT_FOUND = "cluster.not-found"
LETTERS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
AMOUNT = re.compile(r"(\d{1,20}(?:\.\d{0,20})?(?:[eE]\+?\d{1,2})?)([KMBT]?)", re.IGNORECASE)
SIZE = click.IntRange(1, 1_000_000)


class Amount(click.ParamType[float]):
    """A number as people write it: 6.5B, 6.5e9, 300B, 1.4T."""

    name = "amount"

    def __init__(self, most: float) -> None:
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = AMOUNT.fullmatch(str(value).strip())
        number = float(match[1]) * LETTERS[match[2].upper()] if match else math.nan
        if not 1 <= number <= self.most:
            self.fail(f"{value!r} is not a number from 1 to {self.most:g}, like 6.5B or 6.5e9", param, ctx)
        return number


class PeakPart(click.FloatRange):
    """From LEAST_PART to 1; not NaN, which no bound refuses."""

    def __init__(self) -> None:
        super().__init__(throughput.LEAST_PART, 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number from {self.min} to 1", param, ctx)
        return number


@click.command("size")
@click.option("--model", "preset", metavar="NAME", help="A public model; --list-models lists them.")
@click.option(
    "--parameters", type=Amount(MAX_PARAMETERS), help="Parameters, e.g. 6.5B; layers and sizes are estimated."
)
@click.option("--layers", type=click.IntRange(1, 10_000), metavar="N", help="Transformer layers.")
@click.option("--hidden", type=SIZE, metavar="N", help="Hidden size.")
@click.option("--heads", type=click.IntRange(1, 10_000), metavar="N", help="Attention heads.")
@click.option(
    "--vocabulary", type=click.IntRange(1, 10_000_000), metavar="N", help="Words in the vocabulary."
)
@click.option("--sequence", type=SIZE, metavar="N", help="Length of sequences. Default: the model's.")
@click.option(
    "--precision",
    type=click.Choice(list(memory.FORMATS)),
    help="amp is Paddle's level O1, fp16 and bf16 its O2. Default: bf16, or fp16 on older GPUs.",
)
@click.option(
    "--optimizer",
    type=click.Choice(list(memory.OPTIMIZERS)),
    default="adam",
    show_default=True,
    help="Its states are in fp32: two a parameter, momentum one, sgd none.",
)
@click.option(
    "--micro-batch",
    type=SIZE,
    default=1,
    show_default=True,
    metavar="N",
    help="Sequences a GPU computes at once.",
)
@click.option(
    "--global-batch",
    type=click.IntRange(1, 100_000_000),
    metavar="N",
    help="Sequences of a step. Default: one micro batch a copy; with a pipeline eight a stage.",
)
@click.option(
    "--recompute",
    type=click.Choice(["auto", *memory.RECOMPUTE]),
    default="auto",
    show_default=True,
    help="Which activations are computed again; `selective` is also the memory of FlashAttention.",
)
@click.option("--sequence-parallel", is_flag=True, help="Divide norms and dropout by the tensor split, too.")
@click.option("--gpu", metavar="TYPE", help="A hardware profile. Default: that of the cluster's nodes.")
@click.option(
    "--gpus",
    type=click.IntRange(1, plan.MAX_GPUS),
    metavar="N",
    help="How many. Default: the cluster's; with --gpu the smallest number that fits.",
)
@click.option("--per-node", type=click.IntRange(1, 128), metavar="N", help="GPUs of a node.")
@click.option("--limit", metavar="HOSTS", help="Of the cluster only these hosts, groups or globs.")
@click.option(
    "--tokens", type=Amount(MAX_TOKENS), help="Tokens to train with. Default: 20 a parameter (Chinchilla)."
)
@click.option(
    "--mfu",
    type=PeakPart(),
    metavar="PART",
    help="Part of the GPUs' peak that training reaches, 0 to 1. Default: measured here, else published.",
)
@click.option("--list-models", "listing", is_flag=True, help="List the public models that --model knows.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --list-models one per model.")
@click.pass_obj
def command(
    named: Path | None,
    *,
    preset: str | None,
    parameters: float | None,
    layers: int | None,
    hidden: int | None,
    heads: int | None,
    vocabulary: int | None,
    sequence: int | None,
    precision: str | None,
    optimizer: str,
    micro_batch: int,
    global_batch: int | None,
    recompute: str,
    sequence_parallel: bool,
    gpu: str | None,
    gpus: int | None,
    per_node: int | None,
    limit: str | None,
    tokens: float | None,
    mfu: float | None,
    listing: bool,
    as_json: bool,
) -> int:
    """Compute the memory, parallelism and days that training a transformer needs. Contacts no host.

    On the GPUs of the cluster, on --gpu TYPE (no cluster directory is needed), or on a budget of --gpus N.
    Exit code 1 if it does not fit: then the output says what would.
    """
    if listing:
        _list_models(as_json=as_json)
        return EXIT_GOOD
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "vocabulary": vocabulary}
    model = _model(preset, parameters, sizes, sequence)
    if gpu is not None and limit is not None:
        raise click.UsageError("--limit selects nodes of the cluster: omit it with --gpu")
    directory = _cluster_if_any(named)
    if gpu is not None:
        there = hardware.of_kind(gpu, gpus, per_node)
    elif directory is not None:
        there = hardware.of_cluster(inventory.load(directory), limit, gpus, per_node)
    else:
        raise ClusterctlError(
            "there are no GPUs to size for: no --gpu, and no cluster directory here or above",
            code="size.gpu",
            where=str(Path.cwd()),
            hint="Give --gpu TYPE, e.g. --gpu hgx-a100-80gb, or a cluster directory with -C DIR.",
        )
    chosen = precision or there.default_precision
    there.peak_flops(chosen)  # refused here, before anything is read
    request = memory.TrainingRequest(
        chosen, optimizer, micro_batch, sequence or model.sequence, sequence_parallel
    )
    task = plan.Task(
        model,
        request,
        tokens or throughput.TOKENS_PER_PARAMETER * model.parameters,
        global_batch,
        memory.RECOMPUTE if recompute == "auto" else (recompute,),
    )
    reached = throughput.Utilisation(mfu, "as given", "given") if mfu is not None else None
    if reached is None and directory is not None:
        reached = last_measured(directory, there.profile, chosen)
    sizing = plan.size(task, there, reached or throughput.published(chosen))
    if as_json:
        console.emit(record.record(sizing))
    else:
        console.write(table.render(sizing))
    return EXIT_GOOD if sizing.chosen else EXIT_CLUSTER_BAD


def _model(
    preset: str | None, parameters: float | None, sizes: dict[str, int | None], sequence: int | None
) -> shape.ModelShape:
    if preset is None:
        whole = None if parameters is None else round(parameters)
        return shape.described(parameters=whole, sequence=sequence, **sizes)
    given = [name for name, value in {"parameters": parameters, **sizes}.items() if value is not None]
    if given:
        raise click.UsageError(f"--model has its own sizes: omit --{', --'.join(given)}")
    return shape.preset(preset)


def _cluster_if_any(named: Path | None) -> ClusterDirectory | None:
    """The cluster directory, whose runs may also have measured the GPUs; None if there is none."""
    try:
        return find_cluster_directory(named)
    except ClusterctlError as error:
        if named is None and error.code == NOT_FOUND:
            return None
        raise


def _list_models(*, as_json: bool) -> None:
    found = [shape.preset(name) for name in shape.presets()]
    if as_json:
        for one in found:
            console.emit({"type": "model", **asdict(one)})
        return
    console.write(table.models(found))
