"""The healthy RDMA adapters of the sample: two rails of InfiniBand HDR, and one port of RoCE for storage.

Made up in the words of the kernel's files (drivers/infiniband/core/sysfs.c) and of iproute2's dcb.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

INTERFACE = "ens2f0np0"


@dataclass(frozen=True)
class RdmaPort:
    """An adapter with one port: its name, PCI bus and NUMA node, and what the port runs at."""

    name: str
    bus: str
    numa: str
    rate: str = "200 Gb/sec (4X HDR)"
    ethernet: bool = False
    board: str = "MT_0000000223"
    pcie: str = "16.0 GT/s PCIe"

    @property
    def link_layer(self) -> str:
        """As the kernel calls it."""
        return "Ethernet" if self.ethernet else "InfiniBand"


RDMA = (
    RdmaPort("mlx5_0", "0c", "0"),
    RdmaPort("mlx5_1", "8d", "1"),
    RdmaPort("mlx5_2", "c2", "1", "100 Gb/sec (4X EDR)", ethernet=True, board="MT_0000000594"),
)
COUNTERS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
    "port_rcv_remote_physical_errors", "port_xmit_discards", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)  # fmt: skip


def link_parts(node: int, ports: Sequence[RdmaPort] = RDMA) -> dict[str, Any]:
    """These parts of a healthy node's record."""
    return {
        "infiniband": {
            "devices": [_adapter(node, number, port) for number, port in enumerate(ports)], "left_out": [],
        },
        "flow_control": {
            INTERFACE: {
                "pfc": {
                    "argv": [], "rc": 0, "stderr": "", "timed_out": False, "missing": False,
                    "stdout": "pfc-cap 8 macsec-bypass off delay 0\n"
                    "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n",
                },
                "dscp": {
                    "argv": [], "rc": 0, "stderr": "", "timed_out": False, "missing": False,
                    "stdout": f"dscp-prio {' '.join(f'{point}:{point >> 3}' for point in range(64))}\n",
                },
                "ecn": {"roce_np": ["3"], "roce_rp": ["3"]},
            }
        },
    }  # fmt: skip


def rdma_devices(ports: Sequence[RdmaPort] = RDMA) -> list[dict[str, Any]]:
    """The adapters on the PCI bus."""
    return [
        {
            "address": f"0000:{port.bus}:00.0",
            "vendor": "0x15b3",
            "class": "0x020000" if port.ethernet else "0x020700",
            "device": "0x101b",
            "link_speed": port.pcie,
            "link_width": "16",
            "max_link_speed": port.pcie,
            "max_link_width": "16",
            "numa_node": port.numa,
            "driver": "mlx5_core",
            "answers": True,
        }
        for port in ports
    ]


def rdma_ports(ports: Sequence[RdmaPort] = RDMA) -> list[dict[str, Any]]:
    """The ports, each with its state and rate."""
    return [
        {
            "device": port.name,
            "port": "1",
            "state": "4: ACTIVE",
            "rate": port.rate,
            "link_layer": port.link_layer,
        }
        for port in ports
    ]


def storage_nic(node: int) -> dict[str, Any]:
    """The network interface of the RoCE port."""
    high, low = divmod(node, 256)
    return {
        "name": INTERFACE, "speed_mbps": 100_000, "state": "up", "mtu": 9000,
        "mac": f"02:00:00:00:{1 + high:02x}:{low:02x}", "addresses": [f"198.51.{100 + high}.{low}/24"],
        "default_route": False, "physical": True,
    }  # fmt: skip


def _adapter(node: int, number: int, of: RdmaPort) -> dict[str, Any]:
    high, low = divmod(node, 256)
    guid = f"0c42:a103:{node:04x}:{number:04x}"
    gids = [{"index": 0, "gid": f"fe80:0000:0000:0000:{guid}", "type": "IB/RoCE v1", "interface": None}]
    if of.ethernet:
        gids[0]["interface"] = INTERFACE
        gids += [
            {
                "index": 3, "gid": f"0000:0000:0000:0000:0000:ffff:c633:{100 + high:02x}{low:02x}",
                "type": "RoCE v2", "interface": INTERFACE,
            }
        ]  # fmt: skip
    port = {
        "port": "1",
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": of.rate,
        "link_layer": of.link_layer,
        "counters": dict.fromkeys(COUNTERS, "0"),
        "hw_counters": {"out_of_sequence": "0", "local_ack_timeout_err": "0"},
        "gids": gids,
    }
    return {
        "name": of.name,
        "address": f"0000:{of.bus}:00.0",
        "numa_node": of.numa,
        "fw_ver": "20.43.2026",
        "board_id": of.board,
        "ports": [port],
    }
