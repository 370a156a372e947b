"""What jobs reach on the systems of day_one.py, by public measurements; bus bandwidths as of nccl-tests.

Sources, by system:

- HGX A100, virtual machine: microsoft/superbench-results v0.4.0 (ND96asr_v4: GEMM, copies, launches, the
  all-reduce within a node, ResNet-50 and BERT-base of PyTorch), NVIDIA/nccl-tests issue 100 (between two
  GPUs); across nodes four HDR adapters 86 to 91 GB/s (stas00/ml-engineering) and eight 183 at 1 GiB
  (facebookresearch/gcm), 191 at 4 GiB (NVIDIA/deepops).
- DGX H100: docs/measurements.md (one H100 and one H200 by our own programs), Azure/AI-benchmarking-guide,
  ND_H100_v5 (all-reduce by NVLS), NVIDIA/nccl issue 1264 (between two GPUs), NVIDIA/nccl-tests issue 309 (two
  nodes with eight NDR adapters: 470 GB/s).
- HGX B200: stas00/ml-engineering (BF16), Azure/AI-benchmarking-guide issue 7 (between two GPUs: 770 GB/s),
  coreweave/nccl-tests pull request 43 (all-reduce of GB200 NVL72: the same NVLinks).
- L40S server: NVIDIA/nvbandwidth issue 15 (eight RTX 4090 on PCIe 4.0 x16: copies with the host), and
  NVIDIA/nccl issue 814 (RTX 4090 without NVLink: between two GPUs).
- Single-GPU workstation: mli/transformers-benchmarks issue 4 (FP16), krrishnarraj/clpeak issue 106 (FP32,
  FP64), NVIDIA/nccl issue 814 (copies in memory), NVIDIA/nvbandwidth issue 15.
- GB200 tray: Azure/AI-benchmarking-guide, ND_GB200_v6 (copies with the host over NVLink-C2C, STREAM,
  all-reduce of four GPUs), coreweave/nccl-tests pull request 43 (across trays of one NVLink domain).
- GPU in a guest: docs/measurements.md.

No public figure was found of the L40S' GEMM, collectives and training, of other precisions of B200, of
GB200's arithmetic, and of latencies and scaling of what is not A100. These are made up, within physics: no
floor may bind them, and a check that alarms by one has a floor without a source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clustercheck.samples.nccl import HEADS, NcclPaths

MIB, GIB = 1 << 20, 1 << 30
Curve = Mapping[int, float]
Rates = Mapping[str, Mapping[str, float]]

# All-gather, reduce-scatter, all-to-all and broadcast, as parts of the all-reduce: as in logs of 8 x A100
# (microsoft/superbenchmark), and less where NVLS makes the all-reduce faster than a ring.
BY_RING = {"all_gather": 0.95, "reduce_scatter": 0.95, "all_to_all": 0.9, "broadcast": 0.95}
BY_NVLS = {"all_gather": 0.77, "reduce_scatter": 0.78, "all_to_all": 0.7, "broadcast": 0.78}
BERT_TRICKS = {"accumulation": (0.97, 0.47), "recomputation": (0.75, 0.4)}


def at(curve: Curve, size: int) -> float:
    """GB/s of a size: of the largest that is named up to it, or in proportion below all of them."""
    named = [one for one in curve if one <= size]
    return curve[max(named)] if named else curve[min(curve)] * size / min(curve)


@dataclass(frozen=True)
class GpuFigures:
    """One kind of GPU: units and clocks as the driver's attributes, TFLOPS, GB/s, microseconds.

    ``memory`` is its size in GiB, ``host`` copies from and to the host, ``peer`` copies between two GPUs one
    way, both ways and while all copy.
    """

    units: int
    capability: int
    clock_mhz: int
    memory_mhz: int
    bus_bits: int
    memory: int
    gemm: Mapping[str, float]
    copy_triad: tuple[float, float]
    host: tuple[float, float]
    peer: tuple[float, float, float]
    burn: float
    launch: tuple[float, float, float] = (3.4, 9.5, 3.0)
    pcie: int = 4


@dataclass(frozen=True)
class Figures:
    """A system: its GPU, all-reduce within a node and across, samples a second of one GPU, and the rest.

    ``scaling`` are parts of linear by model: a node against a GPU, the cluster against a node.
    """

    gpu: GpuFigures
    within: Curve
    across: Curve
    training: Rates
    others: Mapping[str, float] = field(default_factory=lambda: BY_RING)
    scaling: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {"resnet50": (0.93, 0.95), "bert_base": (0.95, 0.94)}
    )
    recipes: Mapping[str, Mapping[str, tuple[float, float]]] = field(
        default_factory=lambda: {
            "resnet50": {"tf32": (1.7, 1.0), "amp": (2.6, 0.55)},
            "bert_base": {"tf32": (3.1, 1.0), "amp": (4.4, 0.78), **BERT_TRICKS},
        }
    )
    paths: NcclPaths = field(default_factory=NcclPaths)
    stream_gbps: float = 118.0
    loopback_gbps: float = 5.2


A100 = GpuFigures(
    units=108,
    capability=80,
    clock_mhz=1410,
    memory_mhz=1215,
    bus_bits=5120,
    memory=40,
    gemm={"fp64": 18.95, "fp32": 18.35, "tf32": 128.2, "fp16": 257.0, "bf16": 250.0},
    copy_triad=(1155.6, 1390.0),
    host=(25.92, 26.03),
    peer=(268.0, 505.0, 255.0),
    burn=245.0,
    launch=(5.7, 9.6, 4.8),
)
H100 = GpuFigures(
    units=132,
    capability=90,
    clock_mhz=1980,
    memory_mhz=2619,
    bus_bits=5120,
    memory=80,
    gemm={"fp64": 56.1, "fp32": 51.5, "tf32": 371.0, "fp16": 685.0, "bf16": 722.0},
    copy_triad=(3005.0, 3041.0),
    host=(55.3, 55.1),
    peer=(371.0, 740.0, 365.0),
    burn=674.0,
    pcie=5,
)
H200 = GpuFigures(
    units=132,
    capability=90,
    clock_mhz=1980,
    memory_mhz=3201,
    bus_bits=6016,
    memory=141,
    gemm={"fp64": 57.0, "fp32": 50.9, "tf32": 372.0, "fp16": 674.0, "bf16": 703.0},
    copy_triad=(4229.0, 4384.0),
    host=(55.4, 55.3),
    peer=(0.0, 0.0, 0.0),
    burn=678.0,
    pcie=5,
)
B200 = GpuFigures(
    units=148,
    capability=100,
    clock_mhz=1965,
    memory_mhz=3996,
    bus_bits=8192,
    memory=180,
    gemm={"fp64": 34.0, "fp32": 61.0, "tf32": 810.0, "fp16": 1640.0, "bf16": 1745.0},
    copy_triad=(6900.0, 7100.0),
    host=(55.4, 55.0),
    peer=(770.0, 1480.0, 740.0),
    burn=1500.0,
    pcie=5,
)
GB200 = GpuFigures(
    units=152,
    capability=100,
    clock_mhz=2062,
    memory_mhz=3996,
    bus_bits=8192,
    memory=185,
    gemm={"fp64": 37.0, "fp32": 66.0, "tf32": 860.0, "fp16": 1760.0, "bf16": 1790.0},
    copy_triad=(7000.0, 7200.0),
    host=(201.0, 193.0),
    peer=(770.0, 1480.0, 740.0),
    burn=1600.0,
    pcie=5,
)
L40S = GpuFigures(
    units=142,
    capability=89,
    clock_mhz=2520,
    memory_mhz=9001,
    bus_bits=384,
    memory=45,
    gemm={"fp64": 1.3, "fp32": 58.0, "tf32": 96.0, "fp16": 215.0, "bf16": 212.0},
    copy_triad=(735.0, 748.0),
    host=(26.3, 26.8),
    peer=(22.2, 30.0, 9.8),
    burn=190.0,
)
RTX_4090 = GpuFigures(
    units=128,
    capability=89,
    clock_mhz=2520,
    memory_mhz=10501,
    bus_bits=384,
    memory=24,
    gemm={"fp64": 1.31, "fp32": 76.9, "tf32": 86.7, "fp16": 158.6, "bf16": 158.0},
    copy_triad=(918.3, 921.3),
    host=(25.5, 26.8),
    peer=(0.0, 0.0, 0.0),
    burn=155.0,
)

A100_WITHIN = {
    MIB: 23.7, 8 * MIB: 91.1, 16 * MIB: 111.8, 64 * MIB: 200.6, 128 * MIB: 202.0, 256 * MIB: 221.9,
    GIB: 229.9, 2 * GIB: 231.5, 4 * GIB: 234.4, 8 * GIB: 235.05,
}  # fmt: skip
H100_WITHIN = {
    MIB: 43.7, 8 * MIB: 172.13, 16 * MIB: 234.45, 64 * MIB: 361.78, 128 * MIB: 400.61, 256 * MIB: 423.38,
    512 * MIB: 438.46, GIB: 466.35, 2 * GIB: 472.36, 4 * GIB: 475.54, 8 * GIB: 478.87,
}  # fmt: skip
GB200_WITHIN = {
    MIB: 80.48, 8 * MIB: 253.46, 16 * MIB: 331.09, 64 * MIB: 550.73, 256 * MIB: 593.53, 512 * MIB: 618.74,
    GIB: 646.87, 2 * GIB: 666.63, 4 * GIB: 673.06, 8 * GIB: 679.61,
}  # fmt: skip
NVL72 = {MIB: 60.0, 64 * MIB: 420.0, 512 * MIB: 586.06, GIB: 681.17, 2 * GIB: 757.78, 4 * GIB: 835.32}
A100_TRAINING = {
    "resnet50": {"tf32": 856.9, "amp_fp16": 1031.3, "bf16": 1010.0},
    "bert_base": {"tf32": 296.6, "amp_fp16": 388.9, "bf16": 380.0},
}
H100_TRAINING = {
    "resnet50": {"tf32": 2123.0, "amp_fp16": 2933.0, "bf16": 2293.0},
    "bert_base": {"tf32": 1187.0, "amp_fp16": 1252.0, "bf16": 1034.0},
}
ADA_TRAINING = {
    "resnet50": {"tf32": 690.0, "amp_fp16": 1260.0, "bf16": 1180.0},
    "bert_base": {"tf32": 340.0, "amp_fp16": 620.0, "bf16": 590.0},
}
# What tensor cores gain over FP32 where these are two to four times as fast, no more.
ADA_RECIPES = {
    "resnet50": {"tf32": (1.15, 1.0), "amp": (1.4, 0.57)},
    "bert_base": {"tf32": (1.5, 1.0), "amp": (2.2, 0.8), **BERT_TRICKS},
}


def _of_rails(adapters: str, *, gpudirect: bool = True, gpus: int = 8) -> NcclPaths:
    """A channel for each GPU and its rail."""
    names = adapters.split()
    listed = " ".join(f"[{number}]{name}:1/IB" for number, name in enumerate(names))
    gdr = "/GDRDMA" if gpudirect else ""
    return NcclPaths(
        gpus=gpus,
        heads=tuple(range(gpus)),
        across=f"NET/IB/{{}}{gdr}",
        found=(
            f"NET/IB : Using {listed} [RO]; OOB eth0:192.0.2.1<0>",
            "Using network IB",
            *(f"NET/IB : GPU Direct RDMA Enabled for HCA 0 '{name}'" for name in names[:1] if gpudirect),
        ),
    )


OVER_SOCKETS = (
    "NET/IB : No device found.",
    "NET/Socket : Using [0]eth0:192.0.2.1<0>",
    "Using network Socket",
)
OF_EIGHT = "mlx5_0 mlx5_1 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7 mlx5_8"

FIGURES: dict[str, Figures] = {
    "HGX A100": Figures(
        A100, A100_WITHIN, {MIB: 6.0, 64 * MIB: 33.0, GIB: 43.0, 4 * GIB: 44.5}, A100_TRAINING
    ),
    "DGX H100": Figures(
        H100,
        H100_WITHIN,
        {MIB: 20.0, 64 * MIB: 230.0, 256 * MIB: 350.0, GIB: 430.0, 4 * GIB: 470.0},
        H100_TRAINING,
        others=BY_NVLS,
        paths=_of_rails(OF_EIGHT),
        loopback_gbps=41.0,
    ),
    "HGX B200": Figures(
        B200,
        {**NVL72, 8 * GIB: 839.0},
        {MIB: 20.0, 64 * MIB: 230.0, GIB: 430.0, 4 * GIB: 470.0},
        H100_TRAINING,
        others=BY_NVLS,
        paths=_of_rails(OF_EIGHT),
        loopback_gbps=41.0,
    ),
    "L40S server": Figures(
        L40S,
        {MIB: 4.0, 8 * MIB: 11.0, 64 * MIB: 14.2, GIB: 14.9},
        {MIB: 1.1, 16 * MIB: 2.4, GIB: 2.7},
        ADA_TRAINING,
        # 0.44 GB of gradients over PCIe and TCP, of which the backward pass hides a part.
        scaling={"resnet50": (0.94, 0.7), "bert_base": (0.71, 0.15)},
        recipes=ADA_RECIPES,
        paths=NcclPaths(
            heads=HEADS[:1],
            within="SHM/direct/direct",
            across="NET/Socket/0",
            found=OVER_SOCKETS,
            path_types="SYS/SYS",
        ),
    ),
    "single-GPU workstation": Figures(
        RTX_4090,
        {MIB: 100.0},
        {MIB: 100.0},
        ADA_TRAINING,
        recipes=ADA_RECIPES,
        paths=NcclPaths(gpus=1, heads=(0,), found=OVER_SOCKETS, path_types="LOC/LOC"),
        stream_gbps=52.0,
    ),
    "GB200 tray": Figures(
        GB200,
        GB200_WITHIN,
        NVL72,
        H100_TRAINING,
        others=BY_NVLS,
        paths=NcclPaths(
            gpus=4,
            heads=(0, 2),
            within="P2P/MNNVL",
            across="P2P/MNNVL",
            found=_of_rails("mlx5_0 mlx5_1 mlx5_3 mlx5_4").found,
            path_types="NVL/NVL",
        ),
        stream_gbps=381.0,
        loopback_gbps=40.0,
    ),
    "virtual machine": Figures(
        A100,
        A100_WITHIN,
        {MIB: 12.0, 32 * MIB: 97.0, 64 * MIB: 131.0, GIB: 183.0, 4 * GIB: 191.0},
        A100_TRAINING,
        paths=_of_rails(OF_EIGHT, gpudirect=False),
        loopback_gbps=20.0,
    ),
    "GPU in a guest": Figures(
        H200,
        {MIB: 200.0},
        {MIB: 200.0},
        H100_TRAINING,
        paths=NcclPaths(gpus=1, heads=(0,), found=OVER_SOCKETS, path_types="LOC/LOC"),
    ),
}
