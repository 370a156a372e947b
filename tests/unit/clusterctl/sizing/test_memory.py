"""Memory by part: the papers' own examples, and what must hold for any model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.sizing import memory
from clusterctl.sizing.layout import Layout
from clusterctl.sizing.memory import FULL, NONE, RECOMPUTE, SELECTIVE, TrainingRequest
from clusterctl.sizing.shape import described, preset, presets

GB = 1e9
MIXED = TrainingRequest()


@pytest.mark.parametrize(("stage", "expected_gb"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_example_of_zero(stage, expected_gb):
    # Rajbhandari et al., figure 1: 7.5 billion parameters on 64 GPUs, Adam in mixed precision.
    found = memory.states(7.5e9, MIXED, stage=stage, shards=64)
    assert found.total / GB == pytest.approx(expected_gb, abs=0.05)


def test_gpt_2_needs_24_gb_before_activations():
    # Rajbhandari et al., section 3.1: 1.5 billion parameters, "at least 24 GB".
    assert memory.states(1.5e9, MIXED).total / GB == 24


def test_six_and_a_half_billion_parameters_do_not_train_with_adam_in_48_gb():
    found = memory.states(6.5e9, MIXED)
    assert found.total / GB == 104
    assert found.optimizer / GB == 78


def test_mixed_precision_saves_no_memory_of_weights_and_states():
    exact = TrainingRequest("fp32").bytes_per_parameter
    assert (exact, TrainingRequest("bf16").bytes_per_parameter) == (16, 16)
    assert TrainingRequest("amp").bytes_per_parameter == 18
    assert TrainingRequest("bf16", "momentum").bytes_per_parameter == 12
    assert TrainingRequest("fp32", "sgd").bytes_per_parameter == 8
    assert TrainingRequest("bf16", "adamw").bytes_per_parameter == 16


@pytest.mark.parametrize(
    ("name", "quadratic", "saved"), [("gpt3-175b", 80, 0.70), ("megatron-530b", 64, 0.65)]
)
def test_activations_of_a_layer_are_those_of_korthikanti(name, quadratic, saved):
    # Section 4.1: sbh (34 + 5as/h). Section 5: 5as/h is 80 and 64; selective recomputation saves 70 and 65 %.
    model = preset(name)
    sbh = 2048 * model.hidden
    whole = memory.layer_activations(model, MIXED)
    assert whole / sbh == 34 + quadratic
    assert 1 - memory.layer_activations(model, MIXED, scores=False) / whole == pytest.approx(saved, abs=0.005)


def test_tensor_and_sequence_parallelism_divide_as_in_korthikanti():
    model = preset("gpt3-175b")
    sbh, t = 2048 * model.hidden, 8
    assert memory.layer_activations(model, MIXED, tensor=t) / sbh == 10 + 24 / t + 80 / t
    both = replace(MIXED, sequence_parallel=True)
    assert memory.layer_activations(model, both, tensor=t) / sbh == (34 + 80) / t


def test_full_recomputation_keeps_the_input_of_each_layer():
    # Korthikanti et al., section 5: 2sbhL; and the layer that is computed again, the mask, the logits.
    model = preset("gpt3-175b")
    sbh = 2048 * model.hidden
    expected = 2 * sbh * 96 + memory.layer_activations(model, MIXED) + sbh + 4 * sbh + 4 * 2048 * 50257
    assert memory.stage_activations(model, MIXED, Layout(1), FULL, last=True) == expected


def test_the_first_stage_of_a_pipeline_holds_as_much_as_all_layers():
    # Korthikanti et al., section 4.2.3: in 1F1B p micro batches of L/p layers.
    model = preset("megatron-530b")
    layer = memory.layer_activations(model, MIXED)
    mask = 35 * 2048 * model.hidden
    found = memory.stage_activations(model, MIXED, Layout(1, pipeline=35), NONE, last=False)
    assert found == 105 * layer + mask


def test_the_last_stage_holds_one_micro_batch_and_the_logits():
    model = preset("megatron-530b")
    sbh, layer = 2048 * model.hidden, memory.layer_activations(model, MIXED)
    found = memory.stage_activations(model, MIXED, Layout(1, pipeline=35), NONE, last=True)
    assert found == 3 * layer + 4 * sbh + 4 * 2048 * model.vocabulary


def test_a_stage_has_its_layers_and_the_table_at_its_end():
    model = preset("gpt3-6.7b")
    first = memory.on_fullest_gpu(model, MIXED, Layout(1, pipeline=2), NONE)  # holds more activations
    positions = 2048 * model.hidden
    assert first.weights == 2 * (16 * model.layer_parameters + model.embedding + positions)
    uneven = memory.on_fullest_gpu(model, MIXED, Layout(1, pipeline=5), NONE)
    assert uneven.weights == 2 * (7 * model.layer_parameters + model.embedding + positions)


def test_the_last_stage_has_the_table_without_positions():
    model = described(parameters=None, layers=2, hidden=1024, vocabulary=1_000_000)
    last = memory.on_fullest_gpu(model, MIXED, Layout(1, pipeline=2), NONE)  # the logits fill it
    assert last.weights == 2 * (model.layer_parameters + model.embedding)


def test_with_sequence_parallelism_also_inputs_and_outputs_are_divided():
    model, t = preset("gpt3-6.7b"), 8
    sbh = 2048 * model.hidden
    both = replace(MIXED, sequence_parallel=True)
    layer = memory.layer_activations(model, both, tensor=t)
    found = memory.stage_activations(model, both, Layout(1, t), FULL, last=True)
    assert found == (2 * 32 * sbh + sbh + 4 * sbh + 4 * 2048 * model.vocabulary) / t + layer


@pytest.mark.parametrize(
    ("precision", "weights", "gradients", "optimizer", "activations"),
    [
        ("fp32", 4, 4, 8, 66 + 9 * 16),
        ("tf32", 4, 4, 8, 66 + 9 * 16),
        ("amp", 6, 4, 8, 34 + 5 * 16),
        ("fp16", 2, 2, 12, 34 + 5 * 16),
        ("bf16", 2, 2, 12, 34 + 5 * 16),
    ],
)
def test_the_bytes_of_each_precision(precision, weights, gradients, optimizer, activations):
    request, model = TrainingRequest(precision), preset("gpt3-6.7b")  # as / h is 16
    assert memory.states(1, request) == memory.Memory(weights, gradients, optimizer, 0)
    assert memory.layer_activations(model, request) == activations * 2048 * model.hidden


def test_fp32_takes_twice_the_bytes_but_not_of_masks():
    model = preset("gpt3-6.7b")
    sbh, per_head = 2048 * model.hidden, 32 * 2048 / 4096
    found = memory.layer_activations(model, TrainingRequest("fp32")) / sbh
    assert found == 66 + 9 * per_head


def test_a_layer_of_llama_keeps_no_masks_and_four_inner_widths():
    # Elements a token: norms 2h, attention's input h, q k v 3h, its result h, softmax a s, inner part h + 4f.
    model = preset("llama2-7b")
    per_token = 8 * 4096 + 4 * 11008 + 32 * 2048
    assert memory.layer_activations(model, MIXED) == 2 * 2048 * per_token


def test_grouped_keys_need_less():
    grouped, own = preset("llama2-70b"), replace(preset("llama2-70b"), kv_heads=64)
    less = memory.layer_activations(own, MIXED) - memory.layer_activations(grouped, MIXED)
    assert less == 2 * 2048 * 2 * (8192 - 1024)


def test_what_is_sharded_is_whole_while_it_is_used():
    layers, words = preset("gpt3-175b"), preset("llama3-8b")  # a layer is the largest, or the table of words
    for model, largest in ((layers, layers.layer_parameters), (words, words.embedding)):
        found = [memory.on_fullest_gpu(model, MIXED, Layout(64, sharding=stage), FULL) for stage in (1, 2, 3)]
        part, whole = 2 * model.parameters / 64 + 2 * largest, 2 * model.parameters
        assert [one.weights for one in found] == [whole, whole, pytest.approx(part)]
        assert [one.gradients for one in found] == [whole, pytest.approx(part), pytest.approx(part)]
        assert {one.optimizer for one in found} == {12 * model.parameters / 64}


def test_lora_and_inference_hold_the_weights_and_little_more():
    model = preset("llama2-7b")
    weights = 2 * model.parameters
    request = TrainingRequest(sequence=4096)
    # A known figure of this model: 0.5 MiB of keys and values a token, so 2 GiB at 4096.
    assert memory.inference(model, request) - weights == 2 * memory.GIB
    kept = memory.stage_activations(model, request, Layout(1), FULL, last=True)
    adapters = 16 * 32 * 16 * (4096 + 4096 + 4096 + 4096)
    assert memory.lora(model, request) == weights + adapters + kept


def test_lora_by_level_o1_keeps_weights_in_fp32_and_their_copy():
    model, request = preset("llama2-7b"), TrainingRequest("amp")
    kept = memory.stage_activations(model, request, Layout(1), FULL, last=True)
    adapters = 18 * 32 * 16 * (4096 + 4096 + 4096 + 4096)
    assert memory.lora(model, request) == 6 * model.parameters + adapters + kept


def test_of_a_pipeline_the_fuller_end_counts():
    model = preset("llama3-8b")  # a table of words at each end
    layout = Layout(1, pipeline=2)
    found = memory.on_fullest_gpu(model, MIXED, layout, SELECTIVE)
    ends = [memory.stage_activations(model, MIXED, layout, SELECTIVE, last=end) for end in (False, True)]
    assert ends[0] != ends[1]
    assert found.activations in ends
    assert found.states == 16 * (16 * model.layer_parameters + model.embedding)


MODELS = st.sampled_from(sorted(presets())).map(preset)
LAYOUTS = st.builds(
    Layout,
    data=st.sampled_from([1, 2, 8, 64, 1024]),
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.integers(1, 12),
    sharding=st.integers(0, 3),
)
REQUESTS = st.builds(
    TrainingRequest,
    precision=st.sampled_from(sorted(memory.FORMATS)),
    optimizer=st.sampled_from(sorted(memory.OPTIMIZERS)),
    micro_batch=st.integers(1, 64),
    sequence=st.integers(1, 100_000),
    sequence_parallel=st.booleans(),
)
WAYS = st.sampled_from(RECOMPUTE)


def total(model, request, layout, way):
    return memory.on_fullest_gpu(model, request, layout, way).total


@given(MODELS, REQUESTS, LAYOUTS, WAYS)
def test_the_parts_are_positive_and_sum_up(model, request, layout, way):
    found = memory.on_fullest_gpu(model, request, layout, way)
    parts = (found.weights, found.gradients, found.activations)
    assert all(part > 0 for part in parts)
    assert found.optimizer >= 0
    assert found.total == pytest.approx(sum(parts) + found.optimizer)


@given(MODELS, REQUESTS, LAYOUTS, WAYS)
def test_more_of_anything_that_divides_never_needs_more(model, request, layout, way):
    before = total(model, request, layout, way) * (1 + 1e-12)
    assert total(model, request, replace(layout, data=2 * layout.data), way) <= before
    assert total(model, request, replace(layout, tensor=2 * layout.tensor), way) <= before
    if layout.sharding < 3:
        assert total(model, request, replace(layout, sharding=layout.sharding + 1), way) <= before


@given(MODELS, REQUESTS, LAYOUTS, WAYS)
def test_a_larger_batch_and_longer_sequences_never_need_less(model, request, layout, way):
    before = total(model, request, layout, way)
    assert total(model, replace(request, micro_batch=request.micro_batch + 1), layout, way) >= before
    assert total(model, replace(request, sequence=request.sequence + 1), layout, way) >= before


@given(MODELS, REQUESTS, LAYOUTS)
def test_selective_recomputation_never_needs_more_than_none(model, request, layout):
    assert total(model, request, layout, SELECTIVE) <= total(model, request, layout, NONE)


@given(MODELS, REQUESTS)
def test_one_gpu_holds_what_the_formulas_say(model, request):
    found = memory.on_fullest_gpu(model, request, Layout(1), NONE)
    assert found.states == pytest.approx(model.parameters * request.bytes_per_parameter)


def test_a_pipeline_holds_no_more_micro_batches_than_a_step_has():
    model = preset("megatron-530b")
    pipeline = Layout(1, pipeline=35)
    layer, mask = memory.layer_activations(model, MIXED), 2048 * model.hidden
    two = memory.stage_activations(model, MIXED, pipeline, NONE, last=False, micro_batches=2)
    assert two == 2 * (3 * layer + mask)
    enough = memory.on_fullest_gpu(model, MIXED, pipeline, NONE, 35)
    assert enough == memory.on_fullest_gpu(model, MIXED, pipeline, NONE)
    assert memory.on_fullest_gpu(model, MIXED, pipeline, NONE, 2).total < enough.total
