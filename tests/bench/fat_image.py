"""An image of so many bytes that no compression makes smaller: gzip layers with true diff_ids."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile

from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.manifest import Blob

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"


def put(host: str, repository: str, tag: str, size: int, layers: int) -> tuple[str, int]:
    """Push one to a registry on loopback; its digest, and the bytes of its layers as a pull moves them."""
    blobs, diff_ids = [], []
    with Registry(RegistryEndpoint(host, plain=True)) as registry:
        for number in range(layers):
            plain, packed = _layer(f"bytes-{number}", size // layers)
            blob = Blob(manifest.digest_of(packed), len(packed))
            registry.put_blob(repository, blob, lambda packed=packed: iter([packed]))
            blobs.append(blob)
            diff_ids.append(f"sha256:{hashlib.sha256(plain).hexdigest()}")
        config = json.dumps(
            {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/none"]},
             "rootfs": {"type": "layers", "diff_ids": diff_ids}}
        ).encode()  # fmt: skip
        described = Blob(manifest.digest_of(config), len(config))
        registry.put_blob(repository, described, lambda: iter([config]))
        raw = json.dumps(
            {"schemaVersion": 2, "mediaType": manifest.OCI_MANIFEST,
             "config": {"mediaType": CONFIG, "size": described.size, "digest": described.digest},
             "layers": [{"mediaType": LAYER, "size": b.size, "digest": b.digest} for b in blobs]}
        ).encode()  # fmt: skip
        found = manifest.read(raw, manifest.OCI_MANIFEST, "bench")
        registry.put_manifest(repository, found, tag)
    return found.digest, sum(blob.size for blob in blobs)


def _layer(name: str, size: int) -> tuple[bytes, bytes]:
    """A tar of one file, plain and packed; packed quickly, for it does not get smaller."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = size
        archive.addfile(member, io.BytesIO(os.urandom(size)))
    return raw.getvalue(), gzip.compress(raw.getvalue(), 1, mtime=0)
