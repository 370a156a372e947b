"""The machines that a lab node can be, built alike every time for the same profile and node name.

PCI addresses, NVSwitch and HCA placement follow the DGX A100 and DGX H100; identifiers, clocks, limits and
memory sizes are those that nvidia-smi prints on such GPUs (captures of drivers 570.148.08 and 580.105.08).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clusterlab.hardware.model import (
    Clocks,
    GpuModel,
    Hardware,
    Hca,
    NvSwitch,
    SimulatedGpu,
    SimulatedNvLink,
    SimulatedPcieLink,
)


@dataclass(frozen=True)
class ServerModel:
    """A profile: how many of what, and where on the PCI bus."""

    vendor: str
    product: str
    model: GpuModel | None
    gpu_buses: Sequence[int] = ()
    switch_buses: Sequence[int] = ()
    switch_device_id: str = ""
    hca_buses: Sequence[int] = ()
    hca_device_id: str = ""


A100_SXM_40GB = GpuModel(
    name="NVIDIA A100-SXM4-40GB",
    architecture="Ampere",
    compute_capability="8.0",
    device_id="20b0",
    subsystem_id="134f",
    vbios_version="92.00.45.00.03",
    board_part_number="692-2G506-0200-003",
    gpu_part_number="20B0-884-A1",
    inforom_image="G506.0200.00.04",
    inforom_oem="2.0",
    inforom_ecc="6.16",
    memory_mib=40960,
    memory_reserved_mib=518,
    bar1_mib=65536,
    max_clocks=Clocks(graphics_mhz=1410, sm_mhz=1410, memory_mhz=1215, video_mhz=1290),
    idle_clocks=Clocks(graphics_mhz=210, sm_mhz=210, memory_mhz=1215, video_mhz=585),
    default_graphics_mhz=1095,
    min_graphics_mhz=210,
    memory_clocks_mhz=[1215],
    power_limit_w=400.0,
    power_limit_min_w=100.0,
    power_limit_max_w=400.0,
    slowdown_temperature_c=89,
    shutdown_temperature_c=92,
    max_operating_temperature_c=85,
    max_memory_temperature_c=95,
    remap_banks=640,
    pcie_gen_max=4,
    pcie_width_max=16,
    nvlink_count=12,
    nvlink_gbps=25.0,
    mig_capable=True,
)

A100_SXM_80GB = A100_SXM_40GB.model_copy(
    update={
        "name": "NVIDIA A100-SXM4-80GB",
        "device_id": "20b2",
        "subsystem_id": "1463",
        "vbios_version": "92.00.A0.00.05",
        "board_part_number": "692-2G506-0210-003",
        "gpu_part_number": "20B2-895-A1",
        "inforom_image": "G506.0210.00.04",
        "memory_mib": 81920,
        "memory_reserved_mib": 619,
        "bar1_mib": 131072,
        "max_clocks": Clocks(graphics_mhz=1410, sm_mhz=1410, memory_mhz=1593, video_mhz=1290),
        "idle_clocks": Clocks(graphics_mhz=210, sm_mhz=210, memory_mhz=1593, video_mhz=585),
        "default_graphics_mhz": 1275,
        "memory_clocks_mhz": [1593],
        "slowdown_temperature_c": 89,
    }
)

A100_PCIE_40GB = A100_SXM_40GB.model_copy(
    update={
        "name": "NVIDIA A100-PCIE-40GB",
        "device_id": "20f1",
        "subsystem_id": "145f",
        "vbios_version": "92.00.25.00.08",
        "board_part_number": "900-21001-0000-000",
        "gpu_part_number": "20F1-884-A1",
        "inforom_image": "1001.0200.00.03",
        "default_graphics_mhz": 1410,
        "power_limit_w": 250.0,
        "power_limit_min_w": 150.0,
        "power_limit_max_w": 250.0,
        "nvlink_count": 0,
    }
)

H100_SXM_80GB = GpuModel(
    name="NVIDIA H100 80GB HBM3",
    architecture="Hopper",
    compute_capability="9.0",
    device_id="2330",
    subsystem_id="16c1",
    vbios_version="96.00.99.00.01",
    board_part_number="692-2G520-0200-000",
    gpu_part_number="2330-885-A1",
    inforom_image="G520.0200.00.05",
    inforom_oem="2.1",
    inforom_ecc="7.16",
    memory_mib=81559,
    memory_reserved_mib=480,
    bar1_mib=131072,
    max_clocks=Clocks(graphics_mhz=1980, sm_mhz=1980, memory_mhz=2619, video_mhz=1545),
    idle_clocks=Clocks(graphics_mhz=345, sm_mhz=345, memory_mhz=2619, video_mhz=765),
    default_graphics_mhz=1980,
    min_graphics_mhz=345,
    memory_clocks_mhz=[2619, 1593],
    power_limit_w=700.0,
    power_limit_min_w=200.0,
    power_limit_max_w=700.0,
    slowdown_temperature_c=89,
    shutdown_temperature_c=95,
    max_operating_temperature_c=87,
    max_memory_temperature_c=95,
    remap_banks=2560,
    pcie_gen_max=5,
    pcie_width_max=16,
    nvlink_count=18,
    nvlink_gbps=26.562,
    mig_capable=True,
)

_HGX_A100 = ServerModel(
    vendor="NVIDIA",
    product="DGXA100 920-23687-2530-000",
    model=A100_SXM_80GB,
    gpu_buses=(0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD),
    switch_buses=(0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9),
    switch_device_id="1af1",
    hca_buses=(0x0C, 0x12, 0x4B, 0x54, 0x8D, 0x94, 0xBA, 0xCC),
    hca_device_id="101b",
)

PROFILES: dict[str, ServerModel] = {
    "hgx-a100-80gb": _HGX_A100,
    "hgx-a100-40gb": replace(_HGX_A100, model=A100_SXM_40GB),
    "a100-pcie-40gb": ServerModel(
        vendor="Supermicro",
        product="SYS-420GP-TNR",
        model=A100_PCIE_40GB,
        gpu_buses=(0x17, 0x31, 0x98, 0xB1),
        hca_buses=(0x4B,),
        hca_device_id="101b",
    ),
    "h100-sxm5-80gb": ServerModel(
        vendor="NVIDIA",
        product="DGXH100",
        model=H100_SXM_80GB,
        gpu_buses=(0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF),
        switch_buses=(0x07, 0x08, 0x09, 0x0A),
        switch_device_id="22a3",
        hca_buses=(0x18, 0x40, 0x4F, 0x5E, 0x9A, 0xC0, 0xCE, 0xDC),
        hca_device_id="1021",
    ),
    "none": ServerModel(vendor="Clusterlab", product="Server without GPUs", model=None),
}


def build(profile: str, node: str) -> Hardware:
    """The healthy machine of that profile, with serials and UUIDs that the node's name alone decides.

    Raises LookupError when there is no such profile.
    """
    machine = PROFILES.get(profile)
    if machine is None:
        raise LookupError(f"no hardware profile {profile!r}; there are {', '.join(sorted(PROFILES))}")
    switches = [
        NvSwitch(pci_address=_address(bus), device_id=machine.switch_device_id)
        for bus in machine.switch_buses
    ]
    gpus = [
        _gpu(machine, node, index, bus, [switch.pci_address for switch in switches])
        for index, bus in enumerate(machine.gpu_buses)
    ]
    hcas = [
        Hca(
            pci_address=_address(bus),
            name=f"mlx5_{index}",
            device_id=machine.hca_device_id,
            numa_node=_numa_node(bus),
        )
        for index, bus in enumerate(machine.hca_buses)
    ]
    return Hardware(
        node=node,
        profile=profile,
        system_vendor=machine.vendor,
        system_product=machine.product,
        system_serial=f"{_digest(profile, node, 'system') % 10**10:010d}",
        gpu_model=machine.model,
        gpus=gpus,
        nvswitches=switches,
        hcas=hcas,
    )


def _gpu(machine: ServerModel, node: str, index: int, bus: int, switches: list[str]) -> SimulatedGpu:
    model = machine.model
    assert model is not None  # noqa: S101 - a machine with GPU buses has a model
    digest = hashlib.sha256(f"{node}/gpu/{index}".encode()).hexdigest()
    uuid = "-".join((digest[0:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
    return SimulatedGpu(
        index=index,
        serial=f"165{_digest(node, 'gpu', index) % 10**10:010d}",
        uuid=f"GPU-{uuid}",
        pci_address=_address(bus),
        numa_node=_numa_node(bus),
        module_id=index + 1,
        pcie=SimulatedPcieLink(gen=model.pcie_gen_max, width=model.pcie_width_max),
        nvlinks=[
            SimulatedNvLink(remote=switches[link % len(switches)] if switches else None)
            for link in range(model.nvlink_count)
        ],
        clocks=model.idle_clocks.model_copy(),
        power_limit_w=model.power_limit_w,
        temperature_c=31 + _digest(node, "temperature", index) % 5,
        memory_temperature_c=33 + _digest(node, "memory-temperature", index) % 5,
        power_draw_w=round(model.power_limit_w * 0.15 + _digest(node, "power", index) % 400 / 100, 2),
    )


def _address(bus: int) -> str:
    return f"0000:{bus:02x}:00.0"


def _numa_node(bus: int) -> int:
    # Both boards hang the lower half of their buses on the first socket.
    return 0 if bus < 0x80 else 1


def _digest(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8])
