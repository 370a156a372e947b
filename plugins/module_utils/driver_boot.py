# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What must stand after a boot as well: persistence mode, modules, IMEX's nodes. Facts in, files out."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_node
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text, version_key

HEAD = "# Managed by clusterctl (role nvidia_driver).\n"
PERSISTENCE = "nvidia-persistenced"
DROP_IN = f"etc/systemd/system/{PERSISTENCE}.service.d/clusterctl.conf"
# A unit that cannot be enabled is started at boot by a link.
WANTED_AT_BOOT = f"etc/systemd/system/multi-user.target.wants/{PERSISTENCE}.service"
PACKAGED_UNITS = ("usr/lib/systemd/system", "lib/systemd/system")
NO_PERSISTENCE = "--no-persistence-mode"

PEERMEM = "nvidia_peermem"
PEERMEM_AT_BOOT = "etc/modules-load.d/clusterctl-nvidia-peermem.conf"
# The open modules serve GPUDirect RDMA by DMA-BUF since this kernel.
DMA_BUF_KERNEL = "5.12"
# Only the RDMA stack of MLNX_OFED and DOCA has it: nvidia_peermem does not load without.
PEER_MEMORY = "ib_register_peer_memory_client"

# How NVLSM reaches the NVSwitches.
UMAD = "ib_umad"
UMAD_AT_BOOT = "etc/modules-load.d/clusterctl-ib-umad.conf"
# One address a line, and no comments.
IMEX_NODES = "etc/nvidia-imex/nodes_config.cfg"


def imex_nodes(root: Path) -> list[str]:
    """The nodes that IMEX is configured for, in the order of the file."""
    return read_text(root / IMEX_NODES).split()


def packaged_unit(root: Path, unit: str) -> str:
    """The unit as its package has it; empty where there is none, or where the operator has one instead."""
    if (root / f"etc/systemd/system/{unit}.service").exists():
        return ""
    texts = (read_text(root / directory / f"{unit}.service") for directory in PACKAGED_UNITS)
    return next((text for text in texts if text), "")


def persistence_drop_in(unit: str) -> str:
    """What makes the packaged daemon set persistence mode and stay; empty where it does so by itself."""
    section, lines = "", []
    for line in re.sub(r"\\\n", " ", unit).splitlines():
        key, _, value = (part.strip() for part in line.partition("="))
        if line.startswith("["):
            section = line.strip()
        elif key == "StopWhenUnneeded" and value.lower() in ("1", "yes", "true", "on"):
            lines += [section, "StopWhenUnneeded=no"]
        elif key == "ExecStart" and NO_PERSISTENCE in value.split():
            command = " ".join(word for word in value.split() if word != NO_PERSISTENCE)
            lines += [section, "ExecStart=", f"ExecStart={command}"]
    return HEAD + "".join(f"{line}\n" for line in lines) if lines else ""


def needs_peermem(root: Path, flavor: str, kernel: str) -> bool:
    """Whether GPUDirect RDMA depends on nvidia_peermem: there is an adapter, and DMA-BUF does not serve."""
    dma_buf = flavor == "open" and version_key(kernel) >= version_key(DMA_BUF_KERNEL)
    return not dma_buf and bool(gpu_node.rdma_adapters(gpu_node.pci_devices(root)))


def has_peer_memory(root: Path) -> bool:
    """Whether the kernel's RDMA stack lets another driver register its memory."""
    return bool(re.search(rf"\b{PEER_MEMORY}\b", read_text(root / "proc/kallsyms")))
