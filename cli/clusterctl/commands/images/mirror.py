"""`clusterctl images mirror`: from their sources into the cluster's registry."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.opened import opened
from clusterctl.commands.images import options
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.wording import counted, elapsed
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INTERRUPTED, ClusterctlError
from clusterctl.live_area import LiveArea
from clusterctl.registry.images import gate, mirrored
from clusterctl.registry.images.declared import nodes_driver
from clusterctl.registry.images.mirror import Course, Plan, carry_out, survey
from clusterctl.registry.images.outcome import Outcome, State, exit_code
from clusterctl.registry.images.places import Destination, Sources, writable
from clusterctl.registry.images.spool import Spool
from clusterctl.registry.oci.patience import Patience
from clusterctl.rollout import tables
from clusterctl.runs.store import RunStore


@click.command("mirror")
@options.names_argument
@click.option("--check", is_flag=True, help="Say what would be brought, and bring nothing.")
@click.option(
    "--spool", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Where blobs lie on their way; by default in .clusterctl.",
)  # fmt: skip
@options.to_option
@options.jobs_option
@options.json_option
@password_options
@click.pass_obj
def command(
    named: Path | None,
    *,
    names: tuple[str, ...],
    check: bool,
    spool: Path | None,
    to: str,
    jobs: int,
    as_json: bool,
    passwords: Passwords,
) -> int:
    """Copy every locked image into the cluster's registry, by digest, blob by blob.

    What is there is not sent again, a blob of several images comes once, and a blob that was cut off goes on
    where it stopped, whoever was killed. An image that fails stops no other; the exit code is 1 then. Images
    that the nodes' driver cannot run are refused before anything moves.
    """
    inventory = opened(named)
    images = gate.locked_images(inventory, names)
    gate.require_driver(images, nodes_driver(inventory))
    stop = threading.Event()
    patience = Patience(stop=stop)
    inventory.directory.ensure_state()
    place = Spool(spool or inventory.directory.state / "images" / "spool", stop)
    with (
        terminated_like_interrupted(),
        place.held(),
        Sources(inventory, patience) as sources,
        writable(inventory, passwords, to, patience) as destination,
    ):
        plan = survey(images, sources.of, destination.registry, jobs)
        if check:
            return _planned(plan, destination, as_json=as_json)
        _require_room(plan, place, destination, jobs)
        work = _Work(inventory, images, plan, sources, destination, place, jobs, show=not as_json)
        return _report(work, as_json=as_json)


@dataclass
class _Work:
    inventory: Inventory
    images: Sequence[LockedImage]
    plan: Plan
    sources: Sources
    destination: Destination
    spool: Spool
    jobs: int
    show: bool
    began: float = field(default_factory=time.monotonic)

    def done(self) -> list[Outcome]:
        """Bring them, and remember what was brought."""
        with _shown(self.plan, live=self.show and console.is_live()) as tick:
            outcomes = carry_out(
                self.plan,
                self.sources.of,
                self.destination.registry,
                self.spool,
                jobs=self.jobs,
                on_tick=tick,
            )
        brought = [one.image for one in outcomes if one.state is State.COPIED]
        mirrored.remember(self.inventory.directory, self.destination.name, brought)
        return outcomes


def _require_room(plan: Plan, spool: Spool, destination: Destination, jobs: int) -> None:
    spool.room_for(plan.to_fetch, jobs, kept=False)
    free = destination.free()
    if free is not None and free < plan.bytes:
        raise ClusterctlError(
            f"{options.size(plan.bytes)} are to come, and {options.size(free)} are free there",
            code="images.no-space",
            where=destination.name,
            hint="Make room in registry_data_dir on the registry's host; `clusterctl images prune` may help.",
            exit_code=EXIT_CLUSTER_BAD,
        )


def _planned(plan: Plan, destination: Destination, *, as_json: bool) -> int:
    failed = [Outcome(w.image, State.UNKNOWN, w.error) for w in plan.wanted if w.error]
    missing = [Outcome(w.image, State.MISSING) for w in plan.wanted if not w.error]
    found = [*(Outcome(image, State.THERE) for image in plan.there), *missing, *failed]
    code = exit_code(failed) if failed else EXIT_GOOD
    if as_json:
        for one in found:
            console.emit(one.as_record())
        console.emit({"type": "summary", "to_bring": len(missing), "bytes": plan.bytes, "exit": code})
        return code
    tables.show(options.outcome_table(found))
    options.tell_failures(found)
    words = f"{counted(len(missing), 'image')} to bring into {destination.name}: {options.size(plan.bytes)}"
    console.RESULTS.print(f"{words} in {counted(len(plan.to_fetch), 'blob')}", markup=False)
    return code


def _report(work: _Work, *, as_json: bool) -> int:
    store = RunStore(work.inventory.directory)
    run = store.create("mirror", [image.name for image in work.images])
    try:
        outcomes = work.done()
    except KeyboardInterrupt:
        store.finish(run, EXIT_INTERRUPTED, {"type": "summary", "run": run.id, "exit": EXIT_INTERRUPTED})
        raise
    seconds = time.monotonic() - work.began
    moved = sum(one.moved for one in outcomes)
    code = exit_code(outcomes)
    summary: dict[str, Any] = {
        "type": "summary",
        "run": run.id,
        "registry": work.destination.name,
        "changed": sum(one.state is State.COPIED for one in outcomes),
        "failed": sum(one.state is State.FAILED for one in outcomes),
        "bytes": moved,
        "seconds": round(seconds, 3),
        "exit": code,
    }
    store.finish(run, code, {**summary, "images": [one.as_record() for one in outcomes]})
    if as_json:
        for one in outcomes:
            console.emit(one.as_record())
        console.emit(summary)
        return code
    tables.show(options.outcome_table(outcomes))
    options.tell_failures(outcomes)
    words = f"{summary['changed']} copied, {summary['failed']} failed, {len(work.plan.there)} were there"
    console.RESULTS.print(
        f"{words}: {options.size(moved)} came in {elapsed(seconds)}, "
        f"{moved / 1e6 / max(seconds, 1e-3):.0f} MB/s (run {run.id})",
        markup=False,
    )
    return code


@contextmanager
def _shown(plan: Plan, *, live: bool) -> Iterator[Any]:
    """How far it has come, in one line at the lower end of a terminal."""
    began = time.monotonic()
    if not live:
        yield lambda _: None
        return
    area = LiveArea(console.MESSAGES)
    area.open()

    def draw(course: Course) -> None:
        seconds = time.monotonic() - began
        words = f"{course.blobs_done} of {counted(course.blobs, 'blob')}, "
        words += f"{options.size(course.bytes_done)} of {options.size(course.bytes)}, {elapsed(seconds)}"
        if course.bytes_done and course.bytes_done < course.bytes:
            left = seconds * (course.bytes - course.bytes_done) / course.bytes_done
            words += f", about {elapsed(left)} to go"
        area.draw([Text(f"bringing {counted(len(plan.wanted), 'image')}: {words}")])

    try:
        yield draw
    finally:
        area.close()
