"""Names: what each thing of a lab is called, so that two clones on one machine do not meet."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

LABEL_LAB = "clusterlab.lab"
LABEL_NODE = "clusterlab.node"
# Names the container that an image is made of, before the process that makes it. Not a label: a committed
# image, and all that runs of it, would inherit that.
BUILD_PREFIX = "clusterlab-build-"
DEPOT = "depot"
# A file system of each node that the settings declare, as a site declares the share of its data.
SCRATCH = "/scratch"
MOST_GPU_NODES = 99

_NODE = re.compile(r"^(gpu|registry)(\d{2})$")


@dataclass(frozen=True)
class Names:
    """The names of one lab. ``suffix`` is made from the lab directory's path: eight hexadecimal digits."""

    suffix: str

    @classmethod
    def of(cls, directory: Path) -> Names:
        """The names for the lab of that directory, on disk or not."""
        return cls(hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:8])

    @property
    def network(self) -> str:
        """The Docker network."""
        return f"clusterlab-{self.suffix}"

    @property
    def bridge(self) -> str:
        """The network interface on this machine; the kernel allows 15 characters."""
        return f"clab-{self.suffix}"

    def container(self, node: str) -> str:
        """The container of a node or of the depot."""
        return f"clusterlab-{self.suffix}-{node}"

    def volume(self, node: str) -> str:
        """The volume that holds the node's /var/lib/docker."""
        return f"clusterlab-{self.suffix}-{node}-docker"


def gpu_node(number: int) -> str:
    """``gpu01`` for 1. Raises ValueError outside 1 to 99."""
    if not 1 <= number <= MOST_GPU_NODES:
        raise ValueError(f"GPU nodes are numbered 1 to {MOST_GPU_NODES}, not {number}")
    return f"gpu{number:02d}"


def registry_node() -> str:
    """The one registry host."""
    return "registry01"


def host_number(node: str) -> int:
    """The last octet of a node's address: depot 2, registry01 5, gpu01 11, gpu02 12, ...

    Raises ValueError for a name that is not a lab host's.
    """
    if node == DEPOT:
        return 2
    match = _NODE.match(node)
    if match is None or int(match[2]) == 0:
        raise ValueError(f"{node!r} is not a lab host's name")
    return (10 if match[1] == "gpu" else 4) + int(match[2])
