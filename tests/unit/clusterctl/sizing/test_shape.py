"""Public models are counted as published, and sizes that are not given are estimated or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.errors import ClusterctlError
from clusterctl.sizing import shape


@pytest.mark.parametrize("name", shape.presets())
def test_a_preset_has_the_parameters_that_its_authors_publish(name):
    entry = shape.presets()[name]
    assert shape.preset(name).parameters == pytest.approx(float(entry["published"]), rel=0.02)
    assert entry["source"]


def test_llama_2_is_counted_to_the_last_but_the_final_norm():
    # The released checkpoint has 6,738,415,616 parameters, of which 4096 are the norm after the last layer.
    assert shape.preset("llama2-7b").parameters + 4096 == 6_738_415_616


def test_gpt_is_counted_by_the_formula_of_megatron():
    found = shape.preset("gpt3-175b")
    l, h, v, s = found.layers, found.hidden, found.vocabulary, found.sequence  # noqa: E741 - as the paper has it
    expected = 12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h))
    assert found.parameters == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("parameters", "layers", "hidden", "heads"),
    [(6.66e9, 32, 4096, 32), (13e9, 40, 5120, 40), (175e9, 96, 12288, 96)],
)
def test_the_estimate_meets_gpt_3(parameters, layers, hidden, heads):
    found = shape.described(parameters=round(parameters))
    assert (found.layers, found.hidden, found.heads) == (layers, hidden, heads)
    assert "estimated" in found.source


def test_layers_and_hidden_size_are_enough():
    found = shape.described(parameters=None, layers=32, hidden=4096)
    assert found.parameters == shape.preset("gpt3-6.7b").parameters
    assert found.source == "as given"


@pytest.mark.parametrize("given", [{}, {"layers": 3}, {"hidden": 128}])
def test_without_a_size_it_is_refused(given):
    with pytest.raises(ClusterctlError) as raised:
        shape.described(parameters=None, **given)
    assert raised.value.code == "size.model"


@pytest.mark.parametrize(
    "given",
    [
        {"parameters": 65_000_000_000, "layers": 32, "hidden": 4096},
        {"parameters": 46_700_000_000, "layers": 32, "hidden": 4096},  # Mixtral 8x7B, a mixture of experts
        {"parameters": 6_700_000_000, "hidden": 4096, "heads": 33},
        {"parameters": 5},
    ],
)
def test_sizes_that_contradict_each_other_are_refused(given):
    with pytest.raises(ClusterctlError) as raised:
        shape.described(**given)
    assert raised.value.code == "size.shape"
    assert raised.value.where
    assert raised.value.hint


def test_an_unknown_model_is_refused_with_the_nearest_name():
    with pytest.raises(ClusterctlError, match="llama-7") as raised:
        shape.preset("llama-7bb")
    assert raised.value.hint == "Did you mean llama-7b?"


@given(st.integers(10**7, 10**13))
def test_every_estimate_is_near_its_parameters_and_can_be_split(parameters):
    found = shape.described(parameters=parameters)
    assert found.parameters == parameters
    assert found.hidden % found.heads == 0
    whole = found.layers * found.layer_parameters + found.input_parameters
    assert whole == pytest.approx(parameters)
