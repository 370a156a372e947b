"""Bringing a lab up: what is missing is built, made, started; what is there stays."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clusterctl.errors import ClusterctlError
from clusterctl.parallel import parallel_map
from clusterlab import cluster_files, docker, engine, hardware, nodes
from clusterlab.cache import cache_root, locked
from clusterlab.fault_book import WHOLE_HOST
from clusterlab.images.debian import temporary_directory
from clusterlab.images.depot import depot_tag, ensure_depot_image
from clusterlab.images.harbor import Installers, ensure_installers
from clusterlab.images.node import ensure_node_image, node_tag
from clusterlab.images.training import TrainingImage, ensure_training_image, training_is_cached
from clusterlab.keys import ensure_authority, ensure_depot_certificate, ensure_ssh_key
from clusterlab.limits import make_room
from clusterlab.machine import Demand, bounding_set, look, refusal
from clusterlab.names import DEPOT, gpu_node, registry_node
from clusterlab.network import address_of, ensure_network
from clusterlab.packages import Packages, ensure_packages, remove_others
from clusterlab.process import usual_umask
from clusterlab.progress import LabProgress
from clusterlab.state import LabDirectory, LabNode, LabState, Registry
from clusterlab.systems import registry_system

STARTS_AT_ONCE = 8
REGISTRY_HARDWARE = "none"
HARBOR = "harbor"


@dataclass(frozen=True)
class Request:
    """What the person asked for."""

    nodes: int
    hardware: str
    system: str
    registry: Registry = "embedded"


@dataclass(frozen=True)
class Artifacts:
    """What was built, or found in the cache."""

    node_image: str
    registry_image: str
    depot_image: str
    training: TrainingImage
    packages: Packages
    harbor: Installers | None = None


def up(lab: LabDirectory, request: Request, progress: LabProgress) -> LabState:
    """Bring the lab to what was asked: builds what is missing, makes hosts that are missing.

    Hosts that are there and run are left as they are; one that a fault has taken down stays down. Raises
    ClusterctlError.
    """
    with usual_umask(), locked(f"lab-{lab.names.suffix}"):
        state = _agreed(lab, request)
        state.root = str(lab.root)
        _refuse_unless_it_fits(lab, state, request, progress)
        engine.ensure_engine(progress)
        built = _build(lab, request, progress)
        state.subnet = str(ensure_network(lab.names))
        state.nodes = _planned(state, request, built)
        lab.save(state)
        _make_missing(lab, state, built, progress)
        _write_cluster_directory(lab, state, built, progress)
        return state


def running(lab: LabDirectory, state: LabState) -> dict[str, bool | None]:
    """For every host and the depot: whether it runs (one that hangs does not); None without a container."""
    found = docker.inspect("container", [lab.names.container(n.name) for n in state.nodes], missing_ok=True)
    states = {
        one["Name"].lstrip("/"): one["State"]["Running"] and not one["State"].get("Paused") for one in found
    }
    return {node.name: states.get(lab.names.container(node.name)) for node in state.nodes}


def _agreed(lab: LabDirectory, request: Request) -> LabState:
    """The state to continue from; refuses a request that the existing lab cannot satisfy."""
    if request.hardware not in hardware.PROFILES:
        raise ClusterctlError(
            f"there is no simulated hardware {request.hardware!r}",
            code="lab.unknown-hardware",
            where="--hardware",
            hint=f"Known: {', '.join(sorted(hardware.PROFILES))}.",
        )
    state = lab.load()
    if state is None:
        return LabState(
            suffix=lab.names.suffix,
            system=request.system,
            hardware=request.hardware,
            registry=request.registry,
        )
    there = (state.hardware, state.system, state.registry)
    wanted = (request.hardware, request.system, request.registry)
    if len(state.gpu_nodes) > request.nodes or there != wanted:
        words = "{} nodes of {} with {}, registry {}"
        raise ClusterctlError(
            f"the lab that is here has {words.format(len(state.gpu_nodes), *there)};"
            f" it cannot become {words.format(request.nodes, *wanted)}",
            code="lab.another",
            where=str(lab.root),
            hint="Take it down first (clusterctl lab down), or use another directory with --dir.",
        )
    return state


def _refuse_unless_it_fits(
    lab: LabDirectory, state: LabState, request: Request, progress: LabProgress
) -> None:
    answers = engine.answers()
    tags = (node_tag(request.system), node_tag(registry_system(request.system)), depot_tag())
    cached = answers and all(docker.exists("image", tag) for tag in tags) and training_is_cached()
    alive = [node for node in state.hosts if answers and nodes.is_running(lab.names, node)]
    new_hosts = max(0, request.nodes + 1 - len(alive))
    why = refusal(
        look(
            {
                "engine": engine.root_directory(),
                "cache": cache_root(),
                "temporary": temporary_directory(),
                "lab": lab.root,
            }
        ),
        Demand(new_hosts, images_cached=cached),
    )
    if why is not None:
        raise why
    make_room(new_hosts, progress)


def _build(lab: LabDirectory, request: Request, progress: LabProgress) -> Artifacts:
    """Everything that takes long, in parallel; the longest first."""
    system = request.system
    builds: dict[str, Callable[[], Any]] = {
        "training": partial(ensure_training_image, progress),
        "node_image": partial(ensure_node_image, system, progress),
        "registry_image": partial(ensure_node_image, registry_system(system), progress),
        "packages": partial(ensure_packages, system, lab.root / "packages", progress),
        "depot_image": partial(ensure_depot_image, progress),
    }
    if request.registry == HARBOR:
        builds["harbor"] = partial(ensure_installers, progress)
    made = parallel_map(lambda build: build(), builds.values(), limit=max(2, os.cpu_count() or 2))
    return Artifacts(**dict(zip(builds, made, strict=True)))


def _planned(state: LabState, request: Request, built: Artifacts) -> list[LabNode]:
    """All hosts that shall be; those that are there keep their image."""
    subnet = ipaddress.IPv4Network(state.subnet)
    images = {"gpu": built.node_image, "registry": built.registry_image, "depot": built.depot_image}
    plan = [(gpu_node(number), "gpu") for number in range(1, request.nodes + 1)]
    plan += [(registry_node(), "registry"), (DEPOT, "depot")]
    result = []
    for name, role in plan:
        fresh = LabNode.model_validate(
            {"name": name, "role": role, "address": address_of(subnet, name), "image": images[role]}
        )
        result.append(state.node(name) or fresh)
    return result


def _make_missing(lab: LabDirectory, state: LabState, built: Artifacts, progress: LabProgress) -> None:
    alive = running(lab, state)
    depot = next(node for node in state.nodes if node.role == "depot")
    _ensure_depot(lab, depot, built, progress)
    access = nodes.NodeAccess(
        public_key=ensure_ssh_key(lab.ssh_key),
        depot_authority=ensure_authority(lab.authority)[0].read_bytes(),
        packages=built.packages,
    )
    bounding = bounding_set(engine.process_status())
    flags = nodes.server_flags(state.system, engine.cgroup_version(), bounding)
    images = {"gpu": built.node_image, "registry": built.registry_image}
    down_by_fault = {fault.node: fault.kind for fault in state.faults if fault.kind in WHOLE_HOST}

    def ensure(node: LabNode) -> None:
        if alive[node.name]:
            if node.image != images[node.role]:
                progress.line(f"{node.name}: runs an older image of the lab, and stays as it is")
            return
        if node.name in down_by_fault and alive[node.name] is not None:
            progress.line(f"{node.name}: stays down, as the fault {down_by_fault[node.name]} left it")
            return
        if alive[node.name] is None:
            if not lab.hardware(node.name).exists():
                profile = state.hardware if node.role == "gpu" else REGISTRY_HARDWARE
                hardware.save(hardware.build(profile, node.name), lab.hardware(node.name))
            node.image = images[node.role]
            nodes.remove(lab.names, node)
            system = state.system if node.role == "gpu" else registry_system(state.system)
            files = nodes.handed_over(system, access)
            nodes.create_server(lab.names, node, lab.node(node.name), flags, files)
        else:
            docker.run(["start", lab.names.container(node.name)])
        answer = nodes.wait_until_booted(lab.names, node)
        progress.line(f"{node.name}: {answer}, sshd answers on {node.address}")

    parallel_map(ensure, state.hosts, limit=STARTS_AT_ONCE)
    lab.save(state)


def _ensure_depot(lab: LabDirectory, depot: LabNode, built: Artifacts, progress: LabProgress) -> None:
    """The depot holds nothing of its own: where its contents have changed, it is made again."""
    mounts = {"/srv/depot": built.packages.directory, "/var/lib/registry": built.training.storage}
    if built.harbor:
        # A mount inside a read-only mount needs an existing directory.
        (built.packages.directory / HARBOR).mkdir(exist_ok=True)
        mounts[f"/srv/depot/{HARBOR}"] = built.harbor.directory
    found = docker.inspect("container", [lab.names.container(DEPOT)], missing_ok=True)
    if found and found[0]["State"]["Running"]:
        mounted = {mount["Destination"]: Path(mount["Source"]) for mount in found[0]["Mounts"]}
        same = all(mounted.get(point) == path for point, path in mounts.items())
        if same and found[0]["Config"]["Image"] == built.depot_image:
            return
    ensure_depot_certificate(lab.authority, lab.depot, depot.address)
    depot.image = built.depot_image
    nodes.remove(lab.names, depot)
    nodes.create_depot(lab.names, depot, mounts, lab.depot)
    remove_others(built.packages)
    progress.line(f"{DEPOT}: packages on http://{DEPOT}/, images on https://{DEPOT}:5000/ ({depot.address})")


def _write_cluster_directory(
    lab: LabDirectory, state: LabState, built: Artifacts, progress: LabProgress
) -> None:
    alive = running(lab, state)
    keys = {node.name: nodes.host_keys(lab.names, node) for node in state.hosts if alive[node.name]}
    model = hardware.build(state.hardware, gpu_node(1))
    offer = cluster_files.Offer(
        gpu_model=model.gpu_model.name if model.gpu_model else "",
        gpu_count=len(model.gpus),
        image_repository=built.training.repository,
        image_digest=built.training.digest,
        key_fingerprint=built.packages.key_fingerprint,
        harbor=built.harbor.newest if built.harbor else None,
    )
    state.written, kept = cluster_files.write(lab.cluster, state, offer, keys)
    for name in kept:
        progress.line(f"{name} was changed since the lab wrote it: kept as it is")
    lab.save(state)
    _give_to_the_person(lab)


def _give_to_the_person(lab: LabDirectory) -> None:
    """With sudo, the cluster directory belongs to the person who called it: apply needs no root."""
    person = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if person[0] is None or person[1] is None:
        return
    for path in (lab.root, lab.state_file, lab.cluster, *lab.cluster.rglob("*")):
        os.chown(path, int(person[0]), int(person[1]), follow_symlinks=False)
