"""What `images mirror` and `images bundle load` have in common: a plan, its carrying out, and the report."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rich.text import Text

from clusterctl import console
from clusterctl.cluster.inventory import Inventory
from clusterctl.commands.images import options
from clusterctl.engine.wording import counted, elapsed
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, ClusterctlError, ExplainedError
from clusterctl.live_area import LiveArea
from clusterctl.parallel import parallel_map_fairly
from clusterctl.registry.images import mirrored
from clusterctl.registry.images.mirror import (
    MirrorPlan,
    Opened,
    Origin,
    PlannedImage,
    TransferProgress,
    run_plan,
)
from clusterctl.registry.images.mirrored import Brought
from clusterctl.registry.images.outcome import TransferOutcome, TransferState, exit_code, looked_at
from clusterctl.registry.images.registries import Destination
from clusterctl.registry.images.resolve import source_host
from clusterctl.registry.images.signatures import artifact, cosign
from clusterctl.registry.images.signatures.checking import IMAGE_S
from clusterctl.registry.images.signatures.claim import RefusedSignatureError
from clusterctl.registry.oci.deadline import within
from clusterctl.registry.oci.manifest import Blob, Manifest
from clusterctl.rollout import tables
from clusterctl.runs.store import now
from clusterctl.runs.syslog import anchored_store


@dataclass
class TransferJob:
    """One command that brings images: what, from where, to where, and how."""

    kind: str
    inventory: Inventory
    plan: MirrorPlan
    origin: Origin
    destination: Destination
    stop: threading.Event
    jobs: int
    show: bool
    artifacts: Mapping[str, Manifest] = field(default_factory=dict)
    sources: Opened | None = None
    began: float = field(default_factory=time.monotonic)

    def done(self) -> list[TransferOutcome]:
        """Bring them; what is brought is remembered before its first manifest is there."""
        with _shown(self.plan, live=self.show and console.is_live()) as tick:
            outcomes = run_plan(
                self.plan,
                self.origin,
                self.destination.registry,
                jobs=self.jobs,
                stop=self.stop,
                on_tick=tick,
                on_writing=self._remember,
            )
        return parallel_map_fairly(
            self._with_signatures,
            outcomes,
            key=lambda outcome: source_host(outcome.image),
            limit=self.jobs,
            stop=self.stop,
        )

    def _with_signatures(self, outcome: TransferOutcome) -> TransferOutcome:
        """Bring the signatures of an image that is there now, so that nodes and their registry find them."""
        with within(IMAGE_S):
            return self._bring_artifact(outcome)

    def _bring_artifact(self, outcome: TransferOutcome) -> TransferOutcome:
        image, found = outcome.image, self.artifacts.get(outcome.image.name)
        if found is None or self.sources is None or outcome.error is not None:
            return outcome
        registry, name = self.destination.registry, self.destination.name
        try:
            there = cosign.find_artifact(registry, image.target, image.digest)
            if there is None or (there.digest != found.digest and artifact.is_part(there, of=found)):
                mirrored.remember_signature(
                    self.inventory.directory, name, image.target, image.digest, found.digest
                )
                artifact.bring(found, image, self.sources(image), registry)
            elif not artifact.is_part(found, of=there):
                console.say(f"{image.name}: {name} has other signatures of it, which were left as they are")
        except RefusedSignatureError as error:
            console.say(f"{image.name}: {name} has a signature of it that {error}; it was left as it is")
        except ExplainedError as error:
            return replace(outcome, state=TransferState.FAILED, error=error)
        return outcome

    def _remember(self, wanted: PlannedImage, missing: Sequence[Manifest]) -> None:
        image, name = wanted.image, self.destination.name
        whole, written = ([one.digest for one in each] for each in (wanted.manifests, missing))
        new = Brought(name, image.target, image.digest, image.name, image.tag, now(), tuple(whole))
        mirrored.remember(self.inventory.directory, new, written)


def require_room(plan: MirrorPlan, destination: Destination) -> None:
    """Leave out images for which the destination's disk is too small; where nobody can say, say that.

    Raises ClusterctlError (``images.no-space``) where none is left.
    """
    free = destination.free()
    if free is None:
        console.say(f"free space at {destination.name} was not checked: {destination.unseen}")
        return

    def require(blobs: Sequence[Blob]) -> None:
        needed = sum(blob.size for blob in set(blobs))
        if free < needed:
            raise ClusterctlError(
                f"{options.size(needed)} are to come, and {options.size(free)} are free there",
                code="images.no-space",
                where=destination.name,
                hint="Make room on the registry's host (registry_data_dir; Harbor: harbor_data_dir); "
                "`clusterctl images prune` may help.",
                exit_code=EXIT_CLUSTER_BAD,
            )

    plan.leave_out(require)


def planned(plan: MirrorPlan, destination: Destination, *, as_json: bool) -> int:
    """Say what would be brought."""
    failed = [looked_at(w.image, w.error) for w in plan.wanted if w.error]
    missing = [TransferOutcome(w.image, TransferState.MISSING) for w in plan.wanted if not w.error]
    found = [*(TransferOutcome(image, TransferState.THERE) for image in plan.there), *missing, *failed]
    code = exit_code(failed) if failed else EXIT_GOOD
    if as_json:
        for one in found:
            console.emit(one.as_record())
        console.emit({"type": "summary", "to_bring": len(missing), "bytes": plan.bytes, "exit": code})
        return code
    tables.show(options.outcome_table(found))
    options.tell_failures(found)
    words = f"{counted(len(missing), 'image')} to copy to {destination.name}: {options.size(plan.bytes)}"
    console.RESULTS.print(f"{words} in {counted(len(plan.to_fetch), 'blob')}")
    return code


def bring(job: TransferJob, *, as_json: bool) -> int:
    """Do it as a run that is kept, and say what came of it.

    Raises ClusterctlError (``images.record-unreadable``) before anything moves.
    """
    mirrored.brought(job.inventory.directory)
    store = anchored_store(job.inventory)
    run = store.create(job.kind, job.plan.names)
    with store.finished_on_error(run):
        outcomes = job.done()
    seconds = time.monotonic() - job.began
    moved = sum(one.moved for one in outcomes)
    code = exit_code(outcomes)
    summary: dict[str, Any] = {
        "type": "summary",
        "run": run.id,
        "registry": job.destination.name,
        "changed": sum(one.state is TransferState.COPIED for one in outcomes),
        "failed": sum(one.state is TransferState.FAILED for one in outcomes),
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
    words = f"{summary['changed']} copied, {summary['failed']} failed, {len(job.plan.there)} were there"
    console.RESULTS.print(
        f"{words}: {options.size(moved)} came in {elapsed(seconds)}, "
        f"{moved / 1e6 / max(seconds, 1e-3):.0f} MB/s (run {run.id})",
    )
    return code


@contextmanager
def _shown(plan: MirrorPlan, *, live: bool) -> Iterator[Any]:
    """How far it has come, in one line at the lower end of a terminal."""
    began = time.monotonic()
    if not live:
        yield lambda _: None
        return
    area = LiveArea(console.MESSAGES)
    area.open()

    def draw(course: TransferProgress) -> None:
        seconds = time.monotonic() - began
        words = f"{course.blobs_done} of {counted(course.blobs, 'blob')}, "
        words += f"{options.size(course.bytes_done)} of {options.size(course.bytes)}, {elapsed(seconds)}"
        if course.bytes_done and course.bytes_done < course.bytes:
            left = seconds * (course.bytes - course.bytes_done) / course.bytes_done
            words += f", about {elapsed(left)} to go"
        area.draw([Text(f"copying {counted(len(plan.wanted), 'image')}: {words}")])

    try:
        yield draw
    finally:
        area.close()
