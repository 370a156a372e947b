"""Everything that `nvidia-smi -q` tells, as one tree; printed as XML (`-x`) or as indented text.

The element sets are those of captures of real hardware: an A100-SXM4-40GB under 570.148.08 and eight
H100 80GB under 580.105.08. Which elements a GPU prints depends on its architecture and on the driver.
"""

from __future__ import annotations

import html
import time
from typing import Any

from . import health, identity
from . import node as nvml
from .words import NA, Tree, pair


def xml(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """The document of `nvidia-smi -q -x`."""
    dtd = "nvsmi_device_v13.dtd" if node.branch >= 580 else "nvsmi_device_v12.dtd"
    lines = ['<?xml version="1.0" ?>', f'<!DOCTYPE nvidia_smi_log SYSTEM "{dtd}">', "<nvidia_smi_log>"]
    for name, said in header(node):
        lines += _xml(name, said, 1)
    for gpu in gpus:
        lines.append(f'\t<gpu id="{nvml.bus_id(gpu)}">')
        for tag, value in gpu_tree(node, gpu):
            lines += _xml(tag, value, 2)
        lines += ["\t</gpu>", ""]
    return "\n".join([*lines, "</nvidia_smi_log>", ""])


def text(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    """The report of `nvidia-smi -q`."""
    lines = ["", "==============NVSMI LOG==============", ""]
    lines += [f"{_title(tag):<42}: {value}" for tag, value in header(node)]
    for gpu in gpus:
        lines += ["", f"GPU {nvml.bus_id(gpu)}"]
        for tag, value in gpu_tree(node, gpu):
            if tag != "supported_clocks":
                lines += _text(tag, value, 1)
    return "\n".join([*lines, ""])


def header(node: nvml.Node) -> list[tuple[str, str]]:
    """What is said once, before the GPUs."""
    return [
        ("timestamp", time.strftime("%a %b %e %H:%M:%S %Y")),
        ("driver_version", node.driver_version),
        ("cuda_version", node.cuda_version),
        ("attached_gpus", str(len(node.gpus))),
        ("simulated", "true"),
    ]


def gpu_tree(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Everything about one GPU."""
    return [
        *identity.identity(node, gpu),
        ("pci", identity.pci(node, gpu)),
        ("fan_speed", NA),
        ("performance_state", "P0"),
        *health.clock_reasons(node, gpu),
        *identity.memory(node, gpu),
        ("ecc_mode", pair("ecc", gpu["ecc"]["enabled"], gpu["ecc"]["pending_enabled"])),
        ("ecc_errors", health.ecc(node, gpu)),
        ("retired_pages", health.retired(gpu)),
        ("remapped_rows", health.remapped(node, gpu)),
        ("temperature", health.temperature(node, gpu)),
        ("supported_gpu_target_temp", [("gpu_target_temp_min", NA), ("gpu_target_temp_max", NA)]),
        *health.power(node, gpu),
        *health.clocks(node, gpu),
        ("fabric", identity.fabric(node, gpu)),
        ("supported_clocks", health.supported_clocks(node)),
        ("processes", identity.processes(node, gpu)),
        ("accounted_processes", []),
        ("capabilities", [("egm", "disabled")]),
    ]


def _xml(tag: str, value: str | Tree, depth: int) -> list[str]:
    tabs = "\t" * depth
    if tag == "mig_devices" and isinstance(value, str):
        return [f"{tabs}<{tag}>", f"{tabs}\t{value}", f"{tabs}</{tag}>"]
    if isinstance(value, str):
        return [f"{tabs}<{tag}>{html.escape(value, quote=False)}</{tag}>"]
    inner = [line for child, item in value for line in _xml(child, item, depth + 1)]
    return [f"{tabs}<{tag}>", *inner, f"{tabs}</{tag}>"]


def _text(tag: str, value: str | Tree, depth: int) -> list[str]:
    indent = "    " * depth
    if isinstance(value, str):
        return [f"{indent + _title(tag):<42}: {value}"]
    if not value:
        return [f"{indent + _title(tag):<42}: None"]
    return [f"{indent}{_title(tag)}", *(line for t, v in value for line in _text(t, v, depth + 1))]


_WORDS = {"gpu": "GPU", "pci": "PCI", "ecc": "ECC", "uuid": "UUID", "mig": "MIG", "sm": "SM", "fb": "FB"}
_WORDS |= {"vbios": "VBIOS", "cuda": "CUDA", "bar1": "BAR1", "dram": "DRAM", "sram": "SRAM", "id": "ID"}


def _title(tag: str) -> str:
    return " ".join(_WORDS.get(word, word.capitalize()) for word in tag.split("_"))
