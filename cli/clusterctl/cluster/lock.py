"""`clusterctl.lock`: what the images of this cluster are, to the byte. Kept in git."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, StringConstraints, ValidationError

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster import bounded_yaml, names
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, read_bounded_text
from clusterctl.cluster.compatibility import Drivers, Needs
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.image_names import RepositoryName, TagName
from clusterctl.cluster.record import Record
from clusterctl.cluster.state_files import replace_file
from clusterctl.cluster.state_reading import MAX_BYTES
from clusterctl.cluster.untrusted import PlainLine, first_problem
from clusterctl.errors import ClusterctlError

NAME = names.LOCK_FILE
HEAD = "# Written by `clusterctl lock`. Keep it in git: images go by these digests, and by no tag.\n"
SCHEMA: Literal[1] = 1
# So much is read whatever it holds: a line of a layer has 110 bytes and five of bounded_yaml.MAX_NODES.
MAX_WRITTEN_BYTES = 8 << 20

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]

HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,253}$")]
# What stands in a table of versions: it is printed.
Value = Annotated[str, StringConstraints(pattern=r"^[ -~]{1,200}$")]


class LockedBlob(Record):
    """A layer, or an image's configuration."""

    digest: Digest
    size: Annotated[int, Field(ge=0)]


class LockedSignature(Record):
    """A signature that the policy demanded, as it was verified.

    ``key`` is the SHA-256 of a cosign key, or the fingerprint of a GPG key; ``signed`` the manifest, the
    image's or that of its list; ``payload`` the digest of what the signer wrote.
    """

    kind: Literal["cosign", "gpg"]
    key: Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64}|[0-9A-F]{40}|[0-9A-F]{64})$")]
    signed: Digest
    payload: Digest
    at: Annotated[str, StringConstraints(pattern=r"^[0-9T:Z-]{1,30}$")]


class LockedImage(Record):
    """One image. ``digest`` is what is copied and pulled; ``index`` the upstream's list that it was found in.

    Of an image for several platforms ``digest`` is the list, and ``manifest`` that of the first platform.
    """

    name: PlainLine
    source: PlainLine
    target: RepositoryName
    tag: TagName = ""
    index: Digest | None = None
    digest: Digest
    platforms: tuple[PlainLine, ...]
    manifest: Digest
    config: LockedBlob
    layers: tuple[LockedBlob, ...]
    cuda: PlainLine = ""
    cudnn: PlainLine = ""
    nccl: PlainLine = ""
    compute_capabilities: PlainLine = ""
    minimum_driver: PlainLine = ""
    drivers: tuple[tuple[PlainLine, PlainLine], ...] = ()
    minimum_driver_from: PlainLine = ""
    signatures: tuple[LockedSignature, ...] = ()

    @property
    def size(self) -> int:
        """Bytes that a pull moves, compressed as they are."""
        return sum(layer.size for layer in {layer.digest: layer for layer in self.layers}.values())

    @property
    def needs(self) -> Needs:
        """What it asks of a driver."""
        ranges = tuple(Drivers(least, below) for least, below in self.drivers)
        return Needs(
            self.cuda, self.cudnn, self.nccl, self.compute_capabilities, ranges, self.minimum_driver_from
        )


class LockedStack(Record):
    """Hosts of one kind, and the versions and properties that are decided for them, by variable."""

    hosts: tuple[HostName, ...]
    values: dict[Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,30}$")], Value]


class Lock(Record):
    """The whole file. ``driver`` is what the nodes have by their settings: a version, else a branch."""

    schema_: Literal[1] = SCHEMA
    driver: PlainLine = ""
    stacks: tuple[LockedStack, ...] = ()
    images: tuple[LockedImage, ...] = ()

    def image(self, name: str) -> LockedImage | None:
        """The image of that name."""
        return next((image for image in self.images if image.name == name), None)


def path(directory: ClusterDirectory) -> Path:
    """Where the lock lies."""
    return directory.root / NAME


def read(directory: ClusterDirectory) -> Lock | None:
    """The lock; None if there is none yet. Raises ClusterctlError (``images.lock-unreadable``)."""
    file = path(directory)
    try:
        text = read_bounded_text(file, MAX_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, UnusableFileError) as error:
        raise _unreadable(file, describe_unusable(error)) from None
    return parse(text, file)


def parse(text: str, file: Path) -> Lock:
    """Read a lock's text. Raises ClusterctlError (``images.lock-unreadable``)."""
    try:
        answer = bounded_yaml.load(text)
        if not isinstance(answer, dict):
            raise _unreadable(file, "it holds no mapping")
        return Lock.model_validate({"schema_": answer.pop("schema", None), **answer})
    except ValidationError as error:
        raise _unreadable(file, first_problem(error)) from None
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(file, one_line(str(error))) from None


def write(directory: ClusterDirectory, lock: Lock) -> None:
    """Replace the lock at once, never half of it.

    Raises ClusterctlError (``images.lock-unreadable``) for one that would not be read again.
    """
    text = text_of(lock)
    if len(text.encode()) > MAX_WRITTEN_BYTES:
        largest = max(lock.images, key=lambda image: len(image.model_dump_json()))
        raise ClusterctlError(
            f"the lock would have more than {MAX_WRITTEN_BYTES >> 20} MiB, most of them of {largest.name}",
            code="images.lock-unreadable",
            where=str(path(directory)),
            hint="Is it the image that was meant? `platforms` names what you want of it.",
        )
    replace_file(path(directory), text, mode=0o644)


def text_of(lock: Lock) -> str:
    """The file's text: the same lock, the same text."""
    record = lock.model_dump(mode="json", exclude_defaults=True)
    images = [_plain(image) for image in record.pop("images", [])]
    for stack in record.get("stacks", []):
        stack["hosts"] = _FlowList(stack["hosts"])
    answer = {"schema": SCHEMA, **record, "images": images}
    dumped = yaml.dump(answer, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return HEAD + re.sub(r"^- ", "\n- ", dumped, flags=re.MULTILINE)


def summary(lock: Lock) -> dict[str, Any]:
    """The lock as a result document keeps it: what it pins, without the layers."""
    return {
        "driver": lock.driver,
        "stacks": [stack.model_dump(mode="json") for stack in lock.stacks],
        "images": [
            {
                "name": image.name,
                "source": image.source,
                "tag": image.tag,
                "digest": image.digest,
                "cuda": image.cuda,
                "cudnn": image.cudnn,
                "nccl": image.nccl,
                "minimum_driver": image.minimum_driver,
            }
            for image in lock.images
        ],
    }


class _Dumper(yaml.SafeDumper):
    """Blobs on a line each: a layer that changed is one line of a diff."""


class _FlowMapping(dict[str, Any]):
    """A mapping that stands on one line."""


class _FlowList(list[Any]):
    """A list that stands on one line."""


_Dumper.add_representer(
    _FlowList,
    lambda dumper, line: dumper.represent_sequence("tag:yaml.org,2002:seq", line, flow_style=True),
)
_Dumper.add_representer(
    _FlowMapping,
    lambda dumper, line: dumper.represent_mapping("tag:yaml.org,2002:map", line, flow_style=True),
)


def _plain(image: dict[str, Any]) -> dict[str, Any]:
    lines = {
        "config": _FlowMapping(image["config"]),
        "layers": [_FlowMapping(layer) for layer in image["layers"]],
        "signatures": [_FlowMapping(signature) for signature in image.get("signatures", [])],
    }
    return {key: lines.get(key, value) for key, value in image.items()}


def _unreadable(file: Path, because: str) -> ClusterctlError:
    return ClusterctlError(
        f"the lock cannot be read: {because}",
        code="images.lock-unreadable",
        where=str(file),
        hint="Take it back from git, or write it again: clusterctl lock",
    )
