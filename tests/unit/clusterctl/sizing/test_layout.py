"""The layouts that are tried, from the simplest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clusterctl.sizing.layout import Layout, steps
from clusterctl.sizing.shape import preset, presets

NUMBERS = st.sampled_from([1, 2, 3, 4, 6, 8, 16, 24, 64, 512, 16384])


@given(st.sampled_from(sorted(presets())), NUMBERS, st.integers(1, 16))
def test_every_layout_uses_all_gpus_and_can_be_made(name, gpus, per_node):
    model = preset(name)
    for layouts in steps(gpus, per_node, model):
        assert layouts
        for layout in layouts:
            assert layout.gpus == gpus
            assert layout.tensor <= per_node
            assert model.heads % layout.tensor == 0
            assert layout.pipeline <= model.layers
            assert not (layout.sharding and layout.data == 1)


def test_the_simplest_comes_first():
    kinds = [{layout.kind for layout in layouts} for layouts in steps(16, 8, preset("llama-7b"))]
    assert kinds == [{"data"}, {"sharding 1"}, {"sharding 2"}, {"sharding 3"}, {"tensor"}, {"pipeline"}]
    assert [layouts[0].kind for layouts in steps(1, 8, preset("llama-7b"))] == ["data"]


def test_a_wider_tensor_split_comes_before_more_stages():
    *_, pipelines = steps(64, 8, preset("llama-65b"))
    eight = [
        (one.tensor, one.pipeline) for one in pipelines if one.tensor * one.pipeline == 8 and not one.sharding
    ]
    assert eight == [(4, 2), (2, 4), (1, 8)]


def test_heads_that_cannot_be_divided_are_left_whole():
    assert {one.tensor for each in steps(8, 8, preset("gpt2-xl")) for one in each} == {1}  # 25 heads


def test_names_and_the_calls_of_paddle():
    assert (Layout(1).name, Layout(8).name) == ("one GPU", "data parallel")
    assert Layout(8).in_paddle == "paddle.DataParallel(model)"
    levels = [Layout(8, sharding=stage).in_paddle for stage in (1, 2, 3)]
    assert levels == [f'group_sharded_parallel(level="{level}")' for level in ("os", "os_g", "p_g_os")]
    both = Layout(4, 8, 2, 1)
    assert both.name == "tensor 8, pipeline 2, sharding 1"
    assert both.short_name == "tensor 8, pipe 2, shard 1"
    assert both.in_paddle == "fleet hybrid_configs: sharding_degree 4, mp_degree 8, pp_degree 2"
    assert Layout(4, 8, 2).in_paddle == "fleet hybrid_configs: dp_degree 4, mp_degree 8, pp_degree 2"
