"""The PCI Express tree and the IOMMU, as the probe reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.reading import CannotReadError

# Access Control Services that send a peer's traffic up to the root: requests, completions, and what comes up.
REDIRECTS = {0x04: "ReqRedir", 0x08: "CmpltRedir", 0x10: "UpstreamFwd"}


@dataclass(frozen=True)
class Bridge:
    """A bridge above a GPU. ``acs`` is None where it has none; ``seen`` whether that could be read."""

    address: str
    port: str
    acs: int | None
    seen: bool

    @property
    def redirects(self) -> tuple[str, ...]:
        """What it redirects, in lspci's words."""
        return tuple(name for bit, name in REDIRECTS.items() if (self.acs or 0) & bit)


@dataclass(frozen=True)
class PcieTree:
    """Devices by address with the IOMMU's treatment of each (None: not behind one), and the bridges above."""

    architecture: str
    as_root: bool
    devices: Mapping[str, str | None]
    bridges: tuple[Bridge, ...]
    iommus: tuple[str, ...]
    command_line: str


def parse_pcie(part: Mapping[str, Any]) -> PcieTree:
    """The probe's part pcie. Raises CannotReadError."""
    devices, bridges, iommus = part.get("devices"), part.get("bridges"), part.get("iommus")
    if not isinstance(devices, list) or not isinstance(bridges, list) or not isinstance(iommus, list):
        raise CannotReadError("the probe's part pcie has an unexpected form")
    if not all(isinstance(each, Mapping) for each in (*devices, *bridges)):
        raise CannotReadError("the probe's record of PCI devices has an unexpected form")
    return PcieTree(
        architecture=str(part.get("architecture")),
        as_root=part.get("as_root") is True,
        devices={str(each.get("address")): _text(each.get("iommu")) for each in devices},
        bridges=tuple(_bridge(each) for each in bridges),
        iommus=tuple(map(str, iommus)),
        command_line=str(part.get("command_line") or ""),
    )


def _bridge(record: Mapping[str, Any]) -> Bridge:
    acs, size = record.get("acs"), record.get("read_bytes")
    return Bridge(
        address=str(record.get("address")),
        port=str(record.get("port") or ""),
        acs=acs if isinstance(acs, int) else None,
        seen=isinstance(size, int) and size > 256,
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
