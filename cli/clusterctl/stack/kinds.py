"""Hosts of one kind: alike in all settings and facts that decide whether their software fits together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clustercheck.errors import ExplainedError
from clustercheck.expect import profiles
from clusterctl.cluster.compat_rows import DECLARED, VARIABLES, Compatibility
from clusterctl.cluster.compatibility import Drivers
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.resolver import NONE, CompatibilityRow, is_value
from clusterctl.cluster.settings.booleans import is_true
from clusterctl.cluster.spec import settings_of
from clusterctl.cluster.templating import Variables
from clusterctl.stack.facts import NodeFacts

IMAGE = "training image"
NODES = "nodes"
SWITCH = "training_image_enabled"
FABRIC_MANAGER = {"true": f"not {NONE}", "false": NONE}
_VALUE = re.compile(r"[A-Za-z0-9._+:~ -]{1,100}")
_NUMBERS = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18}){0,9}")
# Packages by engine, with the version that a site pins.
_PACKAGES = {
    engine: re.compile(rf"(?:{names})=(?:[0-9]+:)?([0-9]+(?:\.[0-9]+)*)")
    for engine, names in (
        ("docker", r"docker\.io|docker-ce|moby-engine"),
        ("containerd", r"containerd(?:\.io)?"),
    )
}
_PADDLE = re.compile(r"cuda-?([0-9]+)\.([0-9]+)")


@dataclass(frozen=True)
class NodeKind:
    """Hosts and what is declared and known of each of them, as rows of the resolver."""

    hosts: tuple[str, ...]
    declared: tuple[CompatibilityRow, ...]

    @property
    def values(self) -> dict[str, str]:
        """The plain values that are declared, by variable; of several rows the first."""
        needs = [row.needs[0] for row in reversed(self.declared)]
        return {name: condition for name, condition in needs if is_value(condition)}


def kinds_of(
    inventory: Inventory,
    image: LockedImage | None,
    facts: Mapping[str, NodeFacts],
    data: Compatibility,
) -> list[NodeKind]:
    """The GPU nodes that are not in quarantine, by kind. ``image`` is the locked training image.

    Raises ClusterctlError for a template that cannot be evaluated.
    """
    of_image = tuple(_image_rows(image))
    without_image = tuple(_image_rows(None))
    together: dict[tuple[tuple[str, str], ...], tuple[list[str], tuple[CompatibilityRow, ...]]] = {}
    for host in inventory.gpu_nodes:
        if host.quarantined is not None:
            continue
        settings = settings_of(host)
        # Its default follows the declared digest, and that of a tag is in the lock.
        wants_image = SWITCH not in host.variables or is_true(settings.value(SWITCH))
        rows = (
            *_host_rows(host, settings, facts.get(host.name, NodeFacts()), data),
            *(of_image if wants_image else without_image),
        )
        hosts, _ = together.setdefault(tuple(need for row in rows for need in row.needs), ([], rows))
        hosts.append(host.name)
    return [NodeKind(tuple(hosts), rows) for hosts, rows in together.values()]


def installed_kinds(kinds: list[NodeKind], facts: Mapping[str, NodeFacts]) -> list[NodeKind]:
    """Hosts with the driver and Fabric Manager that were seen on them, by kind; others are omitted."""
    together: dict[tuple[int, str, str], list[str]] = {}
    for number, kind in enumerate(kinds):
        for name in kind.hosts:
            seen = facts.get(name, NodeFacts())
            if usable(seen.driver):
                together.setdefault((number, seen.driver, seen.fabric_manager), []).append(name)
    found = []
    for (number, driver, fabric_manager), hosts in together.items():
        seen_by = facts[hosts[0]].seen_by
        kept = [
            row
            for row in kinds[number].declared
            if row.origin == IMAGE or row.needs[0][0] not in ("driver", "fabric_manager")
        ]
        rows = [declare("driver", driver, NODES, f"driver {driver} is loaded", seen_by)]
        if usable(fabric_manager):
            text = f"Fabric Manager {fabric_manager} is installed"
            rows.append(declare("fabric_manager", fabric_manager, NODES, text, seen_by))
        found.append(NodeKind(tuple(hosts), (*rows, *kept)))
    return found


def declare(variable: str, condition: str, origin: str, reason: str, source: str) -> CompatibilityRow:
    """A row that says what a setting, an image or a node has."""
    return CompatibilityRow(f"{origin}: {variable}", (), ((variable, condition),), reason, source, origin)


def usable(value: str) -> str:
    """A value as settings, nodes and images name it; nothing where it would be read as a condition."""
    return value if _VALUE.fullmatch(value) and is_value(value) else ""


def _range(drivers: Drivers) -> str:
    """A range of drivers as a condition: nothing of it but numbers, whatever an image's label says."""
    least, below = (
        found[0] if (found := _NUMBERS.match(text)) else "" for text in (drivers.least, drivers.below)
    )
    return f">= {least or 0}" + (f", < {below}" if below else "")


def _host_rows(
    host: Host, settings: Variables, seen: NodeFacts, data: Compatibility
) -> Iterator[CompatibilityRow]:
    def set_by(variable: str, name: str, condition: str = "") -> Iterator[CompatibilityRow]:
        value = settings.value(name)
        wanted = condition or usable("" if value is None else str(value))
        if wanted:
            source = "settings" if name in host.variables else "default of the role"
            yield declare(variable, wanted, name, f"{name} is {value}", source)

    def seen_as(variable: str, value: str) -> Iterator[CompatibilityRow]:
        if usable(value):
            text = f"{VARIABLES[variable]} is {value}"
            yield declare(variable, value, NODES, text, seen.seen_by)

    yield from set_by("source", "nvidia_driver_source")
    yield from set_by("modules", "nvidia_driver_flavor")
    exact = list(set_by("driver", "nvidia_driver_version"))
    yield from exact or set_by("driver", "nvidia_driver_branch")
    asked = FABRIC_MANAGER.get(str(settings.value("nvidia_driver_fabric_manager")).lower())
    if asked:
        yield from set_by("fabric_manager", "nvidia_driver_fabric_manager", asked)
    yield from _hardware_rows(settings, seen, data)
    yield from set_by("engine", "container_runtime_engine")
    yield from set_by("gpu_mode", "nvidia_container_toolkit_mode")
    exact = list(set_by("toolkit", "nvidia_container_toolkit_version"))
    yield from exact or seen_as("toolkit", seen.toolkit)
    packages = settings.value("container_runtime_packages") or []
    versions = {"docker": seen.docker, "containerd": seen.containerd}
    if str(settings.value("container_runtime_engine")) == "docker":
        del versions["containerd"]  # the one that Docker brings
    for name, version_seen in versions.items():
        pinned = [found[1] for word in packages if (found := _PACKAGES[name].match(str(word)))]
        if pinned:
            yield from set_by(name, "container_runtime_packages", pinned[0])
        else:
            yield from seen_as(name, version_seen)
    yield from seen_as("os", seen.os)
    yield from seen_as("kernel", seen.kernel)


def _hardware_rows(settings: Variables, seen: NodeFacts, data: Compatibility) -> Iterator[CompatibilityRow]:
    """The GPUs by profile, else by their declared model, else as they were seen."""
    profile = str(settings.value("hardware_profile") or "")
    model = str(settings.value("hardware_gpu_model") or "")
    if profile:
        try:
            known = profiles.load(profile)
        except ExplainedError:  # validate names it
            return
        reason = f"hardware_profile is {profile}"
        capability = data.capability_of(known.gpu_models[0])
        switched = "yes" if known.switched else "no"
        yield declare("nvswitch", switched, "hardware_profile", reason, "settings")
        origin = "hardware_profile"
    else:
        capability = data.capability_of(model or seen.gpu_model)
        origin = "hardware_gpu_model" if model else NODES
        reason = f"hardware_gpu_model is {model}" if model else f"the GPU is {seen.gpu_model}"
    if capability:
        text = f"{reason}: compute capability {data.describe('gpu', capability)}"
        yield declare("gpu", capability, origin, text, seen.seen_by if origin == NODES else "settings")


def _image_rows(image: LockedImage | None) -> Iterator[CompatibilityRow]:
    """What the training image contains; nothing of all that without one."""
    needs = image.needs if image is not None else None
    source = image.source if image is not None else "clusterctl.lock"
    by_itself = needs is not None and needs.source.startswith(("label ", "environment "))
    values = {
        "cuda": needs.cuda if needs else "",
        "cudnn": needs.cudnn if needs else "",
        "nccl": needs.nccl if needs else "",
        "capabilities": needs.capabilities if needs else "",
        "paddle": _paddle_variant(image) if image is not None else "",
    }
    for variable, named in values.items():
        value = usable(named)
        if value:
            text = f"the training image has {VARIABLES[variable]} {value}"
        elif image is not None:
            text = f"the training image names no {VARIABLES[variable]}"
        else:
            text = "no training image is locked"
        yield declare(variable, value or NONE, IMAGE, text, source)
    asked, text = (DECLARED, "names") if by_itself else (NONE, "does not name")
    yield declare(
        "image_requires", asked, IMAGE, f"the training image {text} the drivers that run it", source
    )
    if needs is not None and by_itself:
        ranges = " | ".join(map(_range, needs.drivers))
        text = f"the training image names the drivers that run it: {ranges.replace(' | ', ' or ')}"
        yield declare("driver", ranges, IMAGE, text, f"{source}, {needs.source}")


def _paddle_variant(image: LockedImage) -> str:
    """``cu129`` of an image of PaddlePaddle whose tag names CUDA 12.9; empty for any other."""
    repository, _, tag = image.source.rpartition(":")
    found = _PADDLE.search(image.tag or tag)
    is_paddle = repository.rpartition("/")[2].startswith("paddle")
    return f"cu{found[1]}{found[2]}" if found and is_paddle else ""
