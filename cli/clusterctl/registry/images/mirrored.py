"""What we have put into registries: nothing else is ever taken out of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable
from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.state_files import locked, replace_file
from clusterctl.cluster.state_reading import read_json
from clusterctl.errors import ClusterctlError


@dataclass(frozen=True)
class Brought:
    """One image that was brought into a registry, or had started to be: ``manifests``, children first.

    Only those that we wrote, for this image or another: what lay there before may be somebody else's,
    whatever the image lists. Earlier versions recorded all. ``signature`` is the artifact with its
    signatures, where that was brought, too.
    """

    registry: str
    repository: str
    digest: str
    name: str
    tag: str
    at: str
    manifests: tuple[str, ...] = ()
    signature: str = ""


_FORM: TypeAdapter[tuple[Brought, ...]] = TypeAdapter(tuple[Brought, ...])
MAX_BYTES = 64 << 20  # years of images
MAX_MANIFESTS_OF_IMAGE = 5000  # some 0.4 MB; beyond, its oldest are forgotten, and never pruned


def path(directory: ClusterDirectory) -> Path:
    """Where it is written down."""
    return directory.state / "images" / "mirrored.json"


def brought(directory: ClusterDirectory) -> list[Brought]:
    """All of it, the oldest first. Raises ClusterctlError (``images.record-unreadable``)."""
    file = path(directory)
    try:
        entries = read_json(file, _FORM, max_bytes=MAX_BYTES)
        return list(entries)
    except FileNotFoundError:
        return []
    except (OSError, UnusableFileError) as error:
        raise ClusterctlError(
            f"the record of mirrored images cannot be read: {describe_unusable(error)}",
            code="images.record-unreadable",
            where=str(file),
            hint="Move the file away: only images that are mirrored from now on are pruned then.",
        ) from None


def remember(directory: ClusterDirectory, new: Brought, written: Collection[str]) -> None:
    """Write down what is about to be brought: before its first manifest, so that no interruption loses it.

    Of its manifests those are ours that are about to be written, and those that we wrote before.
    Raises ClusterctlError (``images.record-unreadable``, ``cluster.state-not-writable``).
    """
    with state_access():
        path(directory).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(directory):
        known = {(one.registry, one.repository, one.digest): one for one in brought(directory)}
        place = (new.registry, new.repository)
        ours = {d for one in known.values() if (one.registry, one.repository) == place for d in one.manifests}
        before = known.pop((*place, new.digest), None)
        known[*place, new.digest] = replace(
            new,
            manifests=tuple(digest for digest in new.manifests if digest in ours or digest in written),
            signature=before.signature if before else "",
        )
        _write(directory, _without_oldest(new.name, list(known.values())))


def remember_signature(
    directory: ClusterDirectory, registry: str, repository: str, digest: str, signature: str
) -> None:
    """Write down the artifact that is about to be brought to an image, if we brought that.

    Raises ClusterctlError (``images.record-unreadable``, ``cluster.state-not-writable``).
    """
    with state_access():
        path(directory).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(directory):
        before = brought(directory)
        known = [
            replace(one, signature=signature)
            if (one.registry, one.repository, one.digest) == (registry, repository, digest)
            else one
            for one in before
        ]
        if known != before:
            _write(directory, known)


def forget(directory: ClusterDirectory, gone: Sequence[Brought]) -> None:
    """Strike out what is there no more."""
    with locked(directory):
        _write(directory, [one for one in brought(directory) if one not in gone])


def _without_oldest(name: str, entries: Sequence[Brought]) -> list[Brought]:
    """The same; of one image no more than its share: a source gives it as many manifests as it likes."""
    left, kept = MAX_MANIFESTS_OF_IMAGE, []
    for one in reversed(entries):
        if one.name == name:
            left -= 1 + len(one.manifests)
        if one.name != name or left >= 0 or one is entries[-1]:
            kept.append(one)
    return kept[::-1]


def _write(directory: ClusterDirectory, entries: Sequence[Brought]) -> None:
    records = [asdict(one) for one in entries]
    for record in records:
        if not record["signature"]:
            del record["signature"]
    replace_file(path(directory), json.dumps(records, indent=1) + "\n")
