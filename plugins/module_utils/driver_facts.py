# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What a node is to the planner of its driver, alike for apt and dnf, read from its files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_node
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_boot import imex_nodes
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Facts, Request
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_record import read_record
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvlink_fabric import nvswitch_bridges

REQUEST = (
    "source", "flavor", "branch", "version", "scope", "fabric_manager",
    "hold", "hold_kernel", "kernel_header_packages", "load", "existing", "precompiled", "imex_nodes",
)  # fmt: skip


def request_of(params: dict[str, Any]) -> Request:
    """What the operator asked for, of the module's parameters."""
    return Request(**{name: params[name] for name in REQUEST})


def node_facts(root: Path, installed: dict[str, str], held: set[str], **offers: Any) -> Facts:
    """What the node is; `installed` and `held` come from its package manager, `offers` from its sources."""
    devices = gpu_node.pci_devices(root)
    kernels = gpu_node.kernels(root, os.uname().release, installed)
    owned = any(name.startswith(("nvidia-", "libnvidia-")) for name in installed)
    return Facts(
        os=gpu_node.os_release(root),
        kernels=kernels,
        headers={kernel: gpu_node.has_headers(root, kernel) for kernel in kernels},
        gpus=gpu_node.gpus(devices),
        nvswitches=len(gpu_node.nvswitches(devices)),
        nvswitch_bridges=len(nvswitch_bridges(root, devices)),
        imex_nodes=imex_nodes(root),
        installed=installed,
        held=held,
        record=read_record(root),
        loaded=gpu_node.loaded_driver(root),
        loaded_flavor=gpu_node.loaded_flavor(root),
        nouveau=gpu_node.module_loaded(root, "nouveau"),
        runfile=(root / "usr/bin/nvidia-uninstall").exists() and not owned,
        secure_boot=gpu_node.secure_boot(root) == "enabled",
        **offers,
    )
