"""`clusterctl images list`: what is locked, and what of it the registry has."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.opened import opened
from clusterctl.commands.images import options
from clusterctl.commands.shared.options import json_option
from clusterctl.engine.wording import counted
from clusterctl.registry.images import gate
from clusterctl.registry.images.outcome import TransferState, exit_code
from clusterctl.registry.images.registries import readable
from clusterctl.registry.images.verify import presence
from clusterctl.rollout import tables


@click.command("list")
@options.names_argument
@options.to_option
@json_option
@click.pass_obj
def command(named: Path | None, *, names: tuple[str, ...], to: str, as_json: bool) -> int:
    """List locked images, and which of them the cluster's registry has. Changes nothing.

    Exit code 1 if an image is missing, 3 if the registry does not answer.
    """
    inventory = opened(named)
    images = gate.locked_images(inventory, names)
    with readable(inventory, to) as destination:
        found = presence(images, destination.registry)
    options.tell_who(destination)
    code = exit_code(found)
    if as_json:
        for one in found:
            console.emit(
                one.as_record() | {"cuda": one.image.cuda, "minimum_driver": one.image.minimum_driver}
            )
        console.emit({"type": "summary", "images": len(found), "exit": code})
        return code
    tables.show(options.outcome_table(found))
    options.tell_failures(found)
    there = sum(one.state is TransferState.THERE for one in found)
    console.RESULTS.print(f"{there} of {counted(len(found), 'image')} in {destination.name}")
    return code
