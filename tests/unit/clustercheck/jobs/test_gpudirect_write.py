"""By which way an ib_write_bw can use GPU memory, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustercheck.jobs import gpudirect_write

CUDA = "      --use_cuda=<cuda device id> Use CUDA specific device for GPUDirect RDMA testing\n"
DMA_BUF = f"{CUDA}      --use_cuda_dmabuf Use CUDA DMA-BUF for GPUDirect RDMA testing\n"


@pytest.mark.parametrize(
    ("helped", "loaded", "ways"),
    [
        (CUDA, True, [[]]),
        (DMA_BUF, True, [[], ["--use_cuda_dmabuf"]]),
        (DMA_BUF, False, [["--use_cuda_dmabuf"]]),
    ],
)
def test_peermem_comes_first_where_it_is_loaded(
    tmp_path: Path, helped: str, loaded: bool, ways: list[list[str]]
) -> None:
    peermem = tmp_path if loaded else tmp_path / "none"
    assert gpudirect_write.find_ways(helped, [peermem]) == (ways, "")


@pytest.mark.parametrize(
    ("helped", "because"),
    [
        ("", "built without CUDA"),
        ("  -a, --all", "built without CUDA"),
        (CUDA, "nvidia_peermem is not loaded"),
    ],
)
def test_why_gpu_memory_cannot_be_used_is_said(tmp_path: Path, helped: str, because: str) -> None:
    ways, why = gpudirect_write.find_ways(helped, [tmp_path / "none"])
    assert ways == [] and because in why
