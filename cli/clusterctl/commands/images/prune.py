"""`clusterctl images prune`: what was mirrored once, and is in the lock no more."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.opened import opened
from clusterctl.commands.images import options
from clusterctl.commands.shared.options import json_option, yes_option
from clusterctl.commands.shared.question import agreed
from clusterctl.engine import mutex
from clusterctl.engine.wording import counted
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD
from clusterctl.registry.images import gate, mirrored, prune
from clusterctl.registry.images.prune import Pruning
from clusterctl.registry.images.registries import writable
from clusterctl.registry.images.spool import Spool
from clusterctl.registry.oci.manifest import Blob
from clusterctl.rollout import tables


@click.command("prune")
@click.option("--check", "--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@yes_option
@options.to_option
@json_option
@password_options
@click.pass_obj
def command(
    named: Path | None, *, check: bool, yes: bool, to: str, as_json: bool, passwords: Passwords
) -> int:
    """Remove images that `images mirror` copied and that are no longer in the lock.

    Images pushed by others stay, and so do layers shared with a locked image. Unused blobs on this machine
    are removed, too. The embedded registry frees the space immediately: it is read-only meanwhile, and
    serves nothing for a second. Harbor frees it at its next garbage collection.
    """
    inventory = opened(named)
    images = gate.locked_images(inventory)
    spool = Spool(inventory.directory.state / "images" / "spool")
    alone = contextlib.nullcontext() if check else mutex.held(inventory.directory, "images prune")
    with alone, spool.held(), writable(inventory, passwords, to) as destination:
        brought = mirrored.brought(inventory.directory)
        prunings = prune.plan(brought, images, destination.registry, destination.name)
        if not as_json:
            tables.show(_table(prunings))
        question = f"Remove {counted(len(prunings), 'image')} from {destination.name}?"
        going = bool(prunings) and not check and agreed(question, yes=yes)
        if going:
            gone = prune.run_prunings(prunings, destination.registry)
            if gone:
                destination.collect()
            # Forgotten before, what was not collected would never be: nobody would come back for it.
            mirrored.forget(inventory.directory, gone)
        blobs = {Blob(blob.digest, blob.size) for image in images for blob in (image.config, *image.layers)}
        swept = spool.sweep(blobs) if going or not (check or prunings) else 0
    return _report(prunings, going=going, asked=not check, swept=swept, as_json=as_json)


def _report(prunings: Sequence[Pruning], *, going: bool, asked: bool, swept: int, as_json: bool) -> int:
    failed = [one for one in prunings if one.error is not None]
    refused = asked and bool(prunings) and not going
    code = EXIT_CLUSTER_BAD if failed or refused else EXIT_GOOD
    if as_json:
        for one in prunings:
            image, error = one.image, one.error
            console.emit(
                {"type": "image", "name": image.name, "target": image.repository, "digest": image.digest,
                 "removed": going and error is None, "code": error.code if error else None,
                 "what": error.what if error else None}
            )  # fmt: skip
        removed = len(prunings) - len(failed) if going else 0
        console.emit(
            {"type": "summary", "removed": removed, "failed": len(failed), "swept": swept, "exit": code}
        )
        return code
    for one in failed:
        if one.error is not None:
            console.tell(f"{one.image.name}: {one.error.what}", ("hint: ", one.error.hint), style="bold red")
    if going:
        console.RESULTS.print(f"{counted(len(prunings) - len(failed), 'image')} removed")
    elif not prunings:
        console.RESULTS.print("nothing to remove")
    return code


def _table(prunings: Sequence[Pruning]) -> Table:
    table = tables.new_table("image", "in the registry", "brought")
    for one in prunings:
        image = one.image
        table.add_row(
            image.name, f"{image.repository}{f':{image.tag}' if image.tag else ''}\n{image.digest}", image.at
        )
    return table
