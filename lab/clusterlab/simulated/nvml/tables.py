"""The printed tables of nvidia-smi: the summary, `-L`, `topo -m`, `nvlink -s` and `-e`."""

from __future__ import annotations

import time
from typing import Any

from . import node as nvml

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def listing(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`nvidia-smi -L`: a line a GPU, and its MIG devices."""
    lines = []
    for gpu in gpus:
        if gpu["state"] == "lost":
            lines.append(nvml.lost_text(gpu))
            continue
        lines.append(f"GPU {gpu['index']}: {nvml.product(node, gpu)} (UUID: {gpu['uuid']}) (simulated)")
        for index, instance in enumerate(node.mig_devices(gpu)):
            uuid = f"MIG-{gpu['uuid'][4:-2]}{instance['gi_id']:02x}"
            lines.append(f"  MIG {instance['name']:<12}    Device  {index}: (UUID: {uuid})")
    return "".join(f"{line}\n" for line in lines)


def summary(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """The table that nvidia-smi prints when asked for nothing."""
    rule = "+" + "-" * 89 + "+"
    head = (
        f"NVIDIA-SMI {node.driver_version:<22} Driver Version: {node.driver_version:<15}"
        f"CUDA Version: {node.cuda_version:<6}"
    )
    lines = [
        f"{time.strftime('%a %b %e %H:%M:%S %Y')}       ",
        rule,
        f"| {head:<87} |",
        f"| {'SIMULATED by clusterlab: no such GPU is in this machine':<87} |",
        "|-----------------------------------------+------------------------+----------------------+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
    ]
    for gpu in gpus:
        lines += _summary_rows(node, gpu)
    lines += ["", rule, f"| {'Processes:':<87} |"]
    heads = " GPU   GI   CI              PID   Type   Process name" + " " * 22 + "GPU Memory"
    lines.append(f"| {heads:<87} |")
    lines.append("|" + "=" * 89 + "|")
    found = [(gpu, process) for gpu in gpus for process in node.processes(gpu)]
    for gpu, process in found:
        memory = f"{process['used_memory_mib']}MiB"
        row = f"  {gpu['index']:>3}   N/A  N/A {process['pid']:>16}      {process['type']:<3} "
        lines.append(f"| {row + process['name'][:38]:<76}{memory:>10}  |")
    if not found:
        lines.append(f"| {' No running processes found':<87} |")
    return "\n".join([*lines, rule, ""])


def _summary_rows(node: nvml.Node, gpu: dict[str, Any]) -> list[str]:
    model, counters = node.model, gpu["ecc"]["volatile"]
    errors = sum(count for name, count in counters.items() if "uncorrectable" in name)
    persistence = "On" if node.persistence(gpu) else "Off"
    power = f"{gpu['power_draw_w']:.0f}W / {gpu['power_limit_w']:>4.0f}W"
    memory = f"{node.used_mib(gpu)}MiB / {model['memory_mib']:>6}MiB"
    mig = ("Enabled" if node.mig_mode(gpu) else "Disabled") if model["mig_capable"] else "N/A"
    return [
        f"| {gpu['index']:>3}  {nvml.product(node, gpu):<27}{persistence:>7} |   {nvml.bus_id(gpu)} Off |"
        f" {errors if gpu['ecc']['enabled'] else 'Off':>20} |",
        f"| N/A  {gpu['temperature_c']:>3}C    P0        {power:>18} | {memory:>22} |"
        f" {gpu['utilization_percent']:>6}%      Default |",
        f"|{'':41}|{'':24}| {mig:>20} |",
        "+-----------------------------------------+------------------------+----------------------+",
    ]


def topology(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`nvidia-smi topo -m`."""
    nics = [hca for hca in node.hardware["hcas"] if hca["state"] != "missing"]
    heads = [f"GPU{gpu['index']}" for gpu in gpus] + [f"NIC{index}" for index in range(len(nics))]
    lines = ["\t" + "\t".join([*heads, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    devices = [*gpus, *nics]
    for row, device in enumerate(devices):
        cells = [_connection(node, device, other) for other in devices]
        if row < len(gpus):
            cells += [_cpus(device["numa_node"]), str(device["numa_node"]), "N/A"]
        lines.append("\t".join([heads[row], *cells]))
    legend = LEGEND
    if nics:
        names = "".join(f"  NIC{index}: {hca['name']}\n" for index, hca in enumerate(nics))
        legend += f"\nNIC Legend:\n\n{names}"
    return "\n".join(lines) + "\n" + legend + "\nSimulated by clusterlab.\n\n"


PEER_LEGEND = """
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown
"""


def peer_access(node: nvml.Node, gpus: list[dict[str, Any]], way: str) -> str:
    """`nvidia-smi topo -p2p r`, `w` or `n`: over NVLink, GPUs reach each other through NVSwitches alone."""

    def word(one: dict[str, Any], other: dict[str, Any]) -> str:
        if one is other:
            return "X"
        if not (one.get("peer_access", True) and other.get("peer_access", True)):
            return "CNS"
        over_nvlink = bool(node.switches) and min(_active(one), _active(other)) > 0
        return "OK" if way != "n" or over_nvlink else "NS"

    heads = [f"GPU{gpu['index']}" for gpu in gpus]
    rows = [
        "\t".join([f" {head}", *(word(gpu, other) for other in gpus), ""])
        for head, gpu in zip(heads, gpus, strict=True)
    ]
    return "\n".join(["\t".join([" ", *heads, ""]), *rows]) + f"\n{PEER_LEGEND}\nSimulated by clusterlab.\n\n"


def _connection(node: nvml.Node, one: dict[str, Any], other: dict[str, Any]) -> str:
    if one is other:
        return " X "
    if "nvlinks" in one and "nvlinks" in other:
        # Through NVSwitches every link leads to every GPU: the weaker end counts.
        links = min(_active(one), _active(other))
        if links and node.switches:
            return f"NV{links}"
    if one["numa_node"] != other["numa_node"]:
        return "SYS"
    near = abs(int(one["pci_address"][5:7], 16) - int(other["pci_address"][5:7], 16)) <= 8
    return "PXB" if near else "NODE"


def _active(gpu: dict[str, Any]) -> int:
    return sum(1 for link in gpu["nvlinks"] if link["active"])


def _cpus(numa_node: int) -> str:
    return "0-63,128-191" if numa_node == 0 else "64-127,192-255"


def nvlink_status(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`nvidia-smi nvlink -s`."""
    lines = []
    for gpu in gpus:
        lines.append(f"GPU {gpu['index']}: {nvml.product(node, gpu)} (UUID: {gpu['uuid']})")
        for number, link in enumerate(gpu["nvlinks"]):
            speed = f"{node.model['nvlink_gbps']:g} GB/s" if link["active"] else "<inactive>"
            lines.append(f"\t Link {number}: {speed}")
    return "".join(f"{line}\n" for line in lines)


def nvlink_errors(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`nvidia-smi nvlink -e`."""
    lines = []
    for gpu in gpus:
        lines.append(f"GPU {gpu['index']}: {nvml.product(node, gpu)} (UUID: {gpu['uuid']})")
        for number, link in enumerate(gpu["nvlinks"]):
            if not link["active"]:
                lines.append(f"\t Link {number}: <inactive>")
                continue
            errors = link["errors"]
            lines += [
                f"\t Link {number}: Replay Errors: {errors['replay'] + _counted_since(errors)}",
                f"\t Link {number}: Recovery Errors: {errors['recovery']}",
                f"\t Link {number}: CRC Errors: {errors['crc_flit']}",
            ]
    return "".join(f"{line}\n" for line in lines)


def _counted_since(errors: dict[str, Any]) -> int:
    begun = errors.get("counting_since")
    return 0 if begun is None else max(0, int(time.time() - begun))


def nvlink_remotes(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """`nvidia-smi nvlink -R` and `-p`: what each link leads to."""
    lines = []
    for gpu in gpus:
        lines.append(f"GPU {gpu['index']}: {nvml.product(node, gpu)} (UUID: {gpu['uuid']})")
        for number, link in enumerate(gpu["nvlinks"]):
            remote = f"Remote Device 0000{link['remote']}".upper() if link["remote"] else "Remote Device N/A"
            lines.append(f"\t Link {number}: {remote}: Link {gpu['index']}")
    return "".join(f"{line}\n" for line in lines)
