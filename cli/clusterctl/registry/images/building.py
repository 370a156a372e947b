"""From a recipe to an image in the cluster's registry: built by an engine, pushed blob by blob."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from clustercheck.parse.plain_text import one_line, plain_text
from clusterctl.cluster.captured import OutputTooLongError, run_captured
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.private_place import private_place
from clusterctl.engine.bounded_log import BoundedLog
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images import saved
from clusterctl.registry.images.declared import DeclaredImage
from clusterctl.registry.images.recipe import RECIPE_LABEL, BuildRecipe, recipe_of
from clusterctl.registry.images.resolve import configuration, resolve
from clusterctl.registry.images.saved import SavedImage
from clusterctl.registry.images.triggers import require_no_triggers
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob
from clusterctl.registry.oci.reference import parse

LIMIT_S = 4 * 3600.0
LOOK_S = 60.0
LAST_LINES = 12
# Of what an engine says; the last lines of a log are in its last bytes.
MAX_WORDS = 64 << 10
# Its end is noticed so late where something else keeps its output open.
OUTPUT_S = 1.0


@dataclass(frozen=True)
class Order:
    """What is to be built: by which recipe, on which base, out of which files."""

    recipe: BuildRecipe
    base: LockedImage
    context: Mapping[str, str]

    @property
    def tag(self) -> str:
        """What the engine calls it meanwhile."""
        return f"clusterctl/{self.recipe.name}:{recipe_of(self.context)[:12]}"


@dataclass(frozen=True)
class Built:
    """A build that is in the registry: as the lock keeps it, whether it was there, and how long it took."""

    image: LockedImage
    there: bool
    seconds: float
    moved: int


@dataclass(frozen=True)
class Engine:
    """The engine that builds: Docker's command line, or one that takes the same words. ``log`` keeps its."""

    log: Path
    program: str = "docker"
    limit_s: float = LIMIT_S

    def require(self) -> None:
        """Raises ClusterctlError (``images.build-engine``) where none answers."""
        try:
            done = run_captured(
                [self.program, "version", "--format", "{{.Server.Version}}"],
                stdin="", timeout_s=LOOK_S, environment=os.environ,
            )  # fmt: skip
            words = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            because = "" if done.returncode == 0 else one_line(words)
        except (OSError, subprocess.TimeoutExpired, OutputTooLongError) as error:
            because = str(error)
        if because:
            raise ClusterctlError(
                f"no engine answers that could build: {because}",
                code="images.build-engine",
                where=self.program,
                hint="Start Docker on this machine, or name another by DOCKER_HOST or `docker context use`.",
                exit_code=EXIT_CLUSTER_BAD,
            )

    def build(self, context: Mapping[str, str], tag: str) -> None:
        """Build; what it says goes to the log. Raises ClusterctlError (``images.build``)."""
        with private_place("clusterctl-build-") as place:
            for name, text in context.items():
                (place / name).write_text(text, encoding="utf-8")
            # Programs of the base run in the build, and may print without end.
            with BoundedLog(self.log) as log:
                code = _ended(
                    [self.program, "build", "--force-rm", "--tag", tag, str(place)], log, self.limit_s
                )
        if code != 0:
            lines = plain_text(_end_of(self.log)).splitlines()
            raise ClusterctlError(
                f"the build of {tag} failed (exit code {code}):\n  " + "\n  ".join(lines[-LAST_LINES:]),
                code="images.build",
                where=str(self.log),
                hint="The engine's own words are above. Where it does not trust the base's registry, copy "
                ".clusterctl/ca/ca.crt to /etc/docker/certs.d/HOST:PORT/ca.crt.",
                exit_code=EXIT_CLUSTER_BAD,
            )

    @contextmanager
    def saved(self, tag: str) -> Iterator[IO[bytes]]:
        """The image's archive, as it comes. Raises ClusterctlError (``images.build-archive``)."""
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [self.program, "save", tag], stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
            # Its end, and that of what it started, is what ends a read of an engine that says nothing more.
            watchdog = threading.Timer(self.limit_s, _kill_group, [process])
            watchdog.daemon = True
            watchdog.start()
            try:
                assert process.stdout is not None  # noqa: S101 (it was asked for)
                yield process.stdout
                # The padding after the archive's end, or the engine would find its reader gone.
                while process.stdout.read(1 << 16):
                    pass
                code = process.wait(LOOK_S)
            finally:
                watchdog.cancel()
                _kill_group(process)
                process.wait(LOOK_S)
            if code != 0:
                errors.seek(0)
                words = one_line(errors.read(MAX_WORDS).decode(errors="replace"))
                raise ClusterctlError(
                    f"the engine did not save {tag}: {words}",
                    code="images.build-archive",
                    where=f"{self.program} save",
                    hint="Run the same command again.",
                    exit_code=EXIT_CLUSTER_BAD,
                )


def there_already(order: Order, registry: Registry, known: LockedImage) -> bool:
    """Whether the registry has the image that the lock has, and that is of this very recipe and base.

    Only by the lock's digest is it known to be ours: whoever can push there can copy tag and labels.
    """
    if (known.target, known.tag) != (order.recipe.repository, order.recipe.tag):
        return False
    try:
        found = registry.manifest(order.recipe.repository, known.digest)
    except RegistryError as error:
        if error.code == "images.not-found":
            return False
        raise
    if found.config is None:
        return False
    config = configuration(registry, order.recipe.repository, found.config)
    return config.labels.get(RECIPE_LABEL) == recipe_of(order.context)


def make(
    order: Order, engine: Engine, registry: Registry, name: str, on_writing: Callable[[str], None]
) -> Built:
    """Build, push and describe one image; ``name`` is the registry as images name it.

    ``on_writing`` hears the digest of the manifest before it is written.

    Raises ClusterctlError (``images.*``).
    """
    began, base = time.monotonic(), order.base
    require_no_triggers(base, registry)
    engine.build(order.context, order.tag)
    described = registry.manifest(base.target, base.manifest)
    if described.config is None:
        raise ClusterctlError(
            f"the base {base.name} is a list, and no image", code="images.manifest", where=base.target
        )
    base_manifest = json.loads(described.raw)
    diff_ids = configuration(registry, base.target, described.config).diff_ids
    known = saved.numbers_of(diff_ids, base_manifest)
    with private_place("clusterctl-saved-") as place:
        with engine.saved(order.tag) as stream:
            image = saved.read(stream, place, known)
        digest, moved = push(order, image, base_manifest, registry, on_writing)
    return Built(locked(order.recipe, registry, name, digest), False, time.monotonic() - began, moved)


def push(
    order: Order,
    image: SavedImage,
    base_manifest: dict[str, Any],
    registry: Registry,
    on_writing: Callable[[str], None] = lambda _: None,
) -> tuple[str, int]:
    """Bring the image into the registry: the base's layers by mounting, new ones by sending.

    Returns the digest of its manifest, and how many bytes were sent.
    """
    recipe, base = order.recipe, order.base
    if base_manifest.get("mediaType") is None:
        base_manifest = {**base_manifest, "mediaType": manifest.OCI_MANIFEST}
    raw = saved.manifest_of(image, base_manifest)
    found = manifest.read(raw, base_manifest["mediaType"], recipe.target)
    moved = 0
    new = {layer.blob for layer in image.new}
    for blob in (one for one in found.layers if one not in new):
        if base.target != recipe.repository and not registry.has_blob(recipe.repository, blob.digest):
            if registry.mount(recipe.repository, blob.digest, base.target):
                continue
            registry.put_blob(recipe.repository, blob, partial(registry.pieces, base.target, blob.digest))
            moved += blob.size
    config = Blob(manifest.digest_of(image.config), len(image.config))
    sent = [(layer.blob, layer.pieces) for layer in image.new]
    for blob, content in [*sent, (config, lambda: iter([image.config]))]:
        if not registry.has_blob(recipe.repository, blob.digest):
            registry.put_blob(recipe.repository, blob, content)
            moved += blob.size
    on_writing(found.digest)
    registry.put_manifest(recipe.repository, found, recipe.tag)
    return found.digest, moved


def locked(recipe: BuildRecipe, registry: Registry, name: str, digest: str) -> LockedImage:
    """The image of that digest as the lock keeps it, read back from the registry: its tag may have moved."""
    declared = as_declared(recipe, name)
    pinned = replace(declared, source=replace(declared.source, digest=digest))
    return resolve(pinned, registry).model_copy(update={"source": str(declared.source)})


def as_declared(recipe: BuildRecipe, name: str) -> DeclaredImage:
    """The image as other commands know it: its source is the cluster's own registry."""
    return DeclaredImage(
        recipe.name, parse(f"{name}/{recipe.target}"), recipe.repository, recipe.tag, built=True
    )


def _end_of(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - MAX_WORDS))
        return stream.read(MAX_WORDS).decode(errors="replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that leads a group and was not waited for yet, and what it started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _ended(command: Sequence[str], log: BoundedLog, limit_s: float) -> int:
    """The exit code of a program whose output goes to the log; 124 where it does not end in time."""
    end = time.monotonic() + limit_s
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None  # noqa: S101 (it was asked for)
        with closing(process.stdout) as stream:
            _copy_output(process, stream, log, end)
        return process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        log.write(f"\nnot done within {limit_s:.0f} s\n".encode())
        return 124
    finally:
        _kill_group(process)
        process.wait(LOOK_S)


def _copy_output(process: subprocess.Popen[bytes], stream: IO[bytes], log: BoundedLog, end: float) -> None:
    """Until the program has ended, though what it started may keep its output open, or its time has."""
    while time.monotonic() < end:
        has_ended = process.poll() is not None
        ready, _, _ = select.select([stream], [], [], 0.0 if has_ended else OUTPUT_S)
        if ready:
            if not (chunk := os.read(stream.fileno(), MAX_WORDS)):
                return
            log.write(chunk)
        elif has_ended:
            return
