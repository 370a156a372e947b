"""`clusterctl images build`: a site's own image on a golden base, built, labelled, pushed, locked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from clusterctl import console
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.lock import Lock, LockedImage
from clusterctl.cluster.opened import opened
from clusterctl.commands.images import options
from clusterctl.commands.shared.options import json_option
from clusterctl.engine import mutex
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.wording import elapsed
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, ClusterctlError, ExplainedError
from clusterctl.registry.images import building, gate, mirrored, nccl_tests
from clusterctl.registry.images.building import Built, Engine, Order
from clusterctl.registry.images.declared import (
    DeclaredImage,
    asked_host,
    declared_images,
    nodes_driver,
    registry_name,
)
from clusterctl.registry.images.mirrored import Brought
from clusterctl.registry.images.recipe import SETTING, BuildRecipe, context_of, declared_recipes
from clusterctl.registry.images.registries import Destination, writable
from clusterctl.registry.images.signatures.checking import checker
from clusterctl.runs.store import now
from clusterctl.runs.syslog import anchored_store


@click.command("build")
@options.names_argument
@click.option("--check", "--dry-run", is_flag=True, help="Print the Dockerfiles, and build nothing.")
@click.option("--rebuild", is_flag=True, help="Also build images that the registry already has.")
@click.option("--anew", is_flag=True, hidden=True, deprecated="Use --rebuild.")
@json_option
@password_options
@click.pass_obj
def command(
    named: Path | None,
    /,
    *,
    names: tuple[str, ...],
    check: bool,
    rebuild: bool,
    as_json: bool,
    passwords: Passwords,
    **old_names: bool,
) -> int:
    """Build the images in the setting image_builds, each on a locked base.

    Uses Docker on this machine. Layers of the base are not pushed again; labels of the image record what it
    was built from, and it is locked by its digest. An image with the same recipe and base is not built
    twice.
    """
    inventory = opened(named)
    recipes = _chosen(declared_recipes(inventory), names)
    declared = declared_images(inventory)
    bases = {recipe.name: _base(inventory, declared, recipe) for recipe in recipes}
    unfit = _unfit(inventory, bases)
    if len(unfit) == len(recipes):
        *others, (_, last) = unfit.items()
        for name, error in others:
            options.tell_failure(name, error)
        raise last
    registry = registry_name(asked_host(inventory))
    orders = [
        Order(recipe, bases[recipe.name], context_of(recipe, bases[recipe.name], registry))
        for recipe in recipes
        if recipe.name not in unfit
    ]
    if check:
        return _show(orders, unfit, as_json=as_json)
    mirrored.brought(inventory.directory)
    store = anchored_store(inventory)
    run = store.create("build", [recipe.name for recipe in recipes])
    engine = Engine(run.path("build.log"))
    found: dict[str, Built | ExplainedError] = dict(unfit)
    with store.finished_on_error(run), mutex.held(inventory.directory, "images build"):
        with terminated_like_interrupted():
            engine.require()
            with writable(inventory, passwords) as destination:
                for order in orders:
                    try:
                        found[order.recipe.name] = _made(
                            inventory, order, engine, destination, rebuild=rebuild or any(old_names.values())
                        )
                    except ExplainedError as error:
                        found[order.recipe.name] = error
        _lock(inventory, [one.image for one in found.values() if isinstance(one, Built)])
    code = EXIT_CLUSTER_BAD if any(isinstance(one, ExplainedError) for one in found.values()) else EXIT_GOOD
    records = [_record(name, one) for name, one in found.items()]
    summary = {"type": "summary", "run": run.id, "registry": registry, "exit": code}
    store.finish(run, code, {**summary, "images": records})
    _tell(found, as_json=as_json)
    if as_json:
        console.emit(summary)
    return code


def _chosen(recipes: tuple[BuildRecipe, ...], names: tuple[str, ...]) -> tuple[BuildRecipe, ...]:
    known = [recipe.name for recipe in recipes]
    if unknown := [name for name in names if name not in known] or (not known and ["any"]):
        raise ClusterctlError(
            f"no build {', '.join(unknown)} is declared",
            code="images.unknown",
            where=SETTING,
            hint=f"There are: {', '.join(known) or 'none'}.",
        )
    return tuple(recipe for recipe in recipes if not names or recipe.name in names)


def _base(inventory: Inventory, declared: Sequence[DeclaredImage], recipe: BuildRecipe) -> LockedImage:
    lock = lock_file.read(inventory.directory) or Lock()
    base = lock.image(recipe.base)
    if base is None:
        raise ClusterctlError(
            f"the base {recipe.base} of {recipe.name} is not locked",
            code="images.build-base",
            where=str(lock_file.path(inventory.directory)),
            hint="Name an image of the lock as `base`; clusterctl lock, then clusterctl images mirror.",
        )
    gate.require_same(base, declared)
    return base


def _unfit(inventory: Inventory, bases: Mapping[str, LockedImage]) -> dict[str, ClusterctlError]:
    """The recipes whose base the nodes' driver does not serve, or lacks a signature that is required."""
    failures = gate.driver_failures(tuple(bases.values()), nodes_driver(inventory))
    if (signatures := checker(inventory)) is not None:
        for base in bases.values():
            try:
                signatures.require_recorded([base], trusted=True)
            except ClusterctlError as error:
                failures.setdefault(base.name, error)
    return {recipe: failures[base.name] for recipe, base in bases.items() if base.name in failures}


def _made(
    inventory: Inventory, order: Order, engine: Engine, destination: Destination, *, rebuild: bool
) -> Built:
    registry, recipe, base = destination.registry, order.recipe, order.base
    known = (lock_file.read(inventory.directory) or Lock()).image(recipe.name)
    if not rebuild and known is not None and building.there_already(order, registry, known):
        image = building.locked(recipe, registry, destination.name, known.digest)
        return Built(image.model_copy(update={"signatures": known.signatures}), True, 0.0, 0)
    console.say(f"{recipe.name}: building on {base.target}@{base.digest}")

    def remember(digest: str) -> None:
        new = Brought(destination.name, recipe.repository, digest, recipe.name, recipe.tag, now(), (digest,))
        mirrored.remember(inventory.directory, new, [digest])

    return building.make(order, engine, registry, destination.name, remember)


def _lock(inventory: Inventory, images: list[LockedImage]) -> None:
    """Write the images into the lock, each in place of the one of its name; nobody else writes it now."""
    before = lock_file.read(inventory.directory) or Lock(driver=nodes_driver(inventory))
    names = [image.name for image in images]
    kept = tuple(image for image in before.images if image.name not in names)
    after = before.model_copy(update={"images": (*kept, *images)})
    if {image.name: image for image in after.images} != {image.name: image for image in before.images}:
        lock_file.write(inventory.directory, after)


def _show(orders: list[Order], unfit: Mapping[str, ExplainedError], *, as_json: bool) -> int:
    for order in orders:
        name = order.recipe.name
        if as_json:
            console.emit({"type": "build", "name": name, "files": dict(order.context)})
            continue
        for file, text in sorted(order.context.items()):
            if file == nccl_tests.FILE:
                continue
            console.RESULTS.print(f"# {name}: {file}\n{text}", soft_wrap=True)
    _tell(unfit, as_json=as_json)
    return EXIT_CLUSTER_BAD if unfit else EXIT_GOOD


def _record(name: str, one: Built | ExplainedError) -> dict[str, Any]:
    if isinstance(one, ExplainedError):
        return {"type": "build", "name": name, "state": "failed", "code": one.code, "what": one.what}
    return {
        "type": "build",
        "name": name,
        "state": "there" if one.there else "built",
        "reference": f"{one.image.source.rpartition(':')[0]}@{one.image.digest}",
        "digest": one.image.digest,
        "size": one.image.size,
        "bytes": one.moved,
        "seconds": round(one.seconds, 3),
    }


def _tell(found: Mapping[str, Built | ExplainedError], *, as_json: bool) -> None:
    for name, one in found.items():
        record = _record(name, one)
        if as_json:
            console.emit(record)
        elif isinstance(one, ExplainedError):
            options.tell_failure(name, one)
        elif one.there:
            console.RESULTS.print(f"{record['reference']}: is there, of this recipe and base")
        else:
            sent = f"{options.size(one.moved)} of {options.size(one.image.size)} sent"
            console.RESULTS.print(
                f"{record['reference']}: built in {elapsed(one.seconds)}, {sent}",
                soft_wrap=True,
            )
