"""NCCL_IB_HCA in NCCL's own syntax: which adapters and ports it selects."""

from __future__ import annotations

import pytest

from clustercheck.parse.hca_list import parse_hca_list

PORTS = [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2), ("mlx5_10", 1), ("bnxt_re0", 1)]


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("mlx5", ["mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("mlx5_1", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),  # a prefix, as NCCL's guide warns
        ("=mlx5_1", ["mlx5_1:1", "mlx5_1:2"]),
        ("=mlx5_0:1,mlx5_1:2", ["mlx5_0:1", "mlx5_1:2"]),
        ("^=mlx5_1,mlx5_0", ["mlx5_10:1", "bnxt_re0:1"]),
        ("^mlx5_1", ["mlx5_0:1", "bnxt_re0:1"]),
        ("^mlx5:1", ["mlx5_1:2", "bnxt_re0:1"]),
        ("=mlx5_0:1:0:0,mlx5_1::0:1", ["mlx5_0:1", "mlx5_1:1", "mlx5_1:2"]),  # rail and plane of NCCL 2.30
        ("=mlx5_0,,bnxt_re0,:1,", ["mlx5_0:1", "bnxt_re0:1"]),
        ("mlx5_0, bnxt_re0", ["mlx5_0:1"]),  # a blank is part of the name
        ("=mlx5_0:x,bnxt_re0", ["bnxt_re0:1"]),
        ("=mlx4_0", []),
        ("^", []),
        ("^=", []),
    ],
)
def test_it_selects_what_nccl_selects(text: str, selected: list[str]) -> None:
    found = parse_hca_list(text)
    assert found is not None
    assert [f"{name}:{port}" for name, port in PORTS if found.selects(name, port)] == selected


@pytest.mark.parametrize("text", ["", "=", ",", "=,", ":1"])
def test_without_an_entry_it_selects_nothing_in_particular(text: str) -> None:
    assert parse_hca_list(text) is None
