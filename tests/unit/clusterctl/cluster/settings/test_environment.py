"""validation_environment and hardware_rails in files: each wrong line with its sentence and hint."""
# ruff: noqa: E501 - tables of cases are read a case a line

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster_directories import cluster, found, only

RIGHT = """\
validation_environment:
  NCCL_IB_HCA: "=mlx5_0,mlx5_1"
  NCCL_IB_TC: 106
  UCX_TLS: "{{ site_tls }}"
validation_environment_suites:
  full: {NCCL_ALGO: RING}
  quick: "{{ site_quick }}"
site_tls: rc
site_quick: {}
hardware_rails: [mlx5_0, "mlx5_1:1", "{{ site_tls }}"]
"""


def test_what_is_right_is_not_complained_of(tmp_path: Path) -> None:
    assert found(cluster(tmp_path, group_vars__all=RIGHT, group_vars__gpu_nodes=RIGHT)) == []


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("validation_environment:\n  NCCL_IB_HAC: mlx5\n", 2, "NCCL knows no NCCL_IB_HAC | Did you mean NCCL_IB_HCA?"),
        ("validation_environment: {LD_PRELOAD: /x.so}\n", 1, "LD_PRELOAD is set by clusterctl"),
        ("validation_environment:\n  NCCL_ALGO: a\n  UCX_SECRET: b\n", 3, "looks like a secret"),
        ('validation_environment:\n  NCCL_ALGO: "a\\nb"\n', 2, "the value of NCCL_ALGO has a control character"),
        ("validation_environment:\n  NCCL_ALGO: true\n", 2, "put it in quotes"),
        ("validation_environment:\n  NCCL_IB_TC: 0x6a\n", 2, "put it in quotes"),
        ("validation_environment:\n  NCCL_IB_TC: 1.5\n", 2, "put it in quotes"),
        ("validation_environment:\n  NCCL_IB_TC:\n", 2, "has no value"),
        ("validation_environment:\n  NCCL_IB_TC: [1]\n", 2, "must be text, not a list"),
        (
            "validation_environment:\n  NCCL_IB_TC: !vault |\n    $ANSIBLE_VAULT;1.1;AES256\n    3132\n",
            2,
            "the value of NCCL_IB_TC is encrypted | What ranks are given stands in the report",
        ),
        ("validation_environment: [NCCL_IB_TC]\n", 1, "must be a mapping"),
        (
            "validation_environment:\n" + "".join(f"  UCX_O{n}: 1\n" for n in range(65)),
            2,
            "has 65 variables | At most 64",
        ),
        ("validation_environment_suites: {ful: {NCCL_ALGO: RING}}\n", 1, "unknown suite 'ful' | Did you mean full?"),
        ("validation_environment_suites:\n  full: {NCCL_ALG: RING}\n", 2, "Did you mean NCCL_ALGO?"),
        ("validation_environment_suites:\n  full: RING\n", 2, "must be a mapping of variables"),
        ("hardware_rails: [mlx5_0, '^mlx5_1']\n", 1, "'^mlx5_1' is not the name of an adapter"),
        ("hardware_rails: mlx5_0\n", 1, "must be a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    file, where, said = only(cluster(tmp_path, group_vars__gpu_nodes=text))
    assert (file, where) == ("group_vars/gpu_nodes.yml", line) and says in said


def test_variables_of_a_host_in_hosts_yml_are_checked_too(tmp_path: Path) -> None:
    hosts = """\
all:
  children:
    gpu_nodes:
      hosts:
        gpu01:
          ansible_host: 10.0.0.1
          validation_environment: {NCCL_IB_HAC: mlx5}
"""
    assert only(cluster(tmp_path, hosts=hosts))[:2] == ("hosts.yml", 7)
