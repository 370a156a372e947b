"""What the operator declared: nodes, their settings, and what is excluded by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property

from clustercheck.model import Subject

EVERYWHERE = "all"  # Ansible's own group of every host: no host has this name


@dataclass(frozen=True)
class Exclusion:
    """One check on one node, or one GPU of it; ``until`` is the last day. EVERYWHERE is every subject."""

    check: str
    node: str
    who: str
    why: str
    until: date
    gpu: int | None = None

    def covers(self, check: str, subject: Subject) -> bool:
        """Whether it is of this check and subject; of a pair, either node counts."""
        if check != self.check or (self.gpu is not None and self.gpu != subject.gpu):
            return False
        return self.node == EVERYWHERE or self.node in (subject.node, subject.peer)

    @property
    def place(self) -> str:
        """The check and where, as a sentence names it."""
        where = "every subject" if self.node == EVERYWHERE else self.node
        return f"{self.check} on {where}" + (f" GPU {self.gpu}" if self.gpu is not None else "")

    @property
    def reason(self) -> str:
        """What stands in the report."""
        return f"excluded by {self.who} until {self.until}: {self.why}"

    @property
    def lapsed(self) -> str:
        """What is said when its time is over."""
        return f"the exclusion of {self.place} ended with {self.until}: it counts again"


@dataclass(frozen=True)
class Mount:
    """A file system that must be there: of this type, and writable to this user, where they are named.

    ``measure``: whether jobs may write to it, to measure it.
    """

    path: str
    type: str = ""
    user: str = ""
    measure: bool = False


@dataclass(frozen=True)
class NodeSettings:
    """What the settings ask of a node, where hosts may differ. ``image``, ``framework`` as in ClusterSpec.

    ``strict``: what is a warning elsewhere fails there. ``environment`` are variables of every rank.
    ``holders_ignored`` hold GPUs and are not jobs.
    """

    driver_version: str = ""
    driver_branch: str = ""
    image: str = ""
    container_gpu_arguments: tuple[str, ...] = ("--gpus", "all")
    mounts: tuple[Mount, ...] = ()
    framework: str = "paddle"
    strict: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    holders_ignored: tuple[str, ...] = ()


MIG_DISABLED = "disabled"
MIG_ENABLED = "enabled"  # without an instance
MIG_FILL = "all-"  # as many instances of one profile as fit
_MIG_INSTANCES = re.compile(r"(?:(\d)x)?(\d(?:c\.\d)?g\.\d+gb\S*)")


def mig_layout(text: str) -> tuple[str, ...] | None:
    """The instances of a GPU that ``3g.40gb, 2x2g.20gb`` means; None for ``disabled``. Raises ValueError."""
    if text.strip() in (MIG_DISABLED, MIG_ENABLED):
        return None if text.strip() == MIG_DISABLED else ()
    found: list[str] = []
    for part in text.split(","):
        match = _MIG_INSTANCES.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is no MIG instance")
        found += [match[2]] * int(match[1] or 1)
    return tuple(found)


@dataclass(frozen=True)
class NodeSpec:
    """What the operator declared of one node. ``excluded`` says why it is out, or is empty.

    ``settings`` are its own; None where they are the cluster's. Xids, SXids, crashes and events of the BMC
    before ``acknowledged`` do not count; None where all since boot do. ``rdma_ports`` InfiniBand or RoCE
    ports must be up, each at ``rdma_gbps`` Gb/s; None where that is not declared. ``leaf_switch`` is what it
    hangs on, by any name that nodes of one leaf share; empty where that is not known. ``mig`` is what each
    GPU is to be (`mig_layout`, or MIG_FILL and a profile), empty if unset; ``mig_by_gpu`` has those that are
    to be something else. ``rails`` are the adapters for compute (``mlx5_0``, ``mlx5_1:1``); none if not
    declared. ``nvme`` drives it has; None where that is not declared.
    """

    name: str
    address: str
    gpu_count: int | None = None
    gpu_model: str = ""
    profile: str = ""
    excluded: str = ""
    settings: NodeSettings | None = None
    memory_gib: int | None = None
    acknowledged: datetime | None = None
    rdma_ports: int | None = None
    rdma_gbps: int | None = None
    leaf_switch: str = ""
    mig: str = ""
    mig_by_gpu: Mapping[int, str] = field(default_factory=dict)
    rails: tuple[str, ...] = ()
    nvme: int | None = None

    def mig_of(self, gpu: int) -> str:
        """What this GPU is to be; empty if unset."""
        return self.mig_by_gpu.get(gpu, self.mig)


@dataclass(frozen=True)
class ClusterSpec:
    """What the operator declared of the cluster, as far as validation needs it.

    ``image`` is the training image by digest, as the nodes pull it from the cluster's own registry;
    ``framework`` (paddle or torch) is what it is asked to compute with. These
    and what follows it are for nodes that have no settings of their own: `settings_of` tells which apply.
    """

    name: str
    nodes: tuple[NodeSpec, ...]
    driver_version: str = ""
    driver_branch: str = ""
    image: str = ""
    container_gpu_arguments: tuple[str, ...] = ("--gpus", "all")
    mounts: tuple[Mount, ...] = ()
    framework: str = "paddle"
    exclusions: tuple[Exclusion, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def settings_of(self, name: str) -> NodeSettings:
        """What is asked of this node: its own settings, else the cluster's."""
        return self._settings.get(name) or NodeSettings(
            self.driver_version,
            self.driver_branch,
            self.image,
            self.container_gpu_arguments,
            self.mounts,
            self.framework,
            environment=self.environment,
        )

    def with_framework(self, framework: str) -> ClusterSpec:
        """The same cluster, asked to compute with this framework on every node."""
        nodes = tuple(
            replace(node, settings=node.settings and replace(node.settings, framework=framework))
            for node in self.nodes
        )
        return replace(self, framework=framework, nodes=nodes)

    @cached_property
    def in_use(self) -> tuple[NodeSpec, ...]:
        """The nodes that are not excluded."""
        return tuple(node for node in self.nodes if not node.excluded)

    @cached_property
    def _settings(self) -> Mapping[str, NodeSettings]:
        return {node.name: node.settings for node in self.nodes if node.settings is not None}


def exclusions_in_force(exclusions: Iterable[Exclusion], today: date) -> tuple[Exclusion, ...]:
    """Those whose last day is not over."""
    return tuple(each for each in exclusions if today <= each.until)


def lapsed_exclusions(exclusions: Iterable[Exclusion], today: date) -> tuple[Exclusion, ...]:
    """Those whose last day is over."""
    return tuple(each for each in exclusions if today > each.until)
