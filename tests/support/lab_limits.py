"""The checks of suite `quick` that do not apply to a lab's nodes."""

from __future__ import annotations

# Those that ask `virtual`: a container has neither firmware nor a kernel of its own.
NOT_IN_CONTAINERS = {"cpu-governor", "firmware-alike", "iommu", "memory-errors", "nvme", "pcie-acs"}
# The lab simulates no RDMA adapters and no DCGM, its A100 report no fabric, and its ranks meet over gloo.
NOT_SIMULATED = {
    "dcgm-diag", "gpu-fabric", "infiniband-errors", "infiniband-firmware", "infiniband-port", "rails-alike",
    "roce", "roce-flow-control", "nccl-transport", "reduce-scatter", "all-to-all",
}  # fmt: skip
NOT_IN_A_LAB = NOT_IN_CONTAINERS | NOT_SIMULATED
