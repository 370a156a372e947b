"""The healthy host of the sample: what the probe finds besides GPUs, links and containers.

Made up after a server of two sockets with four NUMA nodes, in the words of the kernel's files.
"""

from __future__ import annotations

from typing import Any

from clustercheck.spec import Mount

MOUNTS = (Mount("/data", "nfs", "trainer", measure=True), Mount("/scratch", "xfs", measure=True))


def host_parts() -> dict[str, Any]:
    """These parts of a healthy node's record."""
    return {
        "virtual": {
            "argv": [],
            "rc": 1,
            "stdout": "none\n",
            "stderr": "",
            "timed_out": False,
            "missing": False,
        },
        "firmware": {
            "bios_vendor": "American Megatrends Inc.",
            "bios_version": "1.3.8",
            "bios_date": "03/14/2026",
            "ec_firmware_release": "0.34",
            "sys_vendor": "Maker",
            "product_name": "GPU server 8",
            "board_vendor": "Maker",
            "board_name": "Board 8",
            "board_version": "2.0",
            "cpu_model": "AMD EPYC 7742 64-Core Processor",
            "microcode": "0x830107c",
        },
        "cpu": {
            "present": "0-255",
            "online": "0-255",
            "smt": "on",
            "governors": {"performance": 256},
            "scaling_driver": "acpi-cpufreq",
            "numa_nodes": {"0": "0-63,128-191", "1": "64-127,192-255"},
        },
        "limits": {
            "log-in": {"memlock": [-1, -1], "nofile": [1024, 1048576], "core": [0, -1]},
            "may_lock": True,
            "containers": {"memlock": [-1, -1], "nofile": [1048576, 1048576], "core": [-1, -1]},
        },
        "huge_pages": {
            "transparent": {"enabled": "madvise", "defrag": "madvise"},
            "reserved": {"hugepages-2048kB": 0, "hugepages-1048576kB": 0},
        },
        "memory_errors": [
            {"controller": f"mc{number}", "kind": "F17h", "uncorrectable": 0, "correctable": 0}
            for number in range(2)
        ],
        "pcie": _pcie(),
        "device_links": [
            {"path": f"/dev/nvidia{name}", "link": f"/dev/char/195:{number}", "there": True}
            for name, number in (*((str(gpu), gpu) for gpu in range(8)), ("ctl", 255))
        ],
        "mounts": [
            {
                "path": path,
                "mounted": {"type": kind, "source": source},
                "touched": {"rc": 0, "stdout": "", "stderr": "", "timed_out": False, "missing": False},
            }
            for path, kind, source in (("/data", "nfs4", "nas:/data"), ("/scratch", "xfs", "/dev/nvme0n1"))
        ],
    }


def _pcie() -> dict[str, Any]:
    """Two GPUs at ports of a switch, which is at a root port with ACS, as a kernel with an IOMMU sets it."""
    ports = [("0000:00:01.1", "root", 0x1D), ("0000:01:00.0", "upstream", None)]
    ports += [(f"0000:02:0{number}.0", "downstream", 0) for number in range(2)]
    return {
        "architecture": "x86_64",
        "as_root": True,
        "devices": [
            {
                "address": f"0000:{bus}:00.0",
                "bridges": ["0000:00:01.1", "0000:01:00.0", f"0000:02:0{number}.0"],
                "iommu": "identity",
            }
            for number, bus in enumerate(("07", "0f"))
        ],
        "bridges": [
            {"address": address, "port": port, "acs": acs, "read_bytes": 4096} for address, port, acs in ports
        ],
        "iommus": ["ivhd0"],
        "command_line": "quiet amd_iommu=on iommu=pt",
    }
