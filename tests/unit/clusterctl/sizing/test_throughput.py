"""Operations and days, by the papers' own examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.sizing import throughput
from clusterctl.sizing.memory import FULL, NONE, SELECTIVE
from clusterctl.sizing.shape import preset

A100_FLOPS = 312e12


def test_chinchillas_training():
    # Hoffmann et al., section 4: 70 billion parameters and 1.4 trillion tokens; Gopher's 5.76e23.
    assert throughput.operations(70e9, 0, 0, 0) * 1.4e12 == pytest.approx(5.76e23, rel=0.03)


def test_llama_65b_took_21_days():
    # Touvron et al., section 2.4: 380 tokens a second on each of 2048 A100; 1.4 trillion in about 21 days.
    model = preset("llama-65b")
    work = throughput.executed(model, 2048, NONE)
    reached = 380 * work
    assert 0.45 < reached / A100_FLOPS < 0.55
    assert throughput.days(1.4e12, work, 2048, reached, 0) == pytest.approx(21, abs=0.5)


def test_gpt_3_took_34_days_with_full_recomputation():
    # Narayanan et al., section 5.1: 300 billion tokens on 1024 A100 that execute 140 teraFLOP/s each, in 34
    # days by 8TP/(nX), which leaves out attention: less than 3 % here.
    work = throughput.executed(preset("gpt3-175b"), 2048, FULL)
    assert throughput.days(300e9, work, 1024, 140e12, 0) == pytest.approx(34, rel=0.03)


@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-530b"])
def test_selective_recomputation_costs_little(name):
    # Korthikanti et al., section 5: 2.7 % and 1.6 % at most of the operations, where full costs a third.
    model = preset(name)
    once = throughput.executed(model, 2048, NONE)
    most = {"gpt3-175b": 1.027, "megatron-530b": 1.016}[name]
    assert 1 < throughput.executed(model, 2048, SELECTIVE) / once < most
    assert throughput.executed(model, 2048, FULL) / once == pytest.approx(4 / 3)
    again = throughput.executed(model, 2048, SELECTIVE) - once
    assert again == pytest.approx(4 * model.layers * model.hidden * 2048)  # a forward pass is a third of 12


def test_what_paddle_is_said_to_reach_with_amp_follows_from_its_source():
    # 142087 sequences/s of 128 tokens, BERT-large's 302 million parameters in layers, 256 A100.
    layers = 24 * 12 * 1024**2
    reached = 142087 / 256 * 128 * throughput.operations(layers, 24, 1024, 128)
    assert throughput.published("amp").part == pytest.approx(reached / A100_FLOPS, abs=0.005)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "amp", "tf32", "fp32"])
def test_every_assumption_has_a_source_or_says_that_it_has_none(precision):
    found = throughput.published(precision)
    assert found.part == (0.42 if precision == "amp" else 0.40)
    assert ("no published figure" in found.source) is (precision in ("tf32", "fp32"))


def test_a_pipeline_waits():
    # Narayanan et al., section 2.2.1: (p - 1)/m.
    assert throughput.waiting(4, 8) == 3 / 8
    assert throughput.waiting(1, 1) == 0


@given(st.floats(1, 1e15), st.integers(1, 10_000))
def test_twice_the_gpus_take_half_the_days(tokens, gpus):
    one, two = (throughput.days(tokens, 1e11, n, 1e14, 0.1) for n in (gpus, 2 * gpus))
    assert one == pytest.approx(2 * two)
