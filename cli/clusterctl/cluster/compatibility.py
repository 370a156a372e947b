"""Which driver a container image needs, and whether one has it: by its own words, else by our data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

CUDA_DATA = Path(__file__).resolve().parent / "compat" / "cuda.yml"
LABEL = "org.clusterctl.minimum-driver"
CUDA_LABELS = ("org.clusterctl.cuda", "com.nvidia.cuda.version")
CUDNN_LABELS = ("org.clusterctl.cudnn", "com.nvidia.cudnn.version")
CAPABILITIES_LABEL = "org.clusterctl.compute-capabilities"
CAPABILITIES_VARIABLE = "TORCH_CUDA_ARCH_LIST"  # NVIDIA's images of PyTorch set it
NCCL_LABELS = ("org.clusterctl.nccl", "com.nvidia.nccl.version")
REQUIRE = "NVIDIA_REQUIRE_CUDA"
_CLAUSE = re.compile(r"(cuda|driver)(>=|<=|<|>|=)([0-9][0-9.]*)")
_CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}(\+PTX)?")
_TAG = re.compile(r"cuda-?([0-9]+\.[0-9]+)(?:.*?cudnn-?([0-9]+(?:\.[0-9]+)?))?")

Version = tuple[int, ...]


@dataclass(frozen=True)
class Drivers:
    """Drivers from ``least`` on, below ``below`` where that is set."""

    least: str
    below: str = ""

    def has(self, driver: str) -> bool:
        """Whether a driver (a version, or the branch alone) is one of them."""
        return at_least(driver, self.least) and not (self.below and version(driver) >= version(self.below))


@dataclass(frozen=True)
class Needs:
    """What an image contains, the drivers that serve it (any of them), and who says so."""

    cuda: str = ""
    cudnn: str = ""
    nccl: str = ""
    capabilities: str = ""
    drivers: tuple[Drivers, ...] = ()
    source: str = ""

    @property
    def minimum_driver(self) -> str:
        """The oldest driver that serves; empty if nothing is needed or known."""
        return min((one.least for one in self.drivers), key=version, default="")

    def served_by(self, driver: str) -> bool:
        """Whether this driver runs the image."""
        return not self.drivers or any(one.has(driver) for one in self.drivers)


@lru_cache(maxsize=4096)
def version(text: str) -> Version:
    """Numbers to compare by; what is not a number ends them."""
    # No version has longer numbers, and Python reads none of thousands of digits.
    found = re.match(r"[0-9]{1,18}(\.[0-9]{1,18}){0,20}", text.strip())
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def at_least(value: str, bound: str) -> bool:
    """Whether a version reaches a bound; a number alone is a branch, and stands for its newest version."""
    numbers, least = version(value), version(bound)
    return bool(numbers) and numbers >= (least if len(numbers) > 1 else least[:1])


def needs(labels: Mapping[str, str], environment: Iterable[str], tag: str = "") -> Needs:
    """Read an image's configuration: our label, else NVIDIA's requirement, else CUDA's major version."""
    env = dict(word.partition("=")[::2] for word in environment)
    tagged = _TAG.search(tag)
    answer = _first(labels, CUDA_LABELS) or env.get("CUDA_VERSION", "")
    cuda = answer or (tagged[1] if tagged else "")
    cudnn = (
        _first(labels, CUDNN_LABELS)
        or env.get("NV_CUDNN_VERSION", "")
        or env.get("CUDNN_VERSION", "")
        or ((tagged[2] or "") if tagged else "")
    )
    nccl = (
        _first(labels, NCCL_LABELS)
        or env.get("NCCL_VERSION", "")
        or env.get("NV_LIBNCCL_PACKAGE_VERSION", "")
    )
    cuda, cudnn, nccl = (word.strip().lstrip("v") for word in (cuda, cudnn, nccl))
    built_for = labels.get(CAPABILITIES_LABEL, "") or env.get(CAPABILITIES_VARIABLE, "")
    contents = Needs(cuda, _upstream(cudnn), _upstream(nccl), _capabilities(built_for))
    if version(labels.get(LABEL, "")):
        return replace(contents, drivers=(Drivers(labels[LABEL].strip()),), source=f"label {LABEL}")
    required = _required(env.get(REQUIRE, ""))
    if required:
        return replace(contents, drivers=required, source=f"environment {REQUIRE}")
    least = _data()["minimum_driver"]["versions"].get(str(version(cuda)[0])) if version(cuda) else None
    if least:
        origin = "its CUDA" if answer else "the CUDA of its tag"
        return replace(contents, drivers=(Drivers(str(least)),), source=f"{origin}, by compat/cuda.yml")
    return contents


def _capabilities(text: str) -> str:
    """``8.0;9.0+PTX`` as ``8.0 9.0+PTX``; nothing if a word is not a compute capability."""
    words = text.replace(";", " ").split()
    return " ".join(words) if all(map(_CAPABILITY.fullmatch, words)) else ""


def _required(text: str) -> tuple[Drivers, ...]:
    """Alternatives between spaces, conditions between commas. GPUs' brands are passed over: any may do."""
    found = []
    for alternative in text.split():
        clauses = _CLAUSE.findall(alternative)
        least = [v for what, sign, v in clauses if what == "driver" and sign in (">=", ">", "=")]
        for what, sign, cuda in clauses:
            least += _driver_of(cuda) if what == "cuda" and sign in (">=", ">", "=") else []
        below = [v for what, sign, v in clauses if what == "driver" and sign in ("<", "<=")]
        if least:
            found.append(Drivers(max(least, key=version), min(below, key=version, default="")))
    return tuple(dict.fromkeys(found))


def _driver_of(cuda: str) -> list[str]:
    """The driver that first knew this CUDA: its toolkit's, or that of the next older one on record."""
    known = {version(name): str(driver) for name, driver in _data()["toolkit_driver"]["versions"].items()}
    asked = version(cuda)[:2]
    older = [name for name in known if name <= asked and name[0] == asked[0]]
    if older:
        return [known[max(older)]]
    least = _data()["minimum_driver"]["versions"].get(str(asked[0]))
    return [str(least)] if least else []


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _upstream(text: str) -> str:
    """``2.26.5-1+cuda12.9`` is 2.26.5 to those who compare."""
    return re.split(r"[-+]", text.rpartition("=")[2])[0]


@cache
def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(CUDA_DATA.read_text(encoding="utf-8"))
    return loaded
