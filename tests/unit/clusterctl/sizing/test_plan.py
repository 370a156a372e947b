"""What is chosen, why the others do not fit, and how long it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.sizing import plan
from clusterctl.sizing.hardware import GpuPool, of_kind
from clusterctl.sizing.memory import FULL, GIB, NONE, SELECTIVE, TrainingRequest
from clusterctl.sizing.plan import Task
from clusterctl.sizing.shape import described, preset, presets
from clusterctl.sizing.throughput import ASSUMED, Utilisation

HALF = Utilisation(0.5, "test", "given")
SEEDS = Task(described(parameters=6_500_000_000), TrainingRequest(), 130e9)


def sized(task: Task, kind: str, gpus: int | None) -> plan.Sizing:
    return plan.size(task, of_kind(kind, gpus, None), HALF)


def kinds(sizing: plan.Sizing) -> dict[str, bool]:
    return {option.layout.kind: not option.why_not for option in sizing.options}


def test_six_and_a_half_billion_parameters_do_not_fit_48_gb_and_what_would():
    sizing = sized(SEEDS, "l40s-48gb", 1)
    assert sizing.chosen is None
    assert sizing.options[0].why_not.startswith("the optimizer states alone need 72.6 GiB")
    assert sizing.least_gpus == 4
    again = sized(SEEDS, "l40s-48gb", 4)
    assert again.chosen is not None
    # 4 shards: stage 2 leaves the weights whole and a quarter of the optimizer's 12 bytes.
    fitting = [kind for kind, fits in kinds(again).items() if fits]
    assert fitting == ["sharding 2", "sharding 3", "pipeline", "tensor", "tensor and pipeline"]
    assert again.chosen.layout.kind == "sharding 2"


def test_a_type_alone_gives_the_smallest_number_that_fits():
    sizing = sized(SEEDS, "hgx-a100-80gb", None)
    assert sizing.gpus == sizing.least_gpus == 2
    assert plan.choose(plan.options_on(1, SEEDS, sizing.hardware, 1e14), linked=True) is None


def test_what_fits_simply_is_chosen_simply():
    sizing = sized(replace(SEEDS, shape=preset("bert-large")), "a10-24gb", 8)
    assert all(kinds(sizing).values())
    assert sizing.chosen is sizing.options[0]


def test_gpt_3_needs_tensor_and_pipeline_as_its_authors_of_megatron_used():
    sizing = sized(Task(preset("gpt3-175b"), TrainingRequest(), 300e9, 2048), "hgx-a100-80gb", 1024)
    assert sizing.chosen is not None
    assert (sizing.chosen.layout.kind, sizing.chosen.layout.tensor) == ("tensor and pipeline", 8)
    # Sharding 3 fits only with full recomputation, which costs a third: what does not need it is preferred.
    assert kinds(sizing)["sharding 3"]
    assert sizing.chosen.recompute != FULL
    free = sized(Task(preset("gpt3-175b"), TrainingRequest(), 300e9), "hgx-a100-80gb", 1024)
    assert free.chosen is not None
    assert free.chosen.micro_batches == 8 * free.chosen.layout.pipeline


def test_without_nvlink_tensor_splits_are_the_last_resort():
    task = Task(preset("llama2-7b"), TrainingRequest(sequence=4096), 1e9)
    sizing = sized(task, "rtx-4090-24gb", 8)
    assert kinds(sizing)["tensor"]
    assert sizing.chosen is not None
    assert (sizing.chosen.layout.kind, sizing.chosen.recompute) == ("sharding 3", FULL)
    nothing_else = sized(replace(task, recompute=(SELECTIVE,)), "rtx-4090-24gb", 8)
    assert nothing_else.chosen is not None
    assert nothing_else.chosen.layout.kind == "tensor"


def test_a_global_batch_that_cannot_be_divided_is_a_reason():
    sizing = sized(Task(preset("bert-large"), TrainingRequest(), 1e9, 4), "a10-24gb", 8)
    assert sizing.options[0].why_not == "the global batch is no multiple of 8 copies x 1"
    assert sizing.chosen is not None
    assert sizing.chosen.layout.kind == "pipeline"  # on GPUs without NVLink
    assert sizing.chosen.layout.data * sizing.chosen.micro_batches == 4


def test_days_follow_from_operations_and_gpus():
    sizing = sized(Task(preset("bert-large"), TrainingRequest(sequence=512), 1e12), "hgx-a100-80gb", 8)
    chosen = sizing.chosen
    assert chosen is not None
    assert (chosen.recompute, chosen.micro_batches, sizing.least_gpus) == (NONE, 1, 1)
    shape = preset("bert-large")
    work = 6 * shape.parameters + 12 * 24 * 1024 * 512
    assert chosen.days == pytest.approx(1e12 * work / (8 * 156e12) / 86400)


def test_a_pipeline_pays_for_its_stages_that_wait():
    many, few = (
        sized(replace(SEEDS, global_batch=batch), "hgx-a100-80gb", 2).options[-1] for batch in (64, 2)
    )
    assert many.layout.pipeline == few.layout.pipeline == 2
    assert (many.micro_batches, few.micro_batches) == (64, 2)
    assert few.days / many.days == pytest.approx((1 + 1 / 2) / (1 + 1 / 64))


def test_only_the_recomputation_that_was_asked_for_is_used():
    sizing = sized(replace(SEEDS, recompute=(NONE,)), "hgx-a100-80gb", 16)
    assert {option.recompute for option in sizing.options} == {NONE}


@given(
    st.sampled_from(sorted(presets())),
    st.sampled_from([1, 2, 4, 8, 16, 128]),
    st.sampled_from(["a10-24gb", "hgx-a100-80gb", "h200-sxm5-141gb"]),
    st.integers(1, 8),
)
def test_what_is_said_to_fit_fits_and_more_gpus_fit_all_the_more(name, gpus, kind, micro_batch):
    shape = preset(name)
    task = Task(shape, TrainingRequest(micro_batch=micro_batch, sequence=shape.sequence), 1e9)
    small, large = (sized(task, kind, number) for number in (gpus, 2 * gpus))
    for sizing in (small, large):
        for option in sizing.options:
            assert (option.memory.total > sizing.hardware.usable_bytes) is bool(option.why_not)
            assert (option.days is None) is bool(option.why_not)
    if small.chosen:
        assert large.chosen
    fewer = {option.layout.kind: option.memory.total for option in small.options if option.recompute == FULL}
    for option in large.options:
        if (
            option.recompute == FULL
            and option.layout.kind.startswith("sharding")
            and option.layout.kind in fewer
        ):
            assert option.memory.total <= fewer[option.layout.kind] * (1 + 1e-12)


def test_usable_is_less_than_there_is():
    pool = of_kind("l40s-48gb", 1, None)
    assert isinstance(pool, GpuPool)
    assert 0 < pool.usable_bytes < 48 * GIB


MEASURED = Utilisation(0.3, "measured by run 1", "measured", 8)
APART, NVLINK, NODES, MORE = (
    "Days count no time",
    "Without NVLink",
    "Across nodes expect less without",
    "than what 8 GPUs",
)


@pytest.mark.parametrize(
    ("kind", "gpus", "reached", "said"),
    [
        ("hgx-a100-80gb", 1, ASSUMED, []),
        ("hgx-a100-80gb", 8, ASSUMED, [APART]),
        ("hgx-a100-80gb", 16, ASSUMED, [APART, NODES]),
        ("l40s-48gb", 8, ASSUMED, [APART, NVLINK]),
        ("l40s-48gb", 16, ASSUMED, [APART, NVLINK, NODES]),
        ("l40s-48gb", 16, HALF, [APART]),
        ("l40s-48gb", 8, MEASURED, [APART]),
        ("l40s-48gb", 16, MEASURED, [APART, MORE]),
        ("l40s-48gb", 16, replace(MEASURED, gpus=16), [APART]),
    ],
)
def test_what_days_assume_of_links_is_said(
    kind: str, gpus: int, reached: Utilisation, said: list[str]
) -> None:
    sizing = plan.size(Task(preset("bert-large"), TrainingRequest(), 1e9), of_kind(kind, gpus, None), reached)
    assert sizing.chosen is not None and sizing.chosen.layout.gpus == gpus
    assert len(sizing.assumptions) == len(said)
    assert all(words in sentence for words, sentence in zip(said, sizing.assumptions, strict=True))
