"""The words of validation: what is judged, what was found, what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.exclusions import Exclusion
    from clustercheck.expect.figures import Judged


class Verdict(StrEnum):
    """What did not run is never a pass. A warning is shown and counted, and fails no validation."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    WARNING = "warning"
    NOT_RUN = "not_run"
    EXCLUDED = "excluded"


class Scope(StrEnum):
    """What a check looks at."""

    HOST = "host"
    GPU = "gpu"
    LINK = "link"
    PAIR = "pair"
    GROUP = "group"


class Severity(StrEnum):
    """What a check's failure means to who uses the cluster: for order and display.

    It turns no verdict: whatever fails makes the validation fail.
    """

    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"

    @property
    def means(self) -> str:
        """In a phrase."""
        return _MEANS[self]


_MEANS = {
    Severity.CRITICAL: "jobs cannot run there, or their results may be wrong",
    Severity.MAJOR: "jobs run slower than they should, or may fail later",
    Severity.MINOR: "jobs run; it is not as intended",
}


@dataclass(frozen=True, order=True, slots=True)
class Subject:
    """What a result is about: a node, a GPU of it, a node with its peer, or the group (all None)."""

    node: str | None = None
    gpu: int | None = None
    peer: str | None = None


# Shared by the many that have nothing to add: nobody writes to a Mapping.
NOTHING: Mapping[str, Any] = {}
# In a result's evidence: a part of the node is gone, and which one cannot be told.
PLACE_UNKNOWN = "place_unknown"
# The other end, where what failed lies between a node and that one.
BETWEEN = "between"


@dataclass(frozen=True, slots=True)
class Result:
    """One check's verdict on one subject.

    ``efficiency`` is measured over what physics allows of the detected links, lanes and adapters, in 0..1;
    not over ``expected``, which is the threshold. None where nothing bounds it, or the measurement is above.
    ``margin`` is how far measured is on the good side of expected, as a part of it. ``figures`` holds every
    measurement with the parts of its expectation, each judged by itself.
    """

    check: str
    scope: Scope
    subject: Subject
    verdict: Verdict
    measured: float | str | None = None
    unit: str = ""
    expected: float | str | None = None
    efficiency: float | None = None
    source: str = ""
    method: str = ""
    because: str = ""
    remedy: str = ""
    evidence: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    simulated: bool = False
    severity: Severity = Severity.MAJOR
    margin: float | None = None
    figures: tuple[Judged, ...] = ()


@dataclass(frozen=True)
class Culprit:
    """Who is to blame. ``scope`` is node, gpu, link, rail or switch."""

    scope: str
    node: str
    because: str
    remedy: str
    gpu: int | None = None
    peer: str | None = None


@dataclass(frozen=True)
class Coverage:
    """Every expected subject x check, counted by what became of it."""

    expected: int
    passed: int
    failed: int
    not_run: int
    excluded: int
    warnings: int = 0


@dataclass(frozen=True)
class Mount:
    """A file system that must be there: of this type, and writable to this user, where they are named."""

    path: str
    type: str = ""
    user: str = ""


@dataclass(frozen=True)
class NodeSettings:
    """What the settings ask of a node, where hosts may differ. ``image``, ``framework`` as in ClusterSpec.

    ``strict``: what is a warning elsewhere fails there.
    """

    driver_version: str = ""
    driver_branch: str = ""
    image: str = ""
    container_gpu_arguments: tuple[str, ...] = ("--gpus", "all")
    mounts: tuple[Mount, ...] = ()
    framework: str = "paddle"
    strict: bool = False


MIG_DISABLED = "disabled"
_MIG_INSTANCES = re.compile(r"(?:(\d)x)?(\d(?:c\.\d)?g\.\d+gb\S*)")


def mig_layout(text: str) -> tuple[str, ...] | None:
    """The instances of a GPU that ``3g.40gb, 2x2g.20gb`` means; None for ``disabled``. Raises ValueError."""
    if text.strip() == MIG_DISABLED:
        return None
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

    ``settings`` are its own; None where they are the cluster's. Xids and SXids before ``acknowledged`` do not
    count; None where all since boot do. ``rdma_ports`` InfiniBand or RoCE ports must be up, each at
    ``rdma_gbps`` Gb/s; None where that is not declared. ``leaf_switch`` is what it hangs on, by any name that
    nodes of one leaf share; empty where that is not known. ``mig`` is what each GPU is to be (`mig_layout`),
    empty where nobody said.
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

    def settings_of(self, name: str) -> NodeSettings:
        """What is asked of this node: its own settings, else the cluster's."""
        return self._settings.get(name) or NodeSettings(
            self.driver_version,
            self.driver_branch,
            self.image,
            self.container_gpu_arguments,
            self.mounts,
            self.framework,
        )

    def with_framework(self, framework: str) -> ClusterSpec:
        """The same cluster, asked to compute with this framework on every node."""
        nodes = tuple(
            replace(node, settings=node.settings and replace(node.settings, framework=framework))
            for node in self.nodes
        )
        return replace(self, framework=framework, nodes=nodes)

    @cached_property
    def _settings(self) -> Mapping[str, NodeSettings]:
        return {node.name: node.settings for node in self.nodes if node.settings is not None}
