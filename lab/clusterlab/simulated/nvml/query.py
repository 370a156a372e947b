"""`nvidia-smi --query-gpu`, `--query-compute-apps` and their relatives: fields and CSV."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from . import node as nvml
from .health import REASONS

NA = "[N/A]"
Value = Callable[[nvml.Node, dict[str, Any]], str]


def gpu_fields() -> dict[str, tuple[Value, str]]:
    """Fields of --query-gpu: how to read each, and its unit ("" when it has none)."""
    fields: dict[str, tuple[Value, str]] = {
        "timestamp": (lambda n, g: time.strftime("%Y/%m/%d %H:%M:%S.000"), ""),
        "simulated": (lambda n, g: "true", ""),
        "driver_version": (lambda n, g: n.driver_version, ""),
        "vgpu_driver_capability.heterogenous_multivGPU": (lambda n, g: NA, ""),
        "count": (lambda n, g: str(len(n.gpus)), ""),
        "name": (nvml.product, ""),
        "serial": (lambda n, g: g["serial"], ""),
        "uuid": (lambda n, g: g["uuid"], ""),
        "index": (lambda n, g: str(g["index"]), ""),
        "module_id": (lambda n, g: str(g["module_id"]), ""),
        "vbios_version": (nvml.vbios, ""),
        "compute_cap": (lambda n, g: n.model["compute_capability"], ""),
        "compute_mode": (lambda n, g: "Default", ""),
        "display_attached": (lambda n, g: "Yes", ""),
        "display_active": (lambda n, g: "Disabled", ""),
        "display_mode": (lambda n, g: "Requested functionality has been deprecated", ""),
        "persistence_mode": (lambda n, g: _enabled(n.persistence(g)), ""),
        "accounting.mode": (lambda n, g: "Disabled", ""),
        "accounting.buffer_size": (lambda n, g: "4000", ""),
        "addressing_mode": (lambda n, g: "HMM" if n.flavor == "open" else "None", ""),
        "fan.speed": (lambda n, g: NA, " %"),
        "pstate": (lambda n, g: "P0", ""),
        "gpu_recovery_action": (lambda n, g: g["recovery_action"], ""),
        "gsp.mode.current": (lambda n, g: "Enabled", ""),
        "gsp.mode.default": (lambda n, g: "Enabled", ""),
        "mig.mode.current": (_mig_mode, ""),
        "mig.mode.pending": (_mig_mode_pending, ""),
        "fabric.state": (lambda n, g: n.fabric_state(g), ""),
        "fabric.status": (lambda n, g: "Success" if n.fabric_state(g) == "Completed" else "N/A", ""),
        "inforom.img": (lambda n, g: n.model["inforom_image"], ""),
        "inforom.oem": (lambda n, g: n.model["inforom_oem"], ""),
        "inforom.ecc": (lambda n, g: n.model["inforom_ecc"], ""),
        "inforom.pwr": (lambda n, g: NA, ""),
        "utilization.gpu": (lambda n, g: str(g["utilization_percent"]), " %"),
        "utilization.memory": (lambda n, g: str(g["utilization_percent"] // 2), " %"),
        "temperature.gpu": (lambda n, g: str(g["temperature_c"]), ""),
        "temperature.memory": (lambda n, g: str(g["memory_temperature_c"]), ""),
        "temperature.gpu.tlimit": (_tlimit, ""),
        "protected_memory.total": (lambda n, g: "0", " MiB"),
    }
    return fields | _pci() | _memory() | _power_and_clocks() | _errors() | _reasons()


def compute_app_fields() -> dict[str, tuple[Callable[[nvml.Node, dict[str, Any], dict[str, Any]], str], str]]:
    """Fields of --query-compute-apps."""
    return {
        "timestamp": (lambda n, g, p: time.strftime("%Y/%m/%d %H:%M:%S.000"), ""),
        "gpu_name": (lambda n, g, p: nvml.product(n, g), ""),
        "gpu_bus_id": (lambda n, g, p: nvml.bus_id(g), ""),
        "gpu_serial": (lambda n, g, p: g["serial"], ""),
        "gpu_uuid": (lambda n, g, p: g["uuid"], ""),
        "pid": (lambda n, g, p: str(p["pid"]), ""),
        "process_name": (lambda n, g, p: p["name"], ""),
        "name": (lambda n, g, p: p["name"], ""),
        "used_gpu_memory": (lambda n, g, p: str(p["used_memory_mib"]), " MiB"),
        "used_memory": (lambda n, g, p: str(p["used_memory_mib"]), " MiB"),
    }


# Older names of the same fields, which later drivers still answer to.
ALIASES = {
    "gpu_name": "name",
    "gpu_serial": "serial",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "fan_speed": "fan.speed",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.applications.gr": "clocks.applications.graphics",
    "clocks.applications.mem": "clocks.applications.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "pcie.link.gen.gpumax": "pcie.link.gen.max",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
}
# What the header prints for an alias or a field whose printed name differs from the asked one.
PRINTED = {
    "gpu_name": "name",
    "gpu_serial": "serial",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
}


def gpus_csv(node: nvml.Node, gpus: list[dict[str, Any]], names: list[str], options: set[str]) -> str:
    """The table of --query-gpu; raises NvmlError with exit code 2 for a field that there is not."""
    known = gpu_fields()
    fields = [_resolve(name, known) for name in names]
    rows = [
        [_with_unit(known[field][0](node, gpu), known[field][1], options) for field in fields] for gpu in gpus
    ]
    heads = [PRINTED.get(name, name) for name in names]
    return _csv(heads, [known[field][1] for field in fields], rows, options)


def compute_apps_csv(node: nvml.Node, gpus: list[dict[str, Any]], names: list[str], options: set[str]) -> str:
    """The table of --query-compute-apps."""
    known = compute_app_fields()
    for name in names:
        if name not in known:
            raise unknown_field(name)
    rows = [
        [_with_unit(known[name][0](node, gpu, process), known[name][1], options) for name in names]
        for gpu in gpus
        for process in node.processes(gpu)
    ]
    heads = ["used_gpu_memory" if name == "used_memory" else name for name in names]
    return _csv(heads, [known[name][1] for name in names], rows, options)


def unknown_field(name: str) -> nvml.NvmlError:
    """The error for a field that the driver does not know."""
    return nvml.NvmlError(f'Field "{name}" is not a valid field to query.\n', 2)


def _resolve(name: str, known: dict[str, tuple[Value, str]]) -> str:
    field = ALIASES.get(name, name).replace("clocks_throttle_reasons", "clocks_event_reasons")
    if field not in known:
        raise unknown_field(name)
    return field


def _csv(heads: list[str], units: list[str], rows: list[list[str]], options: set[str]) -> str:
    lines = [", ".join(row) for row in rows]
    if "noheader" not in options:
        pairs = zip(heads, units, strict=True)
        lines.insert(0, ", ".join(f"{head} [{unit.strip()}]" if unit else head for head, unit in pairs))
    return "".join(f"{line}\n" for line in lines)


def _with_unit(value: str, unit: str, options: set[str]) -> str:
    return value if not unit or value == NA or "nounits" in options else value + unit


def _enabled(value: bool) -> str:
    return "Enabled" if value else "Disabled"


def _mig_mode(node: nvml.Node, gpu: dict[str, Any]) -> str:
    return _enabled(node.mig_mode(gpu)) if node.model["mig_capable"] else NA


def _mig_mode_pending(node: nvml.Node, gpu: dict[str, Any]) -> str:
    return _enabled(node.mig_mode_pending(gpu)) if node.model["mig_capable"] else NA


def _tlimit(node: nvml.Node, gpu: dict[str, Any]) -> str:
    if node.model["architecture"] in ("Volta", "Ampere"):
        return NA
    return str(node.model["max_operating_temperature_c"] - gpu["temperature_c"])


def _pci() -> dict[str, tuple[Value, str]]:
    return {
        "pci.bus_id": (lambda n, g: nvml.bus_id(g), ""),
        "pci.domain": (lambda n, g: f"0x{g['pci_address'][:4].upper()}", ""),
        "pci.bus": (lambda n, g: f"0x{g['pci_address'][5:7].upper()}", ""),
        "pci.device": (lambda n, g: f"0x{g['pci_address'][8:10].upper()}", ""),
        "pci.device_id": (lambda n, g: f"0x{n.model['device_id'].upper()}10DE", ""),
        "pci.sub_device_id": (lambda n, g: f"0x{n.model['subsystem_id'].upper()}10DE", ""),
        "pcie.link.gen.current": (lambda n, g: str(g["pcie"]["gen"]), ""),
        "pcie.link.gen.max": (lambda n, g: str(n.model["pcie_gen_max"]), ""),
        "pcie.link.gen.hostmax": (lambda n, g: NA, ""),
        "pcie.link.width.current": (lambda n, g: str(g["pcie"]["width"]), ""),
        "pcie.link.width.max": (lambda n, g: str(n.model["pcie_width_max"]), ""),
    }


def _memory() -> dict[str, tuple[Value, str]]:
    def free(node: nvml.Node, gpu: dict[str, Any]) -> str:
        model = node.model
        return str(model["memory_mib"] - model["memory_reserved_mib"] - node.used_mib(gpu))

    return {
        "memory.total": (lambda n, g: str(n.model["memory_mib"]), " MiB"),
        "memory.reserved": (lambda n, g: str(n.model["memory_reserved_mib"]), " MiB"),
        "memory.used": (lambda n, g: str(n.used_mib(g)), " MiB"),
        "memory.free": (free, " MiB"),
    }


def _power_and_clocks() -> dict[str, tuple[Value, str]]:
    def watts(key: str) -> Value:
        return lambda n, g: f"{n.model[key]:.2f}"

    fields: dict[str, tuple[Value, str]] = {
        "power.management": (lambda n, g: "Enabled", ""),
        "power.draw": (lambda n, g: f"{g['power_draw_w']:.2f}", " W"),
        "power.draw.average": (lambda n, g: f"{g['power_draw_w']:.2f}", " W"),
        "power.draw.instant": (lambda n, g: f"{g['power_draw_w']:.2f}", " W"),
        "power.limit": (lambda n, g: f"{g['power_limit_w']:.2f}", " W"),
        "enforced.power.limit": (lambda n, g: f"{g['power_limit_w']:.2f}", " W"),
        "power.default_limit": (watts("power_limit_w"), " W"),
        "power.min_limit": (watts("power_limit_min_w"), " W"),
        "power.max_limit": (watts("power_limit_max_w"), " W"),
        "clocks.applications.graphics": (
            lambda n, g: str(g.get("application_graphics_mhz") or n.model["default_graphics_mhz"]),
            " MHz",
        ),
        "clocks.applications.memory": (lambda n, g: str(n.model["max_clocks"]["memory_mhz"]), " MHz"),
        "clocks.default_applications.graphics": (lambda n, g: str(n.model["default_graphics_mhz"]), " MHz"),
        "clocks.default_applications.memory": (lambda n, g: str(n.model["max_clocks"]["memory_mhz"]), " MHz"),
    }
    for name in ("graphics", "sm", "memory", "video"):
        fields[f"clocks.current.{name}"] = (_clock("clocks", name, of_model=False), " MHz")
        fields[f"clocks.max.{name}"] = (_clock("max_clocks", name, of_model=True), " MHz")
    return fields


def _clock(key: str, name: str, *, of_model: bool) -> Value:
    if of_model:
        return lambda n, g: str(n.model[key][f"{name}_mhz"])
    return lambda n, g: str(g[key][f"{name}_mhz"])


def _errors() -> dict[str, tuple[Value, str]]:
    fields: dict[str, tuple[Value, str]] = {
        "ecc.mode.current": (lambda n, g: _enabled(g["ecc"]["enabled"]), ""),
        "ecc.mode.pending": (lambda n, g: _enabled(g["ecc"]["pending_enabled"]), ""),
        "retired_pages.single_bit_ecc.count": (lambda n, g: _retired(g, "single_bit"), ""),
        "retired_pages.double_bit.count": (lambda n, g: _retired(g, "double_bit"), ""),
        "retired_pages.pending": (
            lambda n, g: (
                ("Yes" if g["retired_pages"]["pending"] else "No") if g["retired_pages"]["supported"] else NA
            ),
            "",
        ),
        "remapped_rows.correctable": (lambda n, g: str(g["remapped_rows"]["correctable"]), ""),
        "remapped_rows.uncorrectable": (lambda n, g: str(g["remapped_rows"]["uncorrectable"]), ""),
        "remapped_rows.pending": (lambda n, g: str(int(g["remapped_rows"]["pending"])), ""),
        "remapped_rows.failure": (lambda n, g: str(int(g["remapped_rows"]["failure"])), ""),
    }
    for life in ("volatile", "aggregate"):
        for kind in ("corrected", "uncorrected"):
            for memory in ("dram", "sram", "device_memory"):
                name = f"ecc.errors.{kind}.{life}.{memory}"
                fields[name] = (_ecc_count(life, kind, memory.replace("device_memory", "dram")), "")
            fields[f"ecc.errors.{kind}.{life}.total"] = (_ecc_count(life, kind, ""), "")
    return fields


def _ecc_count(life: str, kind: str, memory: str) -> Value:
    def read(_node: nvml.Node, gpu: dict[str, Any]) -> str:
        word = "uncorrectable" if kind == "uncorrected" else "_correctable"
        counters = gpu["ecc"][life]
        return str(sum(n for name, n in counters.items() if name.startswith(memory) and word in name))

    return read


def _retired(gpu: dict[str, Any], kind: str) -> str:
    return str(gpu["retired_pages"][kind]) if gpu["retired_pages"]["supported"] else NA


def _reasons() -> dict[str, tuple[Value, str]]:
    bits = dict(zip(REASONS, (0x1, 0x2, 0x4, 0x8, 0x40, 0x80, 0x10, 0x20, 0x100), strict=True))

    def mask(_node: nvml.Node, gpu: dict[str, Any]) -> str:
        return f"0x{sum(bits[name] for name in gpu['clock_reasons']):016X}"

    fields: dict[str, tuple[Value, str]] = {
        "clocks_event_reasons.supported": (lambda n, g: "0x00000000000001FF", ""),
        "clocks_event_reasons.active": (mask, ""),
    }
    for name in REASONS:
        if name != "display_clocks_setting":
            fields[f"clocks_event_reasons.{name}"] = (_reason(name), "")
    return fields


def _reason(name: str) -> Value:
    return lambda n, g: "Active" if name in g["clock_reasons"] else "Not Active"
