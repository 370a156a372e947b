"""Signatures for the tests of images: keys of cosign and GPG, and what signers put beside an image."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from tests.support.programs import require_program

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.lock import LockedBlob, LockedImage
from clusterctl.registry.images.signatures import cosign
from clusterctl.registry.images.signatures.checking import SignatureChecker, checker
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.manifest import Blob, Manifest

COSIGN_TYPE = "cosign container image signature"
GPG_TYPE = "atomic container signature"
DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
Annotations = Mapping[str, str]


@cache
def cosign_key(kind: str = "P-256", number: int = 1) -> PrivateKey:
    """A key as signers have it; another number is another key."""
    del number
    curves = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1, "K-256": ec.SECP256K1}
    if kind in curves:
        return ec.generate_private_key(curves[kind]())
    if kind == "Ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, int(kind.removeprefix("RSA-")))


def public_pem(key: PrivateKey) -> bytes:
    """What `cosign generate-key-pair` writes to cosign.pub."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def signature_of(key: PrivateKey, payload: bytes) -> str:
    """In base64, as cosign signs."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        raw = key.sign(payload, ec.ECDSA(hashes.SHA256()))
    elif isinstance(key, rsa.RSAPrivateKey):
        raw = key.sign(payload, padding.PKCS1v15(), hashes.SHA256())
    else:
        raw = key.sign(payload)
    return base64.b64encode(raw).decode()


def claim_of(reference: str, digest: str, kind: str = COSIGN_TYPE) -> bytes:
    """What is signed of an image."""
    critical = {
        "identity": {"docker-reference": reference},
        "image": {"docker-manifest-digest": digest},
        "type": kind,
    }
    return json.dumps({"critical": critical, "optional": None if kind == COSIGN_TYPE else {}}).encode()


def artifact_of(signatures: Sequence[tuple[bytes, Annotations]]) -> tuple[Manifest, dict[str, bytes]]:
    """The artifact of these payloads with their annotations, and its blobs."""
    config = json.dumps({"architecture": "", "os": "", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
    blobs = {manifest.digest_of(content): content for content in (config, *(one for one, _ in signatures))}
    layers = [
        {"mediaType": cosign.PAYLOAD, "digest": manifest.digest_of(payload), "size": len(payload),
         "annotations": dict(annotations)}
        for payload, annotations in signatures
    ]  # fmt: skip
    described = {
        "mediaType": "application/vnd.oci.image.config.v1+json", "digest": manifest.digest_of(config),
        "size": len(config),
    }  # fmt: skip
    raw = json.dumps(
        {"schemaVersion": 2, "mediaType": manifest.OCI_MANIFEST, "config": described, "layers": layers}
    ).encode()
    return manifest.read(raw, manifest.OCI_MANIFEST, "test"), blobs


def put_artifact(
    client: Registry, repository: str, digest: str, signatures: Sequence[tuple[bytes, Annotations]]
) -> str:
    """Push an artifact beside the image of that digest; its own digest."""
    found, blobs = artifact_of(signatures)
    for name, content in blobs.items():
        if not client.has_blob(repository, name):
            client.put_blob(repository, Blob(name, len(content)), _pieces(content))
    client.put_manifest(repository, found, cosign.signature_tag(digest))
    return found.digest


def sign_by_cosign(
    client: Registry, repository: str, digest: str, key: PrivateKey, reference: str = ""
) -> str:
    """Sign an image as `cosign sign --key` does; the digest of the artifact."""
    payload = claim_of(reference or f"{client.endpoint.host}/{repository}", digest)
    return put_artifact(
        client, repository, digest, [(payload, {cosign.SIGNATURE: signature_of(key, payload)})]
    )


# Signatures are half a day younger than keys: gpg refuses to sign before the second its key was made.
KEYS_OF_THEN = ("--faked-system-time", "20200101T000000")
SIGNED_THEN = ("--faked-system-time", "20200101T120000")


@dataclass(frozen=True)
class GpgHome:
    """A GnuPG home of a signer."""

    directory: Path

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Call gpg there."""
        command = [
            require_program("gpg"), "--homedir", str(self.directory), "--batch", "--yes", "--quiet",
            "--pinentry-mode", "loopback", "--passphrase", "", *arguments,
        ]  # fmt: skip
        return subprocess.run(command, input=stdin, capture_output=True, check=True, timeout=60).stdout

    def make_key(self, name: str, *options: str, expires: str = "never", usage: str = "sign") -> str:
        """A key, which signs unless it is to certify alone; its fingerprint."""
        self.run(*options, "--quick-generate-key", f"{name} <{name}@example.com>", "ed25519", usage, expires)
        return self.fingerprint(name)

    def fingerprint(self, name: str) -> str:
        """Of the key with this name."""
        listed = self.run("--with-colons", "--list-keys", f"{name}@example.com").decode()
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))

    def sign(self, name: str, content: bytes, *options: str) -> bytes:
        """A signed message around the content."""
        return self.run(*options, "--local-user", f"{name}@example.com", "--sign", stdin=content)


@contextmanager
def gpg_home() -> Iterator[GpgHome]:
    """A home whose agent ends with the block; sockets of agents allow 108 characters of path."""
    directory = Path(tempfile.mkdtemp(prefix="gpg-", dir="/tmp"))
    try:
        yield GpgHome(directory)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(directory), "--kill", "all"], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def image_at(host: str, **more: Any) -> LockedImage:
    """The image team/app of a registry on loopback, as it is locked."""
    blob = LockedBlob(digest=OTHER, size=1)
    return LockedImage(
        **{
            "name": "app", "source": f"http://{host}/team/app:1", "target": "golden/app", "tag": "1",
            "digest": DIGEST, "platforms": ("linux/amd64",), "manifest": DIGEST, "config": blob,
            "layers": (blob,), **more,
        }
    )  # fmt: skip


def checker_of(root: Path, policy: object, **more: object) -> SignatureChecker:
    """The checker of a cluster with this policy, whose keys lie below ``root``."""
    said = {
        "images_signatures": policy, "registry_hostname": "registry01", "registry_port": 5000, **more
    }  # fmt: skip
    host = Host("gpu01", "192.0.2.1", 22, "root", ("gpu_nodes",), said)
    found = checker(Inventory(ClusterDirectory(root), (host,)))
    assert found is not None
    return found


def put_simple_signature(lookaside: Path, repository: str, digest: str, number: int, content: bytes) -> Path:
    """Lay a signature where containers/image looks for it."""
    file = lookaside / f"{repository}@{digest.replace(':', '=')}" / f"signature-{number}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def _pieces(content: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([content])
