"""What nvidia-smi prints on a healthy node of the sample: 8 x A100-SXM4-80GB with NVSwitch, driver 580.

The elements are those of captures that NVIDIA publishes (k8s-test-infra, Apache-2.0); values are made up. The
fabric is told as eight H100 tell it: A100 report none, and there would be nothing to judge.
"""

from __future__ import annotations

from collections.abc import Sequence

from clustercheck.samples.links import RDMA, RdmaPort

MODEL = "NVIDIA A100-SXM4-80GB"
DRIVER = "580.95.05"
NA = "N/A"
NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
BUSES = ("07", "0f", "47", "4e", "87", "90", "b7", "bd")


def uuid(node: int, gpu: int) -> str:
    """The identity of a GPU."""
    return f"GPU-{node:08x}-0000-0000-0000-{gpu:012x}"


def smi_xml(node: int, gpus: int = 8, driver: str = DRIVER) -> str:
    """What `nvidia-smi -q -x` prints."""
    entries = "".join(_gpu_xml(node, gpu) for gpu in range(gpus))
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
        f"<timestamp>Fri Nov 20 10:00:00 2026</timestamp><driver_version>{driver}</driver_version>"
        f"<cuda_version>13.0</cuda_version><attached_gpus>{gpus}</attached_gpus>\n{entries}</nvidia_smi_log>\n"
    )


def _leaves(**values: object) -> str:
    return "".join(f"<{name}>{value}</{name}>" for name, value in values.items())


def _gpu_xml(node: int, gpu: int) -> str:
    address = f"00000000:{BUSES[gpu].upper()}:00.0"
    errors = _leaves(
        sram_correctable=0,
        sram_uncorrectable_parity=0,
        sram_uncorrectable_secded=0,
        dram_correctable=0,
        dram_uncorrectable=0,
    )
    remapped = _leaves(
        remapped_row_corr=0, remapped_row_unc=0, remapped_row_pending="No", remapped_row_failure="No"
    )
    reasons = _leaves(
        **{
            f"clocks_event_reason_{name}": "Active" if name == "gpu_idle" else "Not Active"
            for name in (
                "gpu_idle",
                "sw_power_cap",
                "hw_slowdown",
                "hw_thermal_slowdown",
                "hw_power_brake_slowdown",
                "sync_boost",
                "sw_thermal_slowdown",
            )
        }
    )
    link = (
        f"<pcie_gen>{_leaves(max_link_gen=4, current_link_gen=4)}</pcie_gen>"
        f"<link_widths>{_leaves(max_link_width='16x', current_link_width='16x')}</link_widths>"
    )
    clocks = _leaves(graphics_clock="1275 MHz", mem_clock="1593 MHz")
    watts = {"current": 400, "requested": 400, "default": 400, "min": 100, "max": 400}
    return (
        f'<gpu id="{address}">'
        + _leaves(product_name=MODEL, product_architecture="Ampere", persistence_mode="Enabled")
        + f"<mig_mode>{_leaves(current_mig='Disabled', pending_mig='Disabled')}</mig_mode>"
        + _leaves(
            serial=f"16500{node:04d}{gpu:04d}",
            uuid=uuid(node, gpu),
            minor_number=gpu,
            vbios_version="92.00.45.00.03",
        )
        + f"<platformInfo>{_leaves(module_id=gpu + 1)}</platformInfo>"
        + f"<inforom_version>{_leaves(img_version='G506.0210.00.04', oem_object='2.0', ecc_object='6.16')}"
        + f"{_leaves(pwr_object='N/A')}</inforom_version>"
        + _leaves(gpu_recovery_action="None")
        + f"<pci>{_leaves(pci_bus_id=address)}<pci_gpu_link_info>{link}</pci_gpu_link_info>"
        + f"{_leaves(replay_counter=0, replay_rollover_counter=0)}</pci>"
        + f"<clocks_event_reasons>{reasons}</clocks_event_reasons>"
        + f"<utilization>{_leaves(gpu_util='0 %')}</utilization>"
        + f"<fb_memory_usage>{_leaves(total='81920 MiB', used='0 MiB')}</fb_memory_usage>"
        + f"<ecc_mode>{_leaves(current_ecc='Enabled', pending_ecc='Enabled')}</ecc_mode>"
        + f"<ecc_errors><volatile>{errors}</volatile><aggregate>{errors}"
        + f"{_leaves(sram_threshold_exceeded='No')}</aggregate></ecc_errors>"
        + f"<retired_pages>{_leaves(pending_retirement='N/A')}</retired_pages>"
        + f"<remapped_rows>{remapped}</remapped_rows>"
        + f"<gpu_power_readings>{_leaves(**{f'{k}_power_limit': f'{w}.00 W' for k, w in watts.items()})}"
        + f"</gpu_power_readings><applications_clocks>{clocks}</applications_clocks>"
        + f"<default_applications_clocks>{clocks}</default_applications_clocks>"
        + "<fabric>"
        + _leaves(state="Completed", status="Success", cliqueId=0, clusterUuid=NO_CLUSTER)
        + "<health>"
        + _leaves(
            summary=NA,
            bandwidth=NA,
            route_recovery_in_progress=NA,
            route_unhealthy=NA,
            access_timeout_recovery=NA,
            incorrect_configuration=NA,
        )
        + "</health></fabric></gpu>\n"
    )


def replay_counts(gpus: int = 8) -> dict[str, str]:
    """What the PCI Express links have counted, as the probe has it of `nvidia-smi -q -x`."""
    return {f"00000000:{bus.upper()}:00.0": "0" for bus in BUSES[:gpus]}


def nvlink_text(node: int, gpus: int = 8) -> str:
    """What `nvidia-smi nvlink -s` prints."""
    links = "".join(f"\t Link {link}: 25 GB/s\n" for link in range(12))
    return "".join(f"GPU {gpu}: {MODEL} (UUID: {uuid(node, gpu)})\n{links}" for gpu in range(gpus))


def gpu_list_text(node: int, gpus: int = 8) -> str:
    """What `nvidia-smi -L` prints."""
    return "".join(f"GPU {gpu}: {MODEL} (UUID: {uuid(node, gpu)})\n" for gpu in range(gpus))


def nvlink_errors_text(node: int, gpus: int = 8) -> str:
    """What `nvidia-smi nvlink -e` prints."""
    names = ("Replay", "Recovery", "CRC")
    links = "\n".join("".join(f"\t Link {link}: {name} Errors: 0\n" for name in names) for link in range(12))
    return "".join(f"GPU {gpu}: {MODEL} (UUID: {uuid(node, gpu)})\n{links}" for gpu in range(gpus))


def nvlink5_errors_text(links: int, failed: int = 0, on: int = 0) -> str:
    """What it prints below one GPU with NVLink 5; link ``on`` has ``failed`` to recover so often."""
    names = (
        "Malformed packet Errors", "Buffer overrun Errors", "Rx Errors", "Rx remote Errors",
        "Rx General Errors",
        "Local link integrity Errors", "Tx discards", "Link recovery successful events",
        "Link recovery failed events", "Total link recovery events", "Effective Errors", "Symbol Errors",
    )  # fmt: skip
    rates = ["Effective BER: 15e-255", "Symbol BER: 15e-255"]
    corrected = [f"FEC Errors - {bucket}: {0 if bucket else 36_140_749_276}" for bucket in range(16)]
    lines = []
    for link in range(links):
        counts = {name: failed * (link == on and "failed" in name) for name in names}
        told = ["Tx packets: 12345", *(f"{name}: {count}" for name, count in counts.items())]
        lines += [f"\t Link {link}: {one}\n" for one in (*told, *rates, *corrected)]
    return "".join(lines)


def topology_text(gpus: int = 8, ports: Sequence[RdmaPort] = RDMA) -> str:
    """What `nvidia-smi topo -m` prints: the InfiniBand adapters next to as many GPUs each, others far."""
    names, nics = [f"GPU{gpu}" for gpu in range(gpus)], len(ports)
    rails = [number for number, port in enumerate(ports) if not port.ethernet]

    def near(gpu: int, nic: int) -> str:
        return "PXB" if nic == rails[len(rails) * gpu // gpus] else "SYS"

    rows = [
        "\t".join(
            [
                name,
                *(" X " if name == other else "NV12" for other in names),
                *(near(gpu, nic) for nic in range(nics)),
                "0-63",
                "0",
            ]
        )
        for gpu, name in enumerate(names)
    ]
    rows += [
        "\t".join(
            [
                f"NIC{nic}",
                *(near(gpu, nic) for gpu in range(gpus)),
                *(" X " if nic == other else "SYS" for other in range(nics)),
            ]
        )
        for nic in range(nics)
    ]
    head = "\t".join(["", *names, *(f"NIC{nic}" for nic in range(nics)), "CPU Affinity", "NUMA Affinity"])
    legend = [f"  NIC{nic}: {port.name}" for nic, port in enumerate(ports)]
    return "\n".join([head, *rows, "", "Legend:", "", "  X    = Self", "", "NIC Legend:", "", *legend, ""])


def peer_access_text(gpus: int = 8) -> str:
    """What `nvidia-smi topo -p2p` prints where every pair may: of reading, writing and NVLink alike."""
    names = [f"GPU{gpu}" for gpu in range(gpus)]
    rows = [
        "\t".join([f" {name}", *("X" if name == other else "OK" for other in names), ""]) for name in names
    ]
    return "\n".join(["\t".join([" ", *names, ""]), *rows, "", "Legend:", "", "  X    = Self", ""])
