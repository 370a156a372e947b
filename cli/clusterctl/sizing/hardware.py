"""The GPUs that a model is to be trained on: a kind by name, or what the cluster's settings declare."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from clustercheck.expect import profiles
from clustercheck.expect.profiles import Profile
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.spec import cluster_spec
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.errors import ClusterctlError
from clusterctl.sizing.memory import FORMATS, GIB

DEFAULT_PER_NODE = 8
# No source: CUDA's context, NCCL's buffers and fragmentation take the rest.
USABLE_PART = 0.9


@dataclass(frozen=True)
class GpuPool:
    """GPUs of one kind. ``gpus`` is None where the smallest number that fits is wanted."""

    profile: Profile
    per_node: int
    gpus: int | None
    where: str

    @property
    def usable_bytes(self) -> float:
        """Of one GPU, what training may take."""
        return self.profile.memory_gib * GIB * USABLE_PART

    @property
    def linked(self) -> bool:
        """Whether NVLink connects the GPUs of a node."""
        return self.profile.nvlink is not None and self.profile.nvlink.required

    def peak_flops(self, precision: str) -> float:
        """Of one GPU in this precision. Raises ClusterctlError (``size.precision``) where it has none."""
        kind = FORMATS[precision].peak
        if kind not in self.profile.peak_tflops:
            able = [name for name, each in FORMATS.items() if each.peak in self.profile.peak_tflops]
            raise ClusterctlError(
                f"{self.profile.name} does not compute in {kind}",
                code="size.precision",
                where="--precision",
                hint=f"Choose one of: {', '.join(able)}.",
            )
        return self.profile.peak_tflops[kind].value * 1e12

    @property
    def default_precision(self) -> str:
        """bf16, or fp16 on GPUs that are older."""
        return "bf16" if "bf16" in self.profile.peak_tflops else "fp16"


def profile_named(name: str) -> Profile:
    """The profile of that name, or the only one that is meant by its words or by its GPU's model.

    ``h100-nvl`` is h100-nvl-94gb, ``H100 SXM`` h100-sxm5-80gb, ``NVIDIA H100 80GB HBM3`` as nvidia-smi
    prints it too. Raises ClusterctlError (``size.gpu``).
    """
    known = profiles.names()
    words = _words(name) - {"nvidia", "tesla"}
    found = [name] if name in known else [each for each in known if words and words <= _with_kinds(each)]
    found = found or [each for each in known if words <= _words(" ".join(profiles.load(each).gpu_models))]
    if len(found) == 1:
        return profiles.load(found[0])
    listed = f"One of: {', '.join(found or known)}."
    raise ClusterctlError(
        f"{name!r} is more than one kind of GPU server" if found else f"there is no kind of GPU {name!r}",
        code="size.gpu",
        where="--gpu",
        hint=listed if found else did_you_mean(name, known) or listed,
    )


def _words(text: str) -> set[str]:
    return set(re.split(r"[\s-]+", text.strip().lower()))


def _with_kinds(profile: str) -> set[str]:
    """Its words, and those of sockets without their generation: sxm of sxm5."""
    words = _words(profile)
    return words | {word.rstrip("0123456789") for word in words if word.startswith("sxm")}


def of_kind(name: str, gpus: int | None, per_node: int | None) -> GpuPool:
    """GPUs of a kind, so many or as many as needed."""
    profile = profile_named(name)
    each = per_node or profile.gpus or DEFAULT_PER_NODE
    return GpuPool(profile, each, _whole_nodes(gpus, each), f"--gpu {profile.name}")


def of_cluster(
    inventory: Inventory, limit: str | None, gpus: int | None = None, per_node: int | None = None
) -> GpuPool:
    """The GPUs that the settings of the GPU nodes declare; quarantined nodes are omitted.

    Raises ClusterctlError (``size.cluster``) where they do not say, or are not all of one kind.
    """
    chosen = {host.name for host in inventory.select(limit)}
    nodes = [node for node in cluster_spec(inventory).nodes if node.name in chosen]
    where = str(inventory.directory.root)
    unsaid = [node.name for node in nodes if not node.profile or not node.gpu_count]
    if unsaid or not nodes:
        raise ClusterctlError(
            f"the settings of {', '.join(unsaid)} declare no GPUs" if nodes else "no GPU node is selected",
            code="size.cluster",
            where=where,
            hint="Set hardware_profile and hardware_gpu_count in group_vars/gpu_nodes.yml, or give --gpu.",
        )
    kinds = Counter((node.profile, node.gpu_count) for node in nodes)
    if len(kinds) > 1:
        raise ClusterctlError(
            f"the nodes are not alike: {_listed(kinds)}",
            code="size.cluster",
            where=where,
            hint="Select nodes that are alike with --limit, or give --gpu.",
        )
    (name, count), number = kinds.most_common()[0]
    each = per_node or count or DEFAULT_PER_NODE
    wanted = _whole_nodes(gpus, each) if gpus else number * (count or 0)
    return GpuPool(profiles.load(str(name)), each, wanted, where)


def _listed(kinds: Counter[tuple[str, int | None]]) -> str:
    return ", ".join(f"{number} x {count} {name}" for (name, count), number in kinds.items())


def _whole_nodes(gpus: int | None, per_node: int) -> int | None:
    if gpus is not None and gpus > per_node and (left := gpus % per_node):
        raise ClusterctlError(
            f"{gpus} GPUs are no whole number of nodes with {per_node}",
            code="size.gpus",
            where="--gpus",
            hint=f"Give {gpus - left} or {gpus - left + per_node}, or another --per-node.",
        )
    return gpus


def numbers(per_node: int, most: int) -> Sequence[int]:
    """Numbers of GPUs to try, from one: parts of a node that divide it, then nodes by powers of two."""
    found = [n for n in range(1, per_node + 1) if per_node % n == 0]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found
