# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Who manages the NVLink switches between a node's GPUs, and so which services the node runs.

From public descriptions, where it says NVLSM or IMEX: such machines were never seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import INFINIBAND_CLASS, MELLANOX

# Fabric Manager, through NVSwitches on the PCI bus (A100 to H200).
NVSWITCH = "nvswitch"
# Fabric Manager with NVLSM, through ConnectX adapters: the NVSwitches are no PCI devices (HGX B200 and B300).
NVLSM = "nvlsm"
# The rack's switch trays; the nodes run IMEX (GB200 and GB300).
IMEX = "imex"
# The vital product data of an adapter that leads to NVSwitches has this: NVIDIA's start script asks for it.
BRIDGE_MARK = b"SW_MNG"
VPD_BYTES = 4096


def nvswitch_bridges(root: Path, devices: list[dict[str, str]]) -> list[dict[str, str]]:
    """The adapters among PCI devices that lead to NVSwitches; root alone can read which they are."""
    adapters = (d for d in devices if d["vendor"] == MELLANOX and d["class"][:6] == INFINIBAND_CLASS)
    return [d for d in adapters if BRIDGE_MARK in _vital_product_data(root, d["address"])]


def _vital_product_data(root: Path, address: str) -> bytes:
    try:
        with (root / "sys/bus/pci/devices" / address / "vpd").open("rb") as stream:
            return stream.read(VPD_BYTES)
    except OSError:
        return b""


def nvlink_fabric(gpus: list[dict[str, str]], nvswitches: int, bridges: int, compat: dict[str, Any]) -> str:
    """`nvswitch`, `nvlsm` or `imex`; empty where no switch is known that this node has to do with."""
    if is_of(IMEX, gpus, compat):
        return IMEX
    if nvswitches:
        return NVSWITCH
    return NVLSM if bridges else ""


def is_of(fabric: str, gpus: list[dict[str, str]], compat: dict[str, Any]) -> bool:
    """Whether a GPU is of a kind whose NVLink switches are managed like this."""
    ids = compat["nvlink_fabrics"][fabric]["device_ids"]
    return any(gpu["device"] and int(gpu["device"], 16) in ids for gpu in gpus)
