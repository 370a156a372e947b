"""Every check there is, in the order of the report."""

from __future__ import annotations

from clustercheck.checks import (
    all_reduce,
    bandwidth,
    clock,
    container_gpus,
    data_parallel,
    disk_space,
    driver_version,
    fabric_manager,
    gpu_driver,
    gpu_ecc,
    gpu_model,
    gpu_present,
    gpu_recovery,
    gpu_row_remap,
    gpu_throttle,
    kernel_log,
    name_service,
    node_reachable,
    nvlink,
    pairs,
    registry_reachable,
    shared_memory,
    topology,
    xid,
)
from clustercheck.checks.base import Check

CHECKS: tuple[Check, ...] = (
    node_reachable.CHECK,
    clock.CHECK,
    name_service.CHECK,
    disk_space.CHECK,
    shared_memory.CHECK,
    registry_reachable.CHECK,
    gpu_driver.CHECK,
    gpu_present.CHECK,
    gpu_model.CHECK,
    driver_version.CHECK,
    fabric_manager.CHECK,
    container_gpus.CHECK,
    gpu_ecc.CHECK,
    gpu_row_remap.CHECK,
    nvlink.CHECK,
    topology.CHECK,
    gpu_throttle.CHECK,
    gpu_recovery.CHECK,
    xid.CHECK,
    kernel_log.CHECK,
    all_reduce.CHECK,
    bandwidth.CHECK,
    pairs.CHECK,
    data_parallel.CHECK,
)
BY_ID = {check.id: check for check in CHECKS}
