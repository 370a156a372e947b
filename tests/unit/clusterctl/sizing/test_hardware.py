"""Which GPUs: by the name of a profile, or as the cluster's settings declare."""

from __future__ import annotations

import pytest

from clusterctl.cluster import inventory
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.errors import ClusterctlError
from clusterctl.sizing import hardware

A100 = {"hardware_profile": "hgx-a100-80gb", "hardware_gpu_count": 8}
L40S = {"hardware_profile": "l40s-48gb", "hardware_gpu_count": 4}


def declared(tmp_path, **hosts):
    listing = {
        "_meta": {"hostvars": hosts},
        "all": {"children": ["gpu_nodes"]},
        "gpu_nodes": {"hosts": list(hosts)},
    }
    return inventory.from_listing(ClusterDirectory(tmp_path), listing)


def refused(call, *arguments):
    with pytest.raises(ClusterctlError) as raised:
        call(*arguments)
    assert raised.value.where
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hgx-a100-80gb", "hgx-a100-80gb"),
        ("L40S", "l40s-48gb"),
        ("h100-nvl", "h100-nvl-94gb"),
        ("H100-SXM", "h100-sxm5-80gb"),
        ("H20 sxm", "h20-sxm5-96gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA A100-SXM4-80GB", "hgx-a100-80gb"),
        ("A100-PCIE-40GB", "a100-pcie-40gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090-24gb"),
    ],
)
def test_a_profile_or_the_only_one_with_these_words(name, expected):
    assert hardware.profile_named(name).name == expected


def test_a_name_of_several_or_of_none_is_refused():
    several = refused(hardware.profile_named, "a100-80gb")
    assert several.hint == "One of: a100-pcie-80gb, hgx-a100-80gb."
    assert refused(hardware.profile_named, "hgx-a100-80").hint == "Did you mean hgx-a100-80gb?"
    for nothing in ("", "nvidia", " - "):
        refused(hardware.profile_named, nothing)
    none = refused(hardware.profile_named, "tpu")
    assert "l40s-48gb" in none.hint
    assert none.what == "there is no kind of GPU 'tpu'"
    assert several.what == "'a100-80gb' is more than one kind of GPU server"
    assert (several.code, none.code) == ("size.gpu", "size.gpu")


def test_more_than_a_node_is_whole_nodes():
    assert hardware.of_kind("l40s", 4, None).per_node == 8
    assert hardware.of_kind("l40s", 12, 4).gpus == 12
    error = refused(hardware.of_kind, "hgx-a100-80gb", 12, None)
    assert error.code == "size.gpus"
    assert error.hint == "Give 8 or 16, or another --per-node."


def test_the_cluster_s_gpus_are_those_that_are_declared(tmp_path):
    cluster = declared(tmp_path, gpu01=A100, gpu02=A100, gpu03=A100)
    found = hardware.of_cluster(cluster, None)
    assert (found.profile.name, found.gpus, found.per_node) == ("hgx-a100-80gb", 24, 8)
    assert hardware.of_cluster(cluster, "gpu01,gpu02").gpus == 16
    assert hardware.of_cluster(cluster, None, 4).gpus == 4


def test_unequal_nodes_are_refused_and_can_be_selected(tmp_path):
    cluster = declared(tmp_path, gpu01=A100, gpu02=L40S)
    error = refused(hardware.of_cluster, cluster, None)
    assert error.code == "size.cluster"
    assert "1 x 8 hgx-a100-80gb, 1 x 4 l40s-48gb" in error.what
    assert hardware.of_cluster(cluster, "gpu02").gpus == 4


def test_a_node_that_declares_nothing_is_named(tmp_path):
    error = refused(
        hardware.of_cluster, declared(tmp_path, gpu01=A100, gpu02={"hardware_gpu_count": 8}), None
    )
    assert (error.code, error.what) == ("size.cluster", "the settings of gpu02 declare no GPUs")


def test_a_precision_that_the_gpu_lacks_is_refused_with_those_it_has():
    old = hardware.of_kind("v100-pcie-16gb", 1, None)
    error = refused(old.peak_flops, "bf16")
    assert (error.code, error.hint) == ("size.precision", "Choose one of: fp32, amp, fp16.")
    assert old.default_precision == "fp16"
    assert hardware.of_kind("a10", 1, None).default_precision == "bf16"


def test_numbers_to_try_grow_from_one_to_the_most():
    assert list(hardware.numbers(8, 40)) == [1, 2, 4, 8, 16, 32]
    assert list(hardware.numbers(6, 12)) == [1, 2, 3, 6, 12]


def test_a_host_without_gpus_is_no_cluster_to_size_for(tmp_path):
    listing = {
        "_meta": {"hostvars": {"gpu01": A100, "registry01": {}}},
        "all": {"children": ["gpu_nodes", "registry"]},
        "gpu_nodes": {"hosts": ["gpu01"]},
        "registry": {"hosts": ["registry01"]},
    }
    cluster = inventory.from_listing(ClusterDirectory(tmp_path), listing)
    error = refused(hardware.of_cluster, cluster, "registry01")
    assert (error.code, error.what) == ("size.cluster", "no GPU node is selected")
