"""`clusterctl lock`: from tags to digests, written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.lock import Lock, LockedImage
from clusterctl.cluster.opened import opened
from clusterctl.cluster.spec import setting
from clusterctl.commands.shared.options import json_option
from clusterctl.engine import mutex
from clusterctl.engine.wording import counted
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, ClusterctlError, ExplainedError
from clusterctl.parallel import parallel_map_fairly
from clusterctl.registry.images import gate
from clusterctl.registry.images.declared import (
    TRAINING,
    DeclaredImage,
    asked_host,
    declared_images,
    nodes_driver,
)
from clusterctl.registry.images.registries import Sources
from clusterctl.registry.images.resolve import resolve
from clusterctl.registry.images.signatures.checking import SignatureChecker, checker
from clusterctl.registry.oci.retry import RetryPolicy
from clusterctl.stack import wording
from clusterctl.stack.facts import NodeFacts, recorded
from clusterctl.stack.judge import StackReport, judge_stacks
from clusterctl.stack.resolution import stacks_of

PARALLEL_IMAGES = 8


@click.command("lock")
@click.argument("names", nargs=-1, metavar="[IMAGE]...")
@click.option("--upgrade", is_flag=True, help="Resolve the tags again.")
@click.option(
    "--check",
    "--dry-run",
    is_flag=True,
    help="Show what would change, and change nothing; exit code 1 if anything would.",
)
@json_option
@click.pass_obj
def command(named: Path | None, *, names: tuple[str, ...], upgrade: bool, check: bool, as_json: bool) -> int:
    """Pin the tag of each image, or of those named, to its digest in clusterctl.lock.

    With layers and their sizes, CUDA, and the oldest driver that runs it. A locked image changes only with
    --upgrade, or when its settings change; --check resolves all tags again. An image that the nodes' driver
    cannot run is named, with exit code 1, and is not mirrored. Where images_signatures demands a signature,
    it is verified, and the lock records it.

    The lock also has the software stack of each kind of GPU node: driver, kernel modules, Fabric Manager,
    Docker, container toolkit, system, and the contents of the training image, as settings and the newest
    validation have them. If they do not fit together, the reasons and remedies are shown, with exit code 1.
    --check also shows what differs from the locked stacks.
    """
    inventory = opened(named)
    declared, driver = declared_images(inventory), nodes_driver(inventory)
    unknown = [name for name in names if name not in [image.name for image in declared]]
    if unknown:
        raise ClusterctlError(
            f"no image {', '.join(unknown)} is declared",
            code="images.unknown",
            hint=f"There are: {', '.join(image.name for image in declared) or 'none'}.",
        )
    before = lock_file.read(inventory.directory) or Lock()
    wanted = [image for image in declared if not names or image.name in names]
    unresolved = [
        image for image in wanted if not image.built and _is_asked(image, before, refresh=upgrade or check)
    ]
    retry, signatures = RetryPolicy(), checker(inventory)
    unsigned = [
        image for image in wanted if image not in unresolved and _lacks_signature(image, before, signatures)
    ]
    unresolved += unsigned

    def resolved(image: DeclaredImage) -> LockedImage | ExplainedError:
        kept = before.image(image.name)
        return _resolved(image, sources, signatures, kept, resolve_tag=image not in unsigned)

    with Sources(inventory, retry) as sources:
        found = parallel_map_fairly(
            resolved, unresolved, key=lambda image: image.source.host, limit=PARALLEL_IMAGES, stop=retry.stop
        )
    locked = {one.name: one for one in found if isinstance(one, LockedImage)}
    failures = {
        image.name: one
        for image, one in zip(unresolved, found, strict=True)
        if isinstance(one, ExplainedError)
    }
    facts = recorded(inventory.directory)
    if check or failures:
        after, stacks = _with_stacks(inventory, _merged(declared, driver, locked, before), before, facts)
    else:
        with mutex.held(inventory.directory, "lock"):
            # Asking took a while: what a build or another lock wrote meanwhile stays.
            before = lock_file.read(inventory.directory) or Lock()
            after, stacks = _with_stacks(inventory, _merged(declared, driver, locked, before), before, facts)
            if after != before:
                lock_file.write(inventory.directory, after)
    code = _report(before, after, failures, stacks, check=check, as_json=as_json)
    training = after.image(TRAINING)
    if training is not None and not setting(asked_host(inventory), "training_image_digest"):
        console.say(f"apply pulls the training image by the lock's digest: {training.digest}")
    return code


def _merged(
    declared: Sequence[DeclaredImage], driver: str, resolved: Mapping[str, LockedImage], before: Lock
) -> Lock:
    images = [resolved.get(image.name) or _kept(image, before) for image in declared]
    return Lock(driver=driver, images=tuple(image for image in images if image is not None))


def _with_stacks(
    inventory: Inventory, after: Lock, before: Lock, facts: Mapping[str, NodeFacts]
) -> tuple[Lock, StackReport]:
    """The lock with the stacks of the nodes, and how those compare with the lock before."""
    report = judge_stacks(inventory, after, facts, locked=before)
    return after.model_copy(update={"stacks": stacks_of(report.resolutions)}), report


def _is_asked(image: DeclaredImage, before: Lock, *, refresh: bool) -> bool:
    """Whether its source is asked: it is new or declared otherwise, or the operator wants to know."""
    locked = before.image(image.name)
    return refresh or locked is None or not gate.is_of(locked, image)


def _kept(image: DeclaredImage, before: Lock) -> LockedImage | None:
    """What was locked before; a build that is declared otherwise is out until it is built."""
    locked = before.image(image.name)
    return None if locked and image.built and not gate.is_of(locked, image) else locked


def _lacks_signature(image: DeclaredImage, before: Lock, signatures: SignatureChecker | None) -> bool:
    """Whether a locked image has no signature in the lock that the policy demands: it was locked without."""
    locked = before.image(image.name)
    return signatures is not None and locked is not None and not signatures.is_recorded(locked)


def _resolved(
    image: DeclaredImage,
    sources: Sources,
    signatures: SignatureChecker | None,
    kept: LockedImage | None,
    *,
    resolve_tag: bool,
) -> LockedImage | ExplainedError:
    """The image as its source has it now, or as it is locked, with the signatures that a policy demands."""
    try:
        registry = sources.at(image.source)
        found = kept if kept is not None and not resolve_tag else resolve(image, registry)
        if signatures is None:
            return found
        known = found.model_copy(update={"signatures": kept.signatures if kept else ()})
        signed = signatures.check(known, registry, image.source.repository)
        return found.model_copy(update={"signatures": signed.signatures})
    except ExplainedError as error:
        return error


def _report(
    before: Lock,
    after: Lock,
    failures: dict[str, ExplainedError],
    stacks: StackReport,
    *,
    check: bool,
    as_json: bool,
) -> int:
    unserved = list(gate.unserved(after.images, after.driver).values())
    changes = [*_changes(before, after), *(one.text for one in stacks.differences)]
    bad = bool(failures or unserved or stacks.conflicts or (check and changes))
    code = EXIT_CLUSTER_BAD if bad else EXIT_GOOD
    if as_json:
        for image in after.images:
            without = {"signatures"} if not image.signatures else None
            record = image.model_dump(mode="json", exclude=without)
            console.emit({"type": "image", **record, "size": image.size})
        for name, error in failures.items():
            console.emit({"type": "failure", "name": name, "code": error.code, "what": error.what})
        wording.emit(stacks)
        console.emit(
            {"type": "summary", "images": len(after.images), "changes": changes, "failed": len(failures),
             "unserved": unserved, "conflicts": len(stacks.conflicts), "warnings": list(stacks.warnings),
             "written": not check and not failures and after != before, "exit": code}
        )  # fmt: skip
        return code
    for change in changes:
        console.RESULTS.print(change)
    for name, error in failures.items():
        console.tell(f"{name}: {error.what}", ("where:", error.where), ("hint: ", error.hint))
    for sentence in unserved:
        console.tell(f"warning: {sentence}", ("hint: ", "It will not be mirrored."), style="yellow")
    wording.show(stacks)
    locked = counted(len(after.images), "image")
    if failures:
        console.say(
            f"nothing was written: {counted(len(failures), 'image')} could not be locked; "
            "`clusterctl lock IMAGE...` locks the others, by name"
        )
    elif check:
        console.say(f"{locked} checked: {'the lock would change' if changes else 'the lock is up to date'}")
    else:
        console.say(f"{locked} in {lock_file.NAME}" + ("" if changes else ", as before"))
    return code


def _changes(before: Lock, after: Lock) -> list[str]:
    """One line an image that is other than before."""
    found = []
    if before.driver != after.driver:
        found.append(f"driver: {before.driver or 'none'} -> {after.driver or 'none'}")
    for image in after.images:
        old = before.image(image.name)
        if old is None:
            found.append(f"{image.name}: {image.source} is {image.digest} ({image.size / 1e9:.2f} GB)")
        elif old.digest != image.digest:
            found.append(f"{image.name}: {image.source} was {old.digest}, is {image.digest}")
        elif old.signatures != image.signatures:
            keys = ", ".join(f"{one.kind} {one.key}" for one in image.signatures)
            found.append(f"{image.name}: signed by {keys or 'none'}")
        elif old != image:
            found.append(f"{image.name}: described otherwise")
    found += [f"{old.name}: taken out" for old in before.images if after.image(old.name) is None]
    return found
