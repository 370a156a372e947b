"""Declared MIG layouts as nvidia-mig-parted, Slurm and Kubernetes write them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import yaml
from pydantic import BaseModel, ConfigDict, Field

from clustercheck.spec import MIG_DISABLED
from clusterctl.cluster.mig import DeclaredMig, profiles, refused


@dataclass(frozen=True)
class HostLayout:
    """The instances of each GPU of a host by index: None is no MIG. ``model`` is the declared one."""

    host: str
    model: str
    gpus: Mapping[int, tuple[str, ...] | None]


class Entry(BaseModel):
    """GPUs of one layout, as mig-parted writes them."""

    model_config = ConfigDict(populate_by_name=True, frozen=True)

    devices: str | tuple[int, ...]
    enabled: bool = Field(serialization_alias="mig-enabled")
    made: Mapping[str, int] | None = Field(default=None, serialization_alias="mig-devices")


def host_layout(declared: DeclaredMig, gpu_count: int | None) -> HostLayout:
    """The layout of a host whose number of GPUs is declared. Raises ClusterctlError (``inventory.mig``)."""
    if gpu_count is None:
        raise refused(declared.host, "the number of GPUs is not declared", "Set hardware_gpu_count.")
    layouts = [declared.layout_of(gpu) or MIG_DISABLED for gpu in range(gpu_count)]
    return HostLayout(
        declared.host, declared.model, {gpu: declared.instances_of(text) for gpu, text in enumerate(layouts)}
    )


def config_name(layout: HostLayout) -> str:
    """The name of a host's configuration: mig-parted's own where all GPUs are filled with one profile."""
    kinds = set(layout.gpus.values())
    if kinds <= {None}:
        return "all-disabled"
    if kinds == {()}:
        return "all-enabled"
    names = {name for made in kinds for name in made or ()}
    if len(kinds) == 1 and len(names) == 1:
        (name,), (made,) = names, kinds
        known = profiles(layout.model).get(name)
        if known and made and len(made) == known.limit:
            return f"all-{name}".replace("+", ".")
    digest = hashlib.sha256(repr(sorted(layout.gpus.items())).encode()).hexdigest()
    return f"clusterctl-{digest[:8]}"


def mig_parted(layouts: Sequence[HostLayout]) -> str:
    """A configuration file of nvidia-mig-parted, with one configuration for each different host."""
    configs = {config_name(one): [entry.model_dump(by_alias=True, exclude_none=True, mode="json")
                                  for entry in _entries(one)] for one in layouts}  # fmt: skip
    return yaml.safe_dump({"version": "v1", "mig-configs": configs}, sort_keys=False)


def slurm(layouts: Sequence[HostLayout]) -> str:
    """Lines of gres.conf and slurm.conf; slurmd finds the device files of instances by NVML."""
    gres = [f"NodeName={one.host} AutoDetect=nvml" for one in layouts]
    nodes = [f"NodeName={one.host} Gres={_gres(one)}" for one in layouts]
    return "\n".join(["# gres.conf", *gres, "", "# slurm.conf: add Gres to the lines of these nodes",
                      "GresTypes=gpu", *nodes, ""])  # fmt: skip


def kubernetes(layouts: Sequence[HostLayout]) -> str:
    """The labels of each node, as commands of kubectl: the names are those of `mig_parted`."""
    lines = [
        f"kubectl label --overwrite node {one.host} nvidia.com/mig.config={config_name(one)} "
        f"nvidia.com/mig.strategy={strategy(one)}"
        for one in layouts
    ]
    return "\n".join([*lines, ""])


FORMATS: Mapping[str, Callable[[Sequence[HostLayout]], str]] = {
    "mig-parted": mig_parted,
    "slurm": slurm,
    "kubernetes": kubernetes,
}


def strategy(layout: HostLayout) -> str:
    """The strategy of NVIDIA's device plugin: single where every GPU has instances of one profile."""
    every = [made or () for made in layout.gpus.values()]
    one_profile = len({name for made in every for name in made}) == 1
    return "single" if one_profile and all(every) else "mixed" if any(every) else "none"


def _entries(layout: HostLayout) -> list[Entry]:
    groups: dict[tuple[str, ...] | None, list[int]] = {}
    for gpu, made in layout.gpus.items():
        groups.setdefault(made, []).append(gpu)
    return [
        Entry(
            devices="all" if len(groups) == 1 else tuple(gpus),
            enabled=made is not None,
            made=None if made is None else dict(sorted(Counter(made).items())),
        )
        for made, gpus in groups.items()
    ]


def _gres(layout: HostLayout) -> str:
    """What Slurm counts: a type is a part of the name that NVML gives, MODEL_PROFILE of an instance."""
    made = Counter(name for names in layout.gpus.values() for name in names or ())
    whole = sum(1 for names in layout.gpus.values() if names is None)
    kind = f":{layout.model.lower().replace(' ', '_')}" if made and layout.model else ""
    return ",".join([*([f"gpu{kind}:{whole}"] if whole else []),
                     *(f"gpu:{name}:{count}" for name, count in sorted(made.items()))])  # fmt: skip
