"""hardware_mig of hosts: checked against the model's profiles, and written as others write it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from clustercheck.expect.mig import mig_profiles
from clusterctl.cluster.mig import declared_mig
from clusterctl.cluster.mig_formats import HostLayout, config_name, host_layout, kubernetes, mig_parted, slurm
from clusterctl.errors import ClusterctlError

A100 = "NVIDIA A100-SXM4-80GB"


def layout(value: Any, model: str = A100, gpus: int = 2, host: str = "gpu01") -> HostLayout:
    return host_layout(declared_mig(host, value, model), gpus)


@pytest.mark.parametrize(
    ("model", "smallest", "count"),
    [
        ("NVIDIA A100-SXM4-40GB", "1g.5gb", 7),
        ("A100-PCIE-40GB", "1g.5gb", 7),
        ("NVIDIA A100 80GB PCIe", "1g.10gb", 7),
        ("NVIDIA A800-SXM4-80GB", "1g.10gb", 7),
        ("NVIDIA A30", "1g.6gb", 4),
        ("NVIDIA H100 80GB HBM3", "1g.10gb", 7),
        ("NVIDIA H100 PCIe", "1g.10gb", 7),
        ("NVIDIA H100 NVL", "1g.12gb", 7),
        ("NVIDIA H200", "1g.18gb", 7),
        ("NVIDIA B200", "1g.23gb", 7),
    ],
)
def test_models_are_known_by_the_names_that_drivers_print(model: str, smallest: str, count: int) -> None:
    assert next(iter(mig_profiles(model))) == smallest
    assert layout(f"all-{smallest}", model).gpus[0] == (smallest,) * count


def test_a_model_that_the_table_does_not_know_has_no_profiles() -> None:
    assert mig_profiles("NVIDIA L40S") == {}
    assert layout("2x3g.40gb", "NVIDIA B300").gpus[1] == ("3g.40gb",) * 2
    with pytest.raises(ClusterctlError) as caught:
        layout("all-1g.34gb", "NVIDIA B300")
    assert caught.value.code == "inventory.mig"
    assert "NVIDIA B300" in caught.value.what


@pytest.mark.parametrize("value", ["1g.5gb", "8x1g.10gb", {0: "disabled", 1: "4g.40gb, 4g.40gb"}, False])
def test_a_layout_that_cannot_be_is_refused_before_a_host_is_touched(value: Any) -> None:
    with pytest.raises(ClusterctlError) as caught:
        declared_mig("gpu01", value, A100)
    assert (caught.value.code, caught.value.where) == ("inventory.mig", "gpu01: hardware_mig")


def test_the_number_of_gpus_must_be_declared_where_each_is_counted() -> None:
    with pytest.raises(ClusterctlError, match="number of GPUs"):
        host_layout(declared_mig("gpu01", "disabled", A100), None)


def test_what_is_undeclared_is_a_whole_gpu() -> None:
    assert layout({1: "3g.40gb"}).gpus == {0: None, 1: ("3g.40gb",)}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("disabled", "all-disabled"),
        ("enabled", "all-enabled"),
        ("7x1g.10gb", "all-1g.10gb"),
        ("1g.10gb+me", "all-1g.10gb.me"),
        ("2x3g.40gb", "all-3g.40gb"),
        ("3g.40gb", "clusterctl-"),
        ({0: "disabled", 1: "all-1g.10gb"}, "clusterctl-"),
    ],
)
def test_configurations_have_mig_parteds_own_names_where_it_has_one(value: Any, name: str) -> None:
    found = config_name(layout(value))
    assert found == name or (name.endswith("-") and found.startswith(name))


def test_mig_parted_gets_one_configuration_for_hosts_that_are_alike() -> None:
    hosts = [layout("all-1g.10gb", host=f"gpu0{number}") for number in (1, 2)]
    mixed = layout({0: "disabled", 1: "3g.40gb, 1g.10gb"}, host="gpu03")
    found = yaml.safe_load(mig_parted([*hosts, mixed]))
    assert found["version"] == "v1"
    assert found["mig-configs"]["all-1g.10gb"] == [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}
    ]
    assert found["mig-configs"][config_name(mixed)] == [
        {"devices": [0], "mig-enabled": False},
        {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.10gb": 1, "3g.40gb": 1}},
    ]


def test_what_is_written_for_mig_parted_declares_the_same_again() -> None:
    first = layout({0: "disabled", 1: "3g.40gb, 1g.10gb"})
    assert layout(yaml.safe_load(mig_parted([first]))) == first


def test_slurm_counts_instances_by_profile_and_whole_gpus_by_model() -> None:
    text = slurm([layout({0: "disabled", 1: "all-1g.10gb"}), layout("disabled", host="gpu02")])
    assert "NodeName=gpu01 AutoDetect=nvml\n" in text
    assert "NodeName=gpu01 Gres=gpu:nvidia_a100-sxm4-80gb:1,gpu:1g.10gb:7\n" in text
    assert "NodeName=gpu02 Gres=gpu:2\n" in text


@pytest.mark.parametrize(
    ("value", "strategy"), [("disabled", "none"), ("all-1g.10gb", "single"), ("3g.40gb, 1g.10gb", "mixed"),
                            ({0: "disabled", 1: "all-1g.10gb"}, "mixed")],
)  # fmt: skip
def test_kubernetes_labels_name_the_configuration_and_the_strategy(value: Any, strategy: str) -> None:
    found = layout(value)
    assert kubernetes([found]) == (
        f"kubectl label --overwrite node gpu01 nvidia.com/mig.config={config_name(found)} "
        f"nvidia.com/mig.strategy={strategy}\n"
    )
