"""An image of one layer, written as the CNCF distribution registry stores it on disk."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 20
# Fast rather than small: the image travels over a bridge of this machine.
GZIP_LEVEL = 1
GZIP_WINDOW = 31

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
LAYER_TYPE = "application/vnd.docker.image.rootfs.diff.tar.gzip"
CREATED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class StoredBlob:
    """A stored blob: its digest (``sha256:...``) and size in bytes."""

    digest: str
    size: int


def store_image(root: Path, repository: str, tag: str, tar: Path, config: Mapping[str, object]) -> str:
    """Store ``tar`` as ``repository:tag`` under ``root`` (the registry's rootdirectory).

    Returns the manifest's digest.
    """
    layer, unpacked = _store_layer(root, tar)
    document = {
        "architecture": "amd64",
        "os": "linux",
        "created": CREATED,
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [unpacked]},
        "history": [{"created": CREATED, "created_by": "clusterctl lab"}],
    }
    settings = store_blob(root, _json(document))
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "size": settings.size, "digest": settings.digest},
        "layers": [{"mediaType": LAYER_TYPE, "size": layer.size, "digest": layer.digest}],
    }
    stored = store_blob(root, _json(manifest))
    place = _v2(root) / "repositories" / repository
    for blob in (layer, settings):
        _link(place / "_layers", blob.digest)
    _link(place / "_manifests" / "revisions", stored.digest)
    _link(place / "_manifests" / "tags" / tag / "index", stored.digest)
    current = place / "_manifests" / "tags" / tag / "current" / "link"
    current.parent.mkdir(parents=True)
    current.write_text(stored.digest, encoding="ascii")
    return stored.digest


def store_blob(root: Path, content: bytes) -> StoredBlob:
    """Store bytes under their own digest."""
    blob = StoredBlob(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
    path = _data(root, blob.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return blob


def _store_layer(root: Path, tar: Path) -> tuple[StoredBlob, str]:
    """Compress ``tar`` into the store; returns the blob, and the digest of what was inside."""
    inside, outside, size = hashlib.sha256(), hashlib.sha256(), 0
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW)
    root.mkdir(parents=True, exist_ok=True)
    temporary = root / "layer.part"
    with tar.open("rb") as source, temporary.open("wb") as target:
        while chunk := source.read(CHUNK):
            inside.update(chunk)
            packed = compressor.compress(chunk)
            outside.update(packed)
            size += target.write(packed)
        packed = compressor.flush()
        outside.update(packed)
        size += target.write(packed)
    digest = f"sha256:{outside.hexdigest()}"
    path = _data(root, digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.rename(path)
    return StoredBlob(digest, size), f"sha256:{inside.hexdigest()}"


def _v2(root: Path) -> Path:
    return root / "docker" / "registry" / "v2"


def _data(root: Path, digest: str) -> Path:
    algorithm, _, value = digest.partition(":")
    return _v2(root) / "blobs" / algorithm / value[:2] / value / "data"


def _link(directory: Path, digest: str) -> None:
    algorithm, _, value = digest.partition(":")
    path = directory / algorithm / value / "link"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(digest, encoding="ascii")


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent=3).encode()
