"""The parts of `nvidia-smi -q` that say how a GPU is: errors, heat, power, clocks."""

from __future__ import annotations

from typing import Any

from . import node as nvml
from .words import NA, Tree, yes

REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "display_clocks_setting",
)
# What counts the time of which reason.
REASON_COUNTERS = {
    "sw_power_cap": "sw_power_cap",
    "sync_boost": "sync_boost",
    "sw_therm_slowdown": "sw_thermal_slowdown",
    "hw_therm_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
}


def clock_reasons(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Why clocks are what they are."""
    active = set(gpu["clock_reasons"])
    reasons: Tree = [
        (f"clocks_event_reason_{name}", "Active" if name in active else "Not Active") for name in REASONS
    ]
    tree: Tree = [("clocks_event_reasons", reasons)]
    if node.branch >= 580:
        counters: Tree = [
            (f"clocks_event_reasons_counters_{name}", "1843200 us" if reason in active else "0 us")
            for name, reason in REASON_COUNTERS.items()
        ]
        tree.append(("clocks_event_reasons_counters", counters))
    hopper = node.model["architecture"] not in ("Volta", "Ampere")
    return [*tree, ("sparse_operation_mode", "Disabled" if hopper else NA)]


def ecc(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """ECC counters."""
    ecc = gpu["ecc"]
    volatile: Tree = [(name, str(count)) for name, count in ecc["volatile"].items()]
    aggregate: Tree = [(name, str(count)) for name, count in ecc["aggregate"].items()]
    aggregate.append(("sram_threshold_exceeded", yes(ecc["sram_threshold_exceeded"])))
    sources: Tree = [(f"sram_{name}", str(count)) for name, count in ecc["sram_sources"].items()]
    tree: Tree = [
        ("volatile", volatile),
        ("aggregate", aggregate),
        ("aggregate_uncorrectable_sram_sources", sources),
    ]
    if node.branch >= 580:
        tree += [("channel_repair_pending", "No"), ("tpc_repair_pending", "No")]
    return tree


def retired(gpu: dict[str, Any]) -> Tree:
    """Retired pages; N/A where rows are remapped instead."""
    pages = gpu["retired_pages"]
    known = pages["supported"]

    def counted(count: int) -> Tree:
        return [("retired_count", str(count) if known else NA), ("retired_pagelist", NA)]

    pending = yes(pages["pending"]) if known else NA
    return [
        ("multiple_single_bit_retirement", counted(pages["single_bit"])),
        ("double_bit_retirement", counted(pages["double_bit"])),
        ("pending_blacklist", pending),
        ("pending_retirement", pending),
    ]


def remapped(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Remapped rows and what is left of the spare ones."""
    rows = gpu["remapped_rows"]
    worn = {name: rows[f"banks_{name}"] for name in ("high", "partial", "low", "none")}
    healthy = node.model["remap_banks"] - sum(worn.values())
    return [
        ("remapped_row_corr", str(rows["correctable"])),
        ("remapped_row_unc", str(rows["uncorrectable"])),
        ("remapped_row_pending", yes(rows["pending"])),
        ("remapped_row_failure", yes(rows["failure"])),
        (
            "row_remapper_histogram",
            [
                ("row_remapper_histogram_max", f"{healthy} bank(s)"),
                *((f"row_remapper_histogram_{name}", f"{count} bank(s)") for name, count in worn.items()),
            ],
        ),
    ]


def temperature(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Temperatures, with thresholds in the way of the architecture."""
    model, now = node.model, gpu["temperature_c"]
    if model["architecture"] in ("Volta", "Ampere"):
        return [
            ("gpu_temp", f"{now} C"),
            ("gpu_temp_tlimit", NA),
            ("gpu_temp_max_threshold", f"{model['shutdown_temperature_c']} C"),
            ("gpu_temp_slow_threshold", f"{model['slowdown_temperature_c']} C"),
            ("gpu_temp_max_gpu_threshold", f"{model['max_operating_temperature_c']} C"),
            ("gpu_target_temperature", NA),
            ("memory_temp", f"{gpu['memory_temperature_c']} C"),
            ("gpu_temp_max_mem_threshold", f"{model['max_memory_temperature_c']} C"),
        ]
    # From Hopper on, thresholds are distances to the operating limit.
    limit = model["max_operating_temperature_c"]
    return [
        ("gpu_temp", f"{now} C"),
        ("gpu_temp_tlimit", f"{limit - now} C"),
        ("gpu_temp_max_tlimit_threshold", f"{limit - model['shutdown_temperature_c']} C"),
        ("gpu_temp_slow_tlimit_threshold", f"{limit - model['slowdown_temperature_c']} C"),
        ("gpu_temp_max_gpu_tlimit_threshold", "0 C"),
        ("gpu_target_temperature", NA),
        ("memory_temp", f"{gpu['memory_temperature_c']} C"),
        ("gpu_temp_max_mem_tlimit_threshold", "0 C"),
    ]


def power(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Power draw and limits."""
    model = node.model
    hopper = model["architecture"] not in ("Volta", "Ampere")
    draw = f"{gpu['power_draw_w']:.2f} W"
    limits = ("current_power_limit", "requested_power_limit", "default_power_limit")
    module: Tree = [("power_state", "P0"), ("average_power_draw", NA), ("instant_power_draw", NA)]
    module += [(name, NA) for name in (*limits, "min_power_limit", "max_power_limit")]
    return [
        (
            "gpu_power_readings",
            [
                ("power_state", "P0"),
                ("average_power_draw", draw if hopper else NA),
                ("instant_power_draw", draw),
                ("current_power_limit", f"{gpu['power_limit_w']:.2f} W"),
                ("requested_power_limit", f"{gpu['power_limit_w']:.2f} W"),
                ("default_power_limit", f"{model['power_limit_w']:.2f} W"),
                ("min_power_limit", f"{model['power_limit_min_w']:.2f} W"),
                ("max_power_limit", f"{model['power_limit_max_w']:.2f} W"),
            ],
        ),
        (
            "gpu_memory_power_readings",
            [("average_power_draw", "32.98 W" if hopper else NA), ("instant_power_draw", NA)],
        ),
        ("module_power_readings", module),
        ("power_smoothing", NA),
        (
            "power_profiles",
            [("power_profile_requested_profiles", NA), ("power_profile_enforced_profiles", NA)],
        ),
    ]


def clocks(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Clocks now, set and possible."""
    model = node.model
    memory = ("mem_clock", f"{model['max_clocks']['memory_mhz']} MHz")
    default: Tree = [("graphics_clock", f"{model['default_graphics_mhz']} MHz"), memory]
    set_mhz = gpu.get("application_graphics_mhz") or model["default_graphics_mhz"]
    tree: Tree = [
        ("clocks", _clock_tree(gpu["clocks"])),
        ("applications_clocks", [("graphics_clock", f"{set_mhz} MHz"), memory]),
        ("default_applications_clocks", default),
        ("deferred_clocks", [("mem_clock", NA)]),
        ("max_clocks", _clock_tree(model["max_clocks"])),
        (
            "max_customer_boost_clocks",
            [("graphics_clock", f"{model['max_clocks']['graphics_mhz']} MHz")],
        ),
        ("clock_policy", [("auto_boost", NA), ("auto_boost_default", NA)]),
    ]
    return tree if node.branch >= 580 else [*tree, ("voltage", [("graphics_volt", NA)])]


def _clock_tree(clocks: dict[str, int]) -> Tree:
    return [
        ("graphics_clock", f"{clocks['graphics_mhz']} MHz"),
        ("sm_clock", f"{clocks['sm_mhz']} MHz"),
        ("mem_clock", f"{clocks['memory_mhz']} MHz"),
        ("video_clock", f"{clocks['video_mhz']} MHz"),
    ]


def supported_clocks(node: nvml.Node) -> Tree:
    """The clocks that can be asked for."""
    model = node.model
    steps = range(model["max_clocks"]["graphics_mhz"], model["min_graphics_mhz"] - 1, -15)
    return [
        (
            "supported_mem_clock",
            [("value", f"{memory} MHz"), *(("supported_graphics_clock", f"{mhz} MHz") for mhz in steps)],
        )
        for memory in model["memory_clocks_mhz"]
    ]
