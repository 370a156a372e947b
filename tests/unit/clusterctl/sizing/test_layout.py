"""The layouts that are tried, from the simplest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clusterctl.sizing.layout import Layout, steps
from clusterctl.sizing.shape import preset, presets

NUMBERS = st.sampled_from([1, 2, 3, 4, 6, 8, 16, 24, 64, 512, 16384])


@given(st.sampled_from(sorted(presets())), NUMBERS, st.integers(1, 16), st.booleans())
def test_every_layout_uses_all_gpus_and_can_be_made(name, gpus, per_node, linked):
    model = preset(name)
    for layouts in steps(gpus, per_node, model, linked=linked):
        assert layouts
        for layout in layouts:
            assert layout.gpus == gpus
            assert layout.tensor <= per_node
            assert model.heads % layout.tensor == 0
            assert layout.pipeline <= model.layers
            assert not (layout.sharding and layout.data == 1)


def kinds(gpus: int, *, linked: bool) -> list[str]:
    found = [{one.kind for one in layouts} for layouts in steps(gpus, 8, preset("llama-7b"), linked=linked)]
    assert all(len(each) == 1 for each in found)
    return [kind for each in found for kind in each]


def test_the_simplest_comes_first_and_tensor_splits_need_nvlink():
    simple = ["data", "sharding 1", "sharding 2", "sharding 3"]
    assert kinds(16, linked=True) == [*simple, "tensor", "tensor and pipeline", "pipeline"]
    assert kinds(16, linked=False) == [*simple, "pipeline", "tensor", "tensor and pipeline"]
    assert kinds(1, linked=True) == ["data"]


def test_a_wider_tensor_split_comes_before_more_stages():
    *_, both, _ = steps(64, 8, preset("llama-65b"), linked=True)
    eight = [
        (one.tensor, one.pipeline) for one in both if one.tensor * one.pipeline == 8 and not one.sharding
    ]
    assert eight == [(4, 2), (2, 4)]


def test_two_copies_of_a_split_can_share_the_optimizer_s_states():
    tensor = list(steps(16, 8, preset("llama-7b"), linked=True))[4]
    assert tensor[-2:] == (Layout(2, 8), Layout(2, 8, 1, 1))


def test_heads_that_cannot_be_divided_are_left_whole():
    found = steps(8, 8, preset("gpt2-xl"), linked=True)  # 25 heads
    assert {one.tensor for layouts in found for one in layouts} == {1}


def test_names_and_the_calls_of_paddle():
    assert (Layout(1).name, Layout(8).name) == ("one GPU", "data parallel")
    assert (Layout(2).name, Layout(1, 2).name, Layout(1, 1, 2).name) == (
        "data parallel",
        "tensor 2",
        "pipeline 2",
    )
    assert Layout(1).in_paddle == "no distributed call"
    assert Layout(2).in_paddle == Layout(8).in_paddle == "paddle.DataParallel(model)"
    levels = [Layout(8, sharding=stage).in_paddle for stage in (1, 2, 3)]
    assert levels == [f'group_sharded_parallel(level="{level}")' for level in ("os", "os_g", "p_g_os")]
    both = Layout(4, 8, 2, 1)
    assert both.name == "tensor 8, pipeline 2, sharding 1"
    assert both.short_name == "tensor 8, pipe 2, shard 1"
    assert both.in_paddle == "fleet hybrid_configs: sharding_degree 4, mp_degree 8, pp_degree 2"
    assert Layout(4, 8, 2).in_paddle == "fleet hybrid_configs: dp_degree 4, mp_degree 8, pp_degree 2"
