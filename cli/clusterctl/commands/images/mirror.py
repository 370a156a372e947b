"""`clusterctl images mirror`: from their sources into the cluster's registry."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.opened import opened
from clusterctl.commands.images import bringing, options
from clusterctl.commands.shared.options import json_option
from clusterctl.engine import mutex
from clusterctl.registry.images import gate
from clusterctl.registry.images.declared import nodes_driver
from clusterctl.registry.images.mirror import survey
from clusterctl.registry.images.registries import Sources, writable
from clusterctl.registry.images.signatures.checking import checker
from clusterctl.registry.images.signatures.verifying import VerifiedImages, verify_signatures
from clusterctl.registry.images.spool import Spool
from clusterctl.registry.images.upstream import Upstream
from clusterctl.registry.oci.retry import RetryPolicy


@click.command("mirror")
@options.names_argument
@click.option("--check", "--dry-run", is_flag=True, help="Show what would be copied, and copy nothing.")
@click.option(
    "--spool", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Directory for blobs in transfer; by default in .clusterctl.",
)  # fmt: skip
@options.deep_option
@options.to_option
@options.jobs_option
@json_option
@password_options
@click.pass_obj
def command(
    named: Path | None,
    *,
    names: tuple[str, ...],
    check: bool,
    deep: bool,
    spool: Path | None,
    to: str,
    jobs: int,
    as_json: bool,
    passwords: Passwords,
) -> int:
    """Copy every locked image into the cluster's registry, by digest, blob by blob.

    Existing blobs are not sent again, a blob of several images is copied once from each registry that
    they come from, and an interrupted transfer is resumed. A blob that the registry has lost is copied
    again. An image that the nodes' driver cannot run, or that is not signed as images_signatures demands,
    is not copied. If an image fails, the others are still copied; the exit code is 1 then, or 2 if all
    failures were refused logins or images that the driver cannot run.
    """
    inventory = opened(named)
    images = gate.locked_images(inventory, names)
    unserved = gate.driver_failures(images, nodes_driver(inventory))
    inventory.directory.ensure_state()
    with (
        options.stoppable() as stop,
        contextlib.nullcontext() if check else mutex.held(inventory.directory, "images mirror"),
        (place := Spool(spool or inventory.directory.state / "images" / "spool", stop)).held(),
        Sources(inventory, RetryPolicy(stop=stop)) as sources,
        writable(inventory, passwords, to, RetryPolicy(stop=stop)) as destination,
    ):
        origin = Upstream(sources.of, place)
        signatures = checker(inventory)
        verified = (
            VerifiedImages()
            if signatures is None
            else verify_signatures(signatures, images, sources.of, stop)
        )
        failures = {**verified.failures, **unserved}
        plan = survey(images, origin, destination.registry, jobs, deep=deep, failures=failures)
        if check:
            return bringing.planned(plan, destination, as_json=as_json)
        plan.leave_out(lambda blobs: place.room_for(blobs, jobs))
        bringing.require_room(plan, destination)
        job = bringing.TransferJob(
            "mirror", inventory, plan, origin, destination, stop, jobs, show=not as_json,
            artifacts={name: one.artifact for name, one in verified.signed.items() if one.artifact},
            sources=sources.of,
        )  # fmt: skip
        return bringing.bring(job, as_json=as_json)
