"""The CPUs: which of them work, at what pace, and how they are grouped."""

from __future__ import annotations

import re
from typing import Any

from clustercheck.probe.programs import listing, read

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"


def cpu(root: str = "") -> dict[str, Any]:
    """CPUs present and online, SMT, NUMA nodes, and the governors of the frequency with how many use each.

    No governors where the kernel does not control the frequency.
    """
    governors: dict[str, int] = {}
    policies = [name for name in listing(f"{root}{CPUS}/cpufreq") if re.match("policy[0-9]+$", name)]
    for name in policies:
        governor = read(f"{root}{CPUS}/cpufreq/{name}/scaling_governor") or ""
        governors[governor] = governors.get(governor, 0) + 1
    driver = read(f"{root}{CPUS}/cpufreq/{policies[0]}/scaling_driver") if policies else None
    nodes = [name for name in listing(root + NODES) if re.match("node[0-9]+$", name)]
    return {
        "present": read(f"{root}{CPUS}/present"),
        "online": read(f"{root}{CPUS}/online"),
        "smt": read(f"{root}{CPUS}/smt/control"),
        "governors": governors,
        "scaling_driver": driver,
        "numa_nodes": {name[4:]: read(f"{root}{NODES}/{name}/cpulist") for name in nodes},
    }
