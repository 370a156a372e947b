"""Day-one evidence of eight systems, as differences from the self-test's healthy sample.

Re-authored from public captures, nothing copied: `nvidia-smi -q -x` of A100-SXM4, H100 SXM, L40S and GB200
(NVIDIA/k8s-test-infra, Apache-2.0, drivers 570 to 595), the PCI bus of a DGX A100 (facebookresearch/gcm,
MIT), an Azure ND96asr_v4 with driver 460 (microsoft/superbench-results, MIT). What those lack, and all of
HGX B200, is as NVIDIA's and the kernel's documents describe it. The GPU in a guest was looked at by us
(docs/measurements.md).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.expect import profiles
from clustercheck.samples import sample, smi
from clustercheck.samples.dcgm import dcgm4_text
from clustercheck.samples.links import RDMA, RdmaPort, link_parts, rdma_devices, rdma_ports
from clustercheck.spec import ClusterSpec, NodeSpec

Record = dict[str, Any]
NO_LINKS = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
MISSING: dict[str, Any] = {
    "argv": [], "rc": None, "stdout": "", "stderr": "", "timed_out": False, "missing": True,
}  # fmt: skip
HOPPER_FABRIC = {"state": "Completed", "status": "Success", "cliqueId": "0"}


def _rails(rate: str, pcie: str, *buses: str) -> tuple[RdmaPort, ...]:
    """An InfiniBand adapter next to each of as many groups of GPUs, and the sample's port for storage."""
    numbers = [number for number in range(len(buses) + 1) if number != 2]
    half = len(buses) // 2
    rails = [
        RdmaPort(f"mlx5_{number}", bus, str(int(place >= half)), rate, board="MT_0000000838", pcie=pcie)
        for place, (number, bus) in enumerate(zip(numbers, buses, strict=True))
    ]
    return tuple(sorted((*rails, RDMA[2]), key=lambda port: port.name))


HDR = ("200 Gb/sec (4X HDR)", "16.0 GT/s PCIe")
NDR = ("400 Gb/sec (4X NDR)", "32.0 GT/s PCIe")


@dataclass(frozen=True)
class System:
    """How a healthy node of this system differs from the sample's (8 x A100-SXM4-80GB with NVSwitch).

    ``smi`` are what `nvidia-smi -q -x` prints of each GPU; None where the driver has no such element.
    """

    model: str
    driver: str
    buses: tuple[str, ...]
    profile: str = ""
    nodes: int = 2
    pci_class: str = "0x030200"
    device: str = "0x20b2"
    generation: int = 4
    memory_mib: int = 81920
    switches: int = 0
    links: tuple[int, str] | None = None
    rdma: bool = False
    ports: tuple[RdmaPort, ...] = RDMA
    near_rails: bool = True  # by nvidia-smi topo -m
    rdma_ports: int | None = None  # as declared
    near: str = "SYS"  # without NVLink: of the GPUs of one half
    peer_access: tuple[str, str] = ("OK", "OK")  # of reading and writing, of NVLink
    smi: dict[str, str | None] = field(default_factory=dict)
    change: Callable[[Record], None] = lambda record: None


def _of_buses(*buses: str) -> tuple[str, ...]:
    return tuple(f"0000:{bus}:00.0" for bus in buses)


def _plain_host(record: Record) -> None:
    """No RDMA adapter, no DCGM, no reserved pages of any kind: as a distribution's installer leaves it."""
    record["infiniband"] = {"devices": [], "left_out": []}
    record["rdma"], record["flow_control"] = [], {}
    record["pci"] = [device for device in record["pci"] if device["vendor"] == "0x10de"]
    record["nics"] = record["nics"][:1]
    record["dcgm"] = {"version": MISSING}
    record["fabric_manager"] = {
        "unit": {"rc": 0, "LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"},
        "version": MISSING,
    }


def _l40s_server(record: Record) -> None:
    _plain_host(record)
    record["pcie"]["bridges"] = [bridge for bridge in record["pcie"]["bridges"] if bridge["port"] == "root"]
    for device in record["pcie"]["devices"]:
        device["bridges"] = [record["pcie"]["bridges"][0]["address"]]


def _workstation(record: Record) -> None:
    """A desktop of one CPU with ECC memory, its only GPU driving the screen."""
    _l40s_server(record)
    record["pcie"].update(iommus=[], command_line="quiet splash")
    record["pci"][0].update(link_speed="2.5 GT/s PCIe")  # at rest
    for device in record["pcie"]["devices"]:
        device["iommu"] = None
    record["cpu"].update(
        present="0-31",
        online="0-31",
        numa_nodes={"0": "0-31"},
        governors={"performance": 32},
        scaling_driver="amd-pstate-epp",
    )
    record["host"].update(cpus=32, product="Workstation")
    record["nics"][0]["speed_mbps"] = 1000
    record["memory"].update(MemTotal=131_000_000, MemAvailable=110_000_000, SwapTotal=8_000_000)


def _gb200_tray(record: Record) -> None:
    """Two Grace CPUs; the NVSwitches are in the rack's own trays, and Fabric Manager runs there.

    The memory of each GPU is a NUMA node without CPUs; /proc/cpuinfo of ARM has no model and no microcode.
    """
    record["fabric_manager"] = {
        "unit": {"rc": 0, "LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"},
        "version": MISSING,
    }
    record["imex"] = {
        "unit": {"rc": 0, "LoadState": "loaded", "ActiveState": "active", "SubState": "running"},
        "version": sample.program(f"IMEX version is: {record['module']['version']}\n"),
        "state": sample.program("READY\n"),
        "nodes": ["192.0.2.1", "192.0.2.2"],
    }
    record["host"].update(architecture="aarch64", cpus=144, kernel="6.8.0-1024-nvidia-64k")
    record["firmware"].update(cpu_model=None, microcode=None, sys_vendor="NVIDIA")
    record["cpu"].update(
        present="0-143",
        online="0-143",
        smt="notsupported",
        governors={"performance": 144},
        scaling_driver="cppc_cpufreq",
        numa_nodes={"0": "0-71", "1": "72-143", **{str(node): "" for node in range(2, 34)}},
    )
    record["memory_errors"] = [
        {"controller": "mc0", "kind": "ghes_edac", "uncorrectable": 0, "correctable": 0}
    ]
    record["huge_pages"]["reserved"] = {
        "hugepages-64kB": 0, "hugepages-2048kB": 0, "hugepages-524288kB": 0, "hugepages-16777216kB": 0,
    }  # fmt: skip
    record["pcie"].update(architecture="aarch64", iommus=["smmu3.0x0000000011000000"], command_line="")
    record["pcie"]["bridges"] = [bridge for bridge in record["pcie"]["bridges"] if bridge["port"] == "root"]
    for device in record["pcie"]["devices"]:
        device.update(bridges=[record["pcie"]["bridges"][0]["address"]], iommu="DMA")
    for device in record["pci"]:
        if device["vendor"] == "0x10de":
            device.update(max_link_speed="64.0 GT/s PCIe", link_speed="32.0 GT/s PCIe")


def _hgx_b200(record: Record) -> None:
    """The NVSwitches are no PCI devices: one adapter more leads to them, and Fabric Manager starts NVLSM."""
    adapter = next(device for device in record["pci"] if device["class"].startswith("0x0207"))
    bridge = {**adapter, "address": "0000:05:00.0", "nvswitch_bridge": True}
    for device in record["pci"]:
        if device["class"].startswith("0x0207"):
            device["nvswitch_bridge"] = False
    record["pci"].append(bridge)
    record["fabric_manager"].update(nvlsm=True, umad=True)


def _virtual_machine(record: Record) -> None:
    """Hyper-V: each device in a PCI domain of its own, no frequencies, no EDAC, clocks from the host."""
    record["virtual"].update(rc=0, stdout="microsoft\n")
    record["host"].update(cpus=96, kernel="5.4.0-1055-azure", product="Virtual Machine")
    record["cpu"].update(
        present="0-95",
        online="0-95",
        smt="notsupported",
        governors={},
        scaling_driver=None,
        numa_nodes={"0": "0-23", "1": "24-47", "2": "48-71", "3": "72-95"},
    )
    record["memory_errors"] = []
    record["pcie"].update(iommus=[], command_line="", bridges=[])
    for device in record["pcie"]["devices"]:
        device.update(bridges=[], iommu=None)
    record["nvidia_smi"]["stdout"] = record["nvidia_smi"]["stdout"].replace(
        "s_event_reason", "s_throttle_reason"
    )
    for device in record["pci"]:
        if device["address"] == "0000:c2:00.0":  # the network's virtual function tells no link
            device.update(
                link_width="0", link_speed="Unknown", max_link_width="8", max_link_speed="8.0 GT/s PCIe"
            )
    record["nics"][0]["speed_mbps"] = 50_000


def _passed_through(record: Record) -> None:
    """One GPU of a board in a KVM guest, without the board's NVSwitches: nvidia-smi prints no NVLink."""
    _plain_host(record)
    _virtual_machine(record)
    record["virtual"].update(stdout="kvm\n")
    record["host"].update(cpus=16, kernel="6.18.44", product="Virtual Machine")
    record["cpu"].update(present="0-15", online="0-15", numa_nodes={"0": "0-15"})
    record["nics"][0]["speed_mbps"] = 10_000
    record["nvlink"]["stdout"] = record["nvlink_errors"]["stdout"] = ""


SYSTEMS: dict[str, System] = {
    "HGX A100": System(
        model="NVIDIA A100-SXM4-40GB",
        driver="570.148.08",
        profile="hgx-a100-40gb",
        buses=_of_buses("07", "0f", "47", "4e", "87", "90", "b7", "bd"),
        memory_mib=40960,
        switches=6,
        links=(12, "25 GB/s"),
        rdma=True,
    ),
    "DGX H100": System(
        model="NVIDIA H100 80GB HBM3",
        driver="580.105.08",
        profile="h100-sxm5-80gb",
        buses=_of_buses("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
        generation=5,
        memory_mib=81559,
        switches=4,
        links=(18, "26.562 GB/s"),
        rdma=True,
        ports=_rails(*NDR, "18", "40", "4f", "5e", "9a", "c0", "ce", "dc"),
        smi={"fabric": "", **{f"fabric/{name}": text for name, text in HOPPER_FABRIC.items()}},
    ),
    "HGX B200": System(
        model="NVIDIA B200",
        driver="580.105.08",
        profile="b200-sxm6-180gb",
        buses=_of_buses("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
        device="0x2901",
        generation=5,
        memory_mib=183359,
        links=(18, "53.125 GB/s"),
        rdma=True,
        ports=_rails(*NDR, "18", "40", "4f", "5e", "9a", "c0", "ce", "dc"),
        smi={"fabric": "", **{f"fabric/{name}": text for name, text in HOPPER_FABRIC.items()}},
        change=_hgx_b200,
    ),
    "L40S server": System(
        model="NVIDIA L40S",
        driver="595.91.07",
        profile="l40s-48gb",
        buses=_of_buses("0a", "18", "30", "3d", "8a", "98", "b0", "bd"),
        memory_mib=46068,
        near="NODE",
        peer_access=("OK", "NS"),
        smi={
            "mig_mode/current_mig": "N/A",
            "mig_mode/pending_mig": "N/A",
            "ecc_errors/unrepairable_memory": "N/A",
            "ecc_errors/channel_repair_pending": "No",
        },
        change=_l40s_server,
    ),
    "single-GPU workstation": System(
        model="NVIDIA GeForce RTX 4090",
        driver="580.95.05",
        profile="rtx-4090-24gb",
        buses=_of_buses("01"),
        nodes=1,
        pci_class="0x030000",
        memory_mib=24564,
        smi={
            "mig_mode/current_mig": "N/A",
            "mig_mode/pending_mig": "N/A",
            "serial": "N/A",
            "ecc_mode/current_ecc": "N/A",
            "ecc_mode/pending_ecc": "N/A",
            "remapped_rows": "N/A",
            "clocks_event_reasons/clocks_event_reason_gpu_idle": "Not Active",
            "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "1",
            "utilization/gpu_util": "3 %",
            "max_clocks": "",
            "max_clocks/sm_clock": "3105 MHz",
        },
        change=_workstation,
    ),
    "GB200 tray": System(
        model="NVIDIA GB200",
        driver="580.173.02",
        buses=("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0"),
        device="0x2941",
        generation=5,
        memory_mib=189471,
        links=(18, "53.125 GB/s"),
        rdma=True,
        ports=_rails(*NDR, "03", "04", "05", "06"),
        smi={
            "fabric": "",
            **{f"fabric/{name}": text for name, text in HOPPER_FABRIC.items()},
            "fabric/cliqueId": "2",
            "fabric/clusterUuid": "00000001-0000-0000-0000-000000000001",
            "fabric/health": "",
            "fabric/health/summary": "Healthy",
            "c2c_mode": "Enabled",
        },
        change=_gb200_tray,
    ),
    "virtual machine": System(
        model="A100-SXM4-40GB",
        driver="460.32.03",
        profile="hgx-a100-40gb",
        buses=tuple(f"000{domain}:00:00.0" for domain in "1234bcde"),
        memory_mib=40536,
        switches=6,
        links=(12, "25 GB/s"),
        rdma=True,
        ports=_rails(*HDR, "20", "21", "22", "23", "24", "25", "26", "27"),
        near_rails=False,
        rdma_ports=8,
        smi={
            **dict.fromkeys(("platformInfo", "gpu_recovery_action", "product_architecture")),
            "persistence_mode": "Disabled",
            **{f"ecc_errors/{since}/sram_uncorrectable": "0" for since in ("volatile", "aggregate")},
            **{
                f"ecc_errors/{since}/sram_uncorrectable_{kind}": None
                for since in ("volatile", "aggregate")
                for kind in ("parity", "secded")
            },
            "ecc_errors/aggregate/sram_threshold_exceeded": None,
        },
        change=_virtual_machine,
    ),
    "GPU in a guest": System(
        model="NVIDIA H200",
        driver="580.159.04",
        profile="h200-sxm5-141gb",
        buses=("0000:00:06.0",),
        nodes=1,
        generation=5,
        memory_mib=143771,
        smi={
            "fabric": "",
            **dict.fromkeys(("fabric/state", "fabric/status", "fabric/cliqueId"), "N/A"),
        },
        change=_passed_through,
    ),
}  # fmt: skip


def record_of(system: System, node: int) -> Record:
    """The probe's record of one healthy node."""
    text = json.dumps(sample.probe_record(node)).replace(smi.DRIVER, system.driver)
    record: Record = json.loads(text.replace(smi.MODEL, system.model))
    record["nvidia_smi"]["stdout"] = _smi_xml(system, node)
    record["nvlink"]["stdout"] = _nvlink(system, node, errors=False)
    record["nvlink_errors"]["stdout"] = _nvlink(system, node, errors=True)
    ports = system.ports if system.rdma else ()
    record["infiniband"] = link_parts(node, ports)["infiniband"]
    record["rdma"] = rdma_ports(ports)
    record["topology"]["stdout"] = _topology(system)
    plain, linked = system.peer_access
    record["peer_access"] = {
        way: sample.program(
            smi.peer_access_text(len(system.buses)).replace("OK", linked if way == "n" else plain)
        )
        for way in ("r", "w", "n")
    }
    lines = smi.gpu_list_text(node, len(system.buses)).replace(smi.MODEL, system.model)
    for part in ("gpu_list", "container_gpus", "container_gpus_as_user"):
        record[part]["stdout"] = lines
    record["pci"] = _pci(system, record["pci"])
    record["pcie"]["devices"] = [
        {**record["pcie"]["devices"][0], "address": address} for address in system.buses
    ]
    record["pcie_replays"]["counts"] = dict.fromkeys(system.buses, "0")
    record["device_links"] = record["device_links"][: len(system.buses)] + record["device_links"][-1:]
    record["dcgm"]["diag"]["stdout"] = dcgm4_text(len(system.buses))
    system.change(record)
    return record


def evidence_of(system: System) -> Evidence:
    """The evidence of a cluster of such nodes: the probe's alone, no job has run."""
    names = [f"gpu{number:02d}" for number in range(1, system.nodes + 1)]
    declared = tuple(
        NodeSpec(
            name,
            f"192.0.2.{number}",
            gpu_count=len(system.buses),
            gpu_model=system.model,
            profile=system.profile,
            rdma_ports=system.rdma_ports,
        )
        for number, name in enumerate(names, start=1)
    )
    nodes = {
        name: NodeEvidence(name, record_of(system, number), asked=(sample.NOON, sample.NOON + 1.6))
        for number, name in enumerate(names, start=1)
    }
    known = {system.profile: profiles.load(system.profile)} if system.profile else {}
    spec = ClusterSpec("day-one", declared, driver_branch=system.driver.split(".")[0], image=sample.IMAGE)
    return Evidence(spec=spec, nodes=nodes, later=copy.deepcopy(nodes), profiles=known)


def _smi_xml(system: System, node: int) -> str:
    root = ElementTree.fromstring(smi.smi_xml(node, len(system.buses), system.driver))  # noqa: S314 - our own text
    for gpu, address in zip(root.findall("gpu"), system.buses, strict=True):
        printed = f"0000{address.upper()}"
        gpu.set("id", printed)
        table: dict[str, str | None] = {
            "product_name": system.model,
            "pci/pci_bus_id": printed,
            "fb_memory_usage/total": f"{system.memory_mib} MiB",
            **{
                f"pci/pci_gpu_link_info/pcie_gen/{which}_link_gen": str(system.generation)
                for which in ("max", "current")
            },
            **system.smi,
        }
        for path, text in table.items():
            _set(gpu, path, text)
    return ElementTree.tostring(root, encoding="unicode")


def _set(gpu: ElementTree.Element, path: str, text: str | None) -> None:
    """Set, add, or with None remove an element; what is below it goes where a text takes its place."""
    above, _, name = path.rpartition("/")
    parent = gpu.find(above) if above else gpu
    assert parent is not None, path
    found = parent.find(name)
    if text is None:
        assert found is not None, path
        parent.remove(found)
        return
    element = ElementTree.SubElement(parent, name) if found is None else found
    for child in list(element):
        element.remove(child)
    element.text = text


def _nvlink(system: System, node: int, *, errors: bool) -> str:
    count, rate = system.links or (0, "")
    names = ("Replay", "Recovery", "CRC")
    fifth_generation = errors and count > 0 and "B200" in system.model
    lines = [
        *(f"\t Link {link}: {name} Errors: 0" for link in range(count) for name in names if errors),
        *(f"\t Link {link}: {rate}" for link in range(count) if not errors),
    ]
    below = "\n".join(lines) + "\n" if lines else NO_LINKS
    below = smi.nvlink5_errors_text(count) if fifth_generation else below
    return "".join(
        f"GPU {gpu}: {system.model} (UUID: {smi.uuid(node, gpu)})\n{below}"
        for gpu in range(len(system.buses))
    )


def _topology(system: System) -> str:
    text = smi.topology_text(len(system.buses), system.ports if system.rdma else ())
    text = text if system.near_rails else text.replace("PXB", "NODE")
    if system.links:
        return text.replace("NV12", f"NV{system.links[0]}")
    rows, half = text.split("\n"), len(system.buses) // 2
    for row in range(len(system.buses)):
        cells = rows[1 + row].split("\t")
        cells[1 : 1 + len(system.buses)] = [
            system.near if cell == "NV12" and (row < half) == (column < half) else cell.replace("NV12", "SYS")
            for column, cell in enumerate(cells[1 : 1 + len(system.buses)])
        ]
        rows[1 + row] = "\t".join(cells)
    return "\n".join(rows)


def _pci(system: System, devices: list[Record]) -> list[Record]:
    speed = {4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}[system.generation]
    gpu = {
        **devices[0],
        "class": system.pci_class,
        "device": system.device,
        "link_speed": speed,
        "max_link_speed": speed,
    }
    switches = [device for device in devices if device["class"] == "0x068000"][: system.switches]
    return [
        *({**gpu, "address": address} for address in system.buses),
        *switches,
        *(rdma_devices(system.ports) if system.rdma else []),
    ]
