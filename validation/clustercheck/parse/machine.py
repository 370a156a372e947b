"""What kind of machine a node is.

A check of hardware or firmware asks `virtual`: neither a container nor a virtual machine has its own.
What depends on the kernel, as its log does, asks `in_container`: a virtual machine has its own kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.parse.reading import CannotReadError, first_line, program_output

# What systemd-detect-virt calls containers, of those that may be a node: they share another machine's kernel.
CONTAINERS = ("docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "openvz", "container-other")


def virtual(record: Any) -> str:
    """What a node is inside of (docker, kvm, ...), an empty string for a machine of its own.

    Raises CannotReadError if systemd-detect-virt did not answer.
    """
    if isinstance(record, Mapping) and record.get("rc") == 1:
        record = {**record, "rc": 0}  # how it ends where it says "none"
    answer = first_line(program_output(record, "systemd-detect-virt"))
    if not answer.replace("-", "").isalnum():
        raise CannotReadError(f"systemd-detect-virt says {answer[:40]!r}")
    return "" if answer == "none" else answer


def in_container(record: Any) -> bool:
    """Whether the node's kernel, with its log, is that of a machine around it; False if unknown."""
    try:
        return virtual(record) in CONTAINERS
    except CannotReadError:
        return False
