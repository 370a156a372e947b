"""The parts of `nvidia-smi -q` that say what a GPU is and who uses it."""

from __future__ import annotations

import time
from typing import Any

from . import node as nvml
from .words import DEPRECATED, NA, Tree, enabled, pair


def identity(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """What the GPU is: names, serials, versions, modes."""
    model, recent = node.model, node.branch >= 580
    hopper = model["architecture"] not in ("Volta", "Ampere")
    mig = node.mig_mode(gpu)
    mig_mode = (
        pair("mig", mig, node.mig_mode_pending(gpu))
        if model["mig_capable"]
        else [("current_mig", NA), ("pending_mig", NA)]
    )
    return [
        ("product_name", nvml.product(node, gpu)),
        ("product_brand", "NVIDIA"),
        ("product_architecture", model["architecture"]),
        ("display_mode", DEPRECATED if recent else "Enabled"),
        *([("display_attached", "Yes")] if recent else []),
        ("display_active", "Disabled"),
        ("persistence_mode", enabled(node.persistence(gpu))),
        ("addressing_mode", "HMM" if node.flavor == "open" else "None"),
        ("mig_mode", mig_mode),
        ("mig_devices", mig_devices(node, gpu) if mig and node.mig_devices(gpu) else "None"),
        ("accounting_mode", "Disabled"),
        ("accounting_mode_buffer_size", "4000"),
        ("driver_model", [("current_dm", NA), ("pending_dm", NA)]),
        ("serial", gpu["serial"]),
        ("uuid", gpu["uuid"]),
        *([("pdi", "0x" + gpu["uuid"].replace("-", "")[3:19])] if recent else []),
        ("minor_number", str(gpu["minor"])),
        ("vbios_version", nvml.vbios(node, gpu)),
        ("multigpu_board", "No"),
        ("board_id", f"0x{gpu['pci_address'][5:7]}00"),
        ("board_part_number", model["board_part_number"]),
        ("gpu_part_number", model["gpu_part_number"]),
        ("gpu_fru_part_number", NA),
        (
            "platformInfo",
            [
                ("chassis_serial_number", NA),
                ("slot_number", NA),
                ("tray_index", NA),
                ("host_id", NA),
                ("peer_type", NA),
                ("module_id", str(gpu["module_id"])),
                ("gpu_fabric_guid", NA),
            ],
        ),
        (
            "inforom_version",
            [
                ("img_version", model["inforom_image"]),
                ("oem_object", model["inforom_oem"]),
                ("ecc_object", model["inforom_ecc"]),
                ("pwr_object", NA),
            ],
        ),
        ("inforom_bbx_flush", [("latest_timestamp", NA), ("latest_duration", NA)]),
        ("gpu_operation_mode", [("current_gom", NA), ("pending_gom", NA)]),
        ("c2c_mode", "Disabled" if hopper else NA),
        (
            "gpu_virtualization_mode",
            [("virtualization_mode", "None"), ("host_vgpu_mode", NA), ("vgpu_heterogeneous_mode", NA)],
        ),
        *(
            []
            if recent
            else [
                (
                    "gpu_reset_status",
                    [("reset_required", DEPRECATED), ("drain_and_reset_recommended", DEPRECATED)],
                )
            ]
        ),
        ("gpu_recovery_action", gpu["recovery_action"]),
        ("gsp_firmware_version", node.driver_version),
        ("ibmnpu", [("relaxed_ordering_mode", NA)]),
    ]


def pci(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Its place and link on the PCI bus."""
    model, link = node.model, gpu["pcie"]
    domain, bus, rest = gpu["pci_address"].split(":")
    return [
        ("pci_bus", bus.upper()),
        ("pci_device", rest.split(".")[0].upper()),
        ("pci_domain", domain),
        ("pci_base_class", "3"),
        ("pci_sub_class", "2"),
        ("pci_device_id", f"{model['device_id'].upper()}10DE"),
        ("pci_bus_id", nvml.bus_id(gpu)),
        ("pci_sub_system_id", f"{model['subsystem_id'].upper()}10DE"),
        (
            "pci_gpu_link_info",
            [
                (
                    "pcie_gen",
                    [
                        ("max_link_gen", str(model["pcie_gen_max"])),
                        ("current_link_gen", str(link["gen"])),
                        ("device_current_link_gen", str(link["gen"])),
                        ("max_device_link_gen", str(model["pcie_gen_max"])),
                        ("max_host_link_gen", NA),
                    ],
                ),
                (
                    "link_widths",
                    [
                        ("max_link_width", f"{model['pcie_width_max']}x"),
                        ("current_link_width", f"{link['width']}x"),
                    ],
                ),
            ],
        ),
        ("pci_bridge_chip", [("bridge_chip_type", NA), ("bridge_chip_fw", NA)]),
        ("replay_counter", str(link["replay_counter"] + _counted_since(link))),
        ("replay_rollover_counter", str(link["replay_rollover_counter"])),
        ("tx_util", "350 KB/s"),
        ("rx_util", "300 KB/s"),
        ("atomic_caps_outbound", NA),
        ("atomic_caps_inbound", NA),
    ]


def _counted_since(link: dict[str, Any]) -> int:
    begun = link.get("counting_since")
    return 0 if begun is None else max(0, int(5 * (time.time() - begun)))


def memory(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Memory, utilization and the encoders."""
    model, used = node.model, node.used_mib(gpu)
    free = model["memory_mib"] - model["memory_reserved_mib"] - used
    busy = gpu["utilization_percent"]
    idle_stats: Tree = [("session_count", "0"), ("average_fps", "0"), ("average_latency", "0")]
    return [
        (
            "fb_memory_usage",
            [
                ("total", f"{model['memory_mib']} MiB"),
                ("reserved", f"{model['memory_reserved_mib']} MiB"),
                ("used", f"{used} MiB"),
                ("free", f"{free} MiB"),
            ],
        ),
        (
            "bar1_memory_usage",
            [
                ("total", f"{model['bar1_mib']} MiB"),
                ("used", "1 MiB"),
                ("free", f"{model['bar1_mib'] - 1} MiB"),
            ],
        ),
        ("cc_protected_memory_usage", [("total", "0 MiB"), ("used", "0 MiB"), ("free", "0 MiB")]),
        ("compute_mode", "Default"),
        (
            "utilization",
            [
                ("gpu_util", f"{busy} %"),
                ("memory_util", f"{busy // 2} %"),
                ("encoder_util", "0 %"),
                ("decoder_util", "0 %"),
                ("jpeg_util", "0 %"),
                ("ofa_util", "0 %"),
            ],
        ),
        ("encoder_stats", idle_stats),
        ("fbc_stats", idle_stats),
        ("dram_encryption_mode", [("current_dram_encryption", NA), ("pending_dram_encryption", NA)]),
    ]


def processes(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Processes that hold it."""
    return [
        (
            "process_info",
            [
                ("gpu_instance_id", NA),
                ("compute_instance_id", NA),
                ("pid", str(process["pid"])),
                ("type", process["type"]),
                ("process_name", process["name"]),
                ("used_memory", f"{process['used_memory_mib']} MiB"),
            ],
        )
        for process in node.processes(gpu)
    ]


def mig_devices(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """Its MIG instances."""
    return [
        (
            "mig_device",
            [
                ("index", str(index)),
                ("gpu_instance_id", str(instance["gi_id"])),
                ("compute_instance_id", "0"),
                (
                    "device_attributes",
                    [("shared", [("multiprocessor_count", str(instance["multiprocessors"]))])],
                ),
                (
                    "fb_memory_usage",
                    [
                        ("total", f"{instance['memory_mib']} MiB"),
                        ("reserved", "0 MiB"),
                        ("used", "0 MiB"),
                        ("free", f"{instance['memory_mib']} MiB"),
                    ],
                ),
            ],
        )
        for index, instance in enumerate(node.mig_devices(gpu))
    ]


def fabric(node: nvml.Node, gpu: dict[str, Any]) -> Tree:
    """How far Fabric Manager got with a GPU."""
    state = node.fabric_state(gpu)
    joined = state == "Completed"
    health = ["bandwidth", "route_recovery_in_progress", "route_unhealthy", "access_timeout_recovery"]
    if node.branch >= 580:
        health = ["summary", *health, "incorrect_configuration"]
    return [
        ("state", state),
        ("status", "Success" if joined else NA),
        ("cliqueId", "0" if joined else NA),
        ("clusterUuid", "00000000-0000-0000-0000-000000000000" if joined else NA),
        ("health", [(name, NA) for name in health]),
    ]
