"""`clusterctl images verify`: is what the registry has what the lock says?"""

from __future__ import annotations

from collections import Counter
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
from clusterctl.registry.images.signatures.checking import checker
from clusterctl.registry.images.signatures.verifying import judge_signatures
from clusterctl.registry.images.verify import verify
from clusterctl.rollout import tables


@click.command("verify")
@options.names_argument
@click.option("--deep", is_flag=True, help="Read and hash every blob: all bytes go over the network.")
@options.to_option
@options.jobs_option
@json_option
@click.pass_obj
def command(
    named: Path | None, *, names: tuple[str, ...], deep: bool, to: str, jobs: int, as_json: bool
) -> int:
    """Verify that the registry has every byte that the lock names. Changes nothing.

    Manifests are read and hashed, and the existence of blobs is checked; --deep also reads those. Exit code
    1 if anything is missing or wrong, 3 if it could not be determined. With images_signatures the state of
    signatures is shown: verified here, or recorded in the lock.
    """
    inventory = opened(named)
    images = gate.locked_images(inventory, names)
    with readable(inventory, to) as destination:
        found = verify(images, destination.registry, jobs=jobs, deep=deep)
        if (signatures := checker(inventory)) is not None:
            found = judge_signatures(signatures, found, destination.registry, jobs=jobs)
    options.tell_who(destination)
    code = exit_code(found)
    if as_json:
        for one in found:
            console.emit(one.as_record())
        console.emit({"type": "summary", "images": len(found), "deep": deep, "exit": code})
        return code
    tables.show(options.outcome_table(found))
    options.tell_failures(found)
    if signatures is not None:
        states = Counter(one.signature or "not known" for one in found)
        words = ", ".join(f"{number} {state}" for state, number in states.items())
        console.RESULTS.print(f"signatures: {words}")
    good = sum(one.state is TransferState.THERE for one in found)
    how = "every byte read" if deep else "existence of blobs checked; --deep reads them"
    console.RESULTS.print(f"{good} of {counted(len(found), 'image')} whole in {destination.name}, {how}")
    return code
