"""Ceilings from physics: what detected hardware can carry at most. GB/s are 1e9 bytes a second, one way."""

from __future__ import annotations

# Raw rate of one lane after line coding, GB/s: 2.5 and 5 GT/s carry 8b/10b, later ones 128b/130b, 6.0 FLITs.
PCIE_LANE_GBPS = {
    1: 0.25,
    2: 0.5,
    3: 8 * 128 / 130 / 8,
    4: 16 * 128 / 130 / 8,
    5: 32 * 128 / 130 / 8,
    6: 7.56,
}

# Floating-point operations of one multiprocessor in a clock, dense, by compute capability (80 is 8.0). FP32
# and FP64 of CUDA cores: CUDA C++ Programming Guide, throughput of arithmetic instructions, two for a fused
# multiply-add. Tensor cores (FP64 too, on 8.0 and 9.0): NVIDIA's white papers on V100, A100, GA102, AD102 and
# H100 (10.0: data sheet of HGX B200, 148 of them), with FP16 sums where these are faster: this is a ceiling.
_OPERATIONS = {
    70: {"fp64": 64, "fp32": 128, "fp16": 1024},
    80: {"fp64": 128, "fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048},
    86: {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024},
    89: {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024},
    90: {"fp64": 256, "fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096},
    100: {"fp64": 128, "fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192},
}


def gemm_tflops(
    precision: str, compute_capability: int, multiprocessors: int, clock_khz: int
) -> float | None:
    """What a GPU's arithmetic units do at most at this clock; None for an architecture not known here."""
    operations = _OPERATIONS.get(compute_capability, {}).get(precision)
    return operations * multiprocessors * clock_khz * 1e3 / 1e12 if operations else None


def memory_gbps(clock_khz: int, bus_bits: int) -> float:
    """What a GPU's memory carries, reads and writes together.

    Two transfers a clock (CUDA C++ Best Practices Guide, theoretical bandwidth calculation).
    """
    return 2 * clock_khz * 1e3 * bus_bits / 8 / 1e9


def pcie_gbps(generation: int, width: int) -> float:
    """What a PCIe link carries one way. Raises ValueError for an unknown generation."""
    if generation not in PCIE_LANE_GBPS or width not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"there is no PCIe {generation} x{width}")
    return PCIE_LANE_GBPS[generation] * width


def nvlink_gbps(links: int, link_gbps: float) -> float:
    """What all NVLinks of one GPU carry one way."""
    return links * link_gbps


def network_gbps(megabits_per_second: float) -> float:
    """What a network adapter of this rate carries one way."""
    return megabits_per_second / 8000


def all_reduce_ceiling_gbps(wire_gbps: float, ranks: int, *, reduced_in_switch: bool = False) -> float:
    """The bus bandwidth that an all-reduce can show at most over links of ``wire_gbps`` a rank.

    From rank to rank at least 2(n-1)/n of the data cross each rank's link, which is how bus bandwidth is
    defined [nccl-tests, PERFORMANCE.md]. Where the switch itself reduces (NVLink SHARP: NCCL's NVLS, from
    Hopper and NVSwitch 3 on) a rank still sends its data once and receives the sum once, so that the
    algorithm's bandwidth is bounded by the link and the bus bandwidth is not: 8 H100 of 450 GB/s a way show
    480, which NCCL's authors call right [NVIDIA/nccl-tests issues 212, 272]. The other collectives have no
    such gain: some rank sends or receives (n-1)/n of the data in any case.
    """
    if ranks < 2:
        return 0.0
    return wire_gbps * 2 * (ranks - 1) / ranks if reduced_in_switch else wire_gbps
