"""The checks that no lab fault is for, each with the reason: docs/reliability.md has the same list."""

from __future__ import annotations

# --- Those of suite `quick` that do not apply to a lab's nodes.
# They ask `virtual`: a container has neither firmware nor a kernel of its own.
NOT_IN_CONTAINERS = {"cpu-governor", "firmware-alike", "iommu", "memory-errors", "nvme", "pcie-acs"}
# The lab simulates no RDMA adapters and no DCGM, and its ranks meet over gloo.
NOT_SIMULATED = {
    "dcgm-diag", "infiniband-errors", "infiniband-firmware", "infiniband-port", "rails-alike",
    "roce", "roce-flow-control", "nccl-transport", "reduce-scatter", "all-to-all",
}  # fmt: skip
# A100 report no fabric; the lab's H100 do, and a lab fault is for them.
NOT_OF_A100 = {"gpu-fabric"}
NOT_IN_A_LAB = NOT_IN_CONTAINERS | NOT_SIMULATED | NOT_OF_A100

# --- Those without a fault of the lab's for another reason.
NO_RDMA = {"rdma-loopback", "rdma-write", "gpudirect-write", "nccl-loopback"}
NO_NCCL = {
    "nccl-tests-all-reduce", "nccl-tests-all-gather", "nccl-tests-reduce-scatter", "nccl-tests-all-to-all",
    "nccl-tests-broadcast", "reduce-scatter-bandwidth", "all-to-all-bandwidth",
}  # fmt: skip
NOT_IN_THE_IMAGE = {"storage-io", "training-numerics-pytorch", "training-throughput-pytorch"}
NO_BURN = {"gpu-burn"}
NO_EQUALS = {"cpu-stream", "inference-latency", "training-step", "training-throughput"}
# A rank that fails there fails in all-reduce before, and its node takes part in no later job.
AFTER_ALL_REDUCE = {"all-gather", "all-gather-bandwidth", "broadcast", "broadcast-bandwidth"}
PADDLE_ITSELF = {
    "paddle-run-check", "paddle-inference", "training-numerics", "training-accumulation", "training-amp",
    "training-recomputation", "training-tf32",
}  # fmt: skip
WITHOUT_LAB_FAULT = (
    NOT_IN_CONTAINERS | NOT_SIMULATED | NO_RDMA | NO_NCCL | NOT_IN_THE_IMAGE | NO_BURN | NO_EQUALS
    | AFTER_ALL_REDUCE | PADDLE_ITSELF
)  # fmt: skip
