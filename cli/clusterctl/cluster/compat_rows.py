"""The compatibility data as rows and domains: from compat/*.yml and the role nvidia_driver's own file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from clusterctl.cluster.compatibility import version
from clusterctl.cluster.resolver import NONE, CompatibilityRow, Domains
from clusterctl.content import content_root

DIRECTORY = Path(__file__).resolve().parent / "compat"
ROLE_FILE = Path("roles/nvidia_driver/files/compat.yml")
DECLARED = "declared"
# What a stack is made of, the most important first, and how people call it.
VARIABLES = {
    "source": "driver source",
    "driver": "driver",
    "modules": "kernel modules",
    "fabric_manager": "Fabric Manager",
    "gpu": "GPU",
    "nvswitch": "NVSwitch",
    "os": "operating system",
    "kernel": "kernel",
    "engine": "container engine",
    "docker": "Docker",
    "containerd": "containerd",
    "gpu_mode": "GPUs in containers by",
    "toolkit": "container toolkit",
    "image_requires": "drivers that the image names",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "capabilities": "compute capabilities",
    "paddle": "PaddlePaddle",
}


@dataclass(frozen=True)
class Branch:
    """A driver branch; ``end`` is its last day of support in ISO form, empty if none is recorded."""

    name: str
    end: str
    ended: bool


@dataclass(frozen=True)
class Compatibility:
    """Everything that is known of versions, with its sources."""

    rows: tuple[CompatibilityRow, ...]
    domains: Domains
    branches: Mapping[str, Branch]
    branches_source: str
    recommended_branch: str
    generations: Mapping[str, str]
    capabilities: Mapping[str, str]

    def capability_of(self, model: str) -> str:
        """The compute capability of a GPU by its model's name; empty if it is not recorded."""
        words = re.split(r"[^A-Za-z0-9]+", model)
        return next((self.capabilities[word] for word in words if word in self.capabilities), "")

    def describe(self, variable: str, value: str) -> str:
        """``9.0 (Hopper)`` of a GPU, ``580`` of a driver."""
        name = self.generations.get(value) if variable == "gpu" else None
        return f"{value} ({name})" if name else value


@cache
def compatibility() -> Compatibility:
    """The data of this program, read once."""
    rows, cuda, gpus, paddle = (
        _read(DIRECTORY / f"{name}.yml") for name in ("rows", "cuda", "gpus", "paddle")
    )
    role = _read(content_root() / ROLE_FILE)
    generations = {
        capability: entry["name"] for entry in gpus["generations"] for capability in entry["capabilities"]
    }
    newest = sorted(role["branches"], key=version, reverse=True)
    recommended = role["recommended_branch"]
    drivers = (recommended, *(branch for branch in newest if branch != recommended))
    variants = paddle["variants"]
    domains = {
        **{name: tuple(values) for name, values in rows["known"].items()},
        "driver": drivers,
        "fabric_manager": (NONE, *drivers),
        "gpu": tuple(reversed(generations)),
        "os": tuple(f"{name} {release}" for name, found in role["supported_os"].items() for release in found),
        "image_requires": (NONE, DECLARED),
        "cuda": (NONE, *reversed(cuda["toolkit_driver"]["versions"])),
        **{
            name: (NONE, *dict.fromkeys(known for entry in variants.values() if (known := entry[name])))
            for name in ("cudnn", "nccl")
        },
        "capabilities": (NONE,),
        "paddle": (NONE, *reversed(variants)),
    }
    return Compatibility(
        rows=(
            *map(_row, rows["rows"]), *_of_role(role), *_of_cuda(cuda), *_of_gpus(gpus), *_of_paddle(paddle)
        ),
        domains={name: domains[name] for name in VARIABLES},
        branches={
            name: Branch(name, entry["end_of_support"] or "", entry["ended"])
            for name, entry in role["branches"].items()
        },
        branches_source=role["sources"]["branches"],
        recommended_branch=recommended,
        generations=generations,
        capabilities=gpus["models"],
    )  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def _row(entry: Mapping[str, Any]) -> CompatibilityRow:
    when, needs = (tuple(entry[part].items()) for part in ("when", "needs"))
    return CompatibilityRow(entry["id"], when, needs, entry["reason"], entry["source"])


def _of_role(role: Mapping[str, Any]) -> Iterator[CompatibilityRow]:
    sources, first = role["sources"], role["open_kernel_modules"]["first_branch"]
    systems = " | ".join(f"{name} {one}" for name, found in role["supported_os"].items() for one in found)
    yield CompatibilityRow(
        "supported-os", (), (("os", systems),), f"the roles support {systems.replace(' | ', ', ')}",
        sources["supported_os"],
    )  # fmt: skip
    yield CompatibilityRow(
        "open-modules-driver", (("modules", "open"),), (("driver", f">= {first}"),),
        f"open kernel modules exist since driver {first}", sources["open_kernel_modules"],
    )  # fmt: skip
    for source, systems_of in role["packages"].items():
        for name, packages in systems_of.items():
            known = " | ".join(f"{name} {release}" for release in role["supported_os"][name])
            if not packages["fabric_manager"]:
                yield CompatibilityRow(
                    f"fabric-manager-{source}-{name}", (("source", source), ("os", known)),
                    (("fabric_manager", NONE),), f"{name.capitalize()}'s own archive has no Fabric Manager",
                    sources["packages"],
                )  # fmt: skip
            elif not packages["nvlsm"]:
                yield CompatibilityRow(
                    f"nvlsm-{source}-{name}",
                    (("source", source), ("os", known), ("gpu", "10.*"), ("nvswitch", "yes")),
                    (("fabric_manager", NONE),),
                    f"{name.capitalize()}'s own archive has no NVLSM, which Fabric Manager needs on HGX B200",
                    sources["nvlink_fabrics"],
                )  # fmt: skip


def _of_cuda(cuda: Mapping[str, Any]) -> Iterator[CompatibilityRow]:
    minimum = cuda["minimum_driver"]
    for major, driver in minimum["versions"].items():
        yield CompatibilityRow(
            f"cuda-{major}-driver", (("cuda", f"{major}.*"), ("image_requires", NONE)),
            (("driver", f">= {driver}"),), f"CUDA {major} needs driver {driver} or newer", minimum["source"],
        )  # fmt: skip


def _of_gpus(gpus: Mapping[str, Any]) -> Iterator[CompatibilityRow]:
    for entry in gpus["generations"]:
        name, these = entry["name"], " | ".join(entry["capabilities"])
        slug = name.lower()
        yield CompatibilityRow(
            f"{slug}-cuda", (("gpu", these),), (("cuda", f"{NONE} | {entry['cuda']}"),),
            f"{name} GPUs need CUDA {entry['cuda']}", gpus["source"],
        )  # fmt: skip
        if "driver" in entry:
            yield CompatibilityRow(
                f"{slug}-driver", (("gpu", these),), (("driver", entry["driver"]),),
                f"{name} GPUs need a driver {entry['driver']}", gpus["source"],
            )  # fmt: skip


def _of_paddle(paddle: Mapping[str, Any]) -> Iterator[CompatibilityRow]:
    for variant, built in paddle["variants"].items():
        needs = [("cuda", f"{built['cuda']}.*")]
        for name in ("cudnn", "nccl"):
            if built[name]:
                following = version(built[name])[0] + 1
                needs.append((name, f"{NONE} | >= {built[name]}, < {following}"))
        words = ", ".join(
            f"{VARIABLES[name]} {built[name]}" for name in ("cuda", "cudnn", "nccl") if built[name]
        )
        yield CompatibilityRow(
            f"paddle-{variant}", (("paddle", variant),), tuple(needs),
            f"PaddlePaddle {variant} is built against {words}", paddle["source"],
        )  # fmt: skip
