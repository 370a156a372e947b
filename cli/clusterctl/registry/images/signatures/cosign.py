"""Signatures by a cosign key: an artifact beside the image, under a tag made of the image's digest.

https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from clusterctl.cluster.signature_keys import UnusableKeyError
from clusterctl.registry.images.signatures.claim import MAX_CLAIM_BYTES, RefusedSignatureError
from clusterctl.registry.oci.answers import Digest, Size
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob, Manifest

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"
CERTIFICATE = "dev.sigstore.cosign/certificate"
MAX_SIGNATURES = 128
# Of a key of RSA with 16384 bits, in base64.
MAX_SIGNATURE_TEXT = 4096
# The artifact's own configuration names each layer.
MAX_BLOB_BYTES = 256 * 1024
# Anybody may add layers around a signature, and all are copied.
MAX_ARTIFACT_BLOBS = MAX_SIGNATURES + 1
LEAST_RSA_BITS = 2048
# cosign takes SHA-256 for every curve; other signers that of the curve's size.
_HASHES: dict[str, tuple[HashAlgorithm, ...]] = {
    "secp256r1": (SHA256(),),
    "secp384r1": (SHA256(), SHA384()),
    "secp521r1": (SHA256(), SHA512()),
}

PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey


@dataclass(frozen=True)
class CosignKey:
    """A public key, and the SHA-256 of its DER form."""

    public: PublicKey = field(repr=False)
    fingerprint: str


@dataclass(frozen=True)
class CosignSignature:
    """One signature of an artifact: the blob that is signed, and the signature in base64."""

    payload: Blob
    text: str


class _SignatureLayer(BaseModel):
    mediaType: Annotated[str, StringConstraints(max_length=255)] = ""
    digest: Digest
    size: Size
    annotations: dict[str, str] | None = None


class _SignatureArtifact(BaseModel):
    layers: Annotated[tuple[_SignatureLayer, ...], Field(max_length=1000)]


def read_key(pem: bytes) -> CosignKey:
    """A key as `cosign generate-key-pair` writes it. Raises UnusableKeyError."""
    try:
        public = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableKeyError("is not a public key in PEM") from None
    is_curve = isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _HASHES
    is_rsa = isinstance(public, rsa.RSAPublicKey) and public.key_size >= LEAST_RSA_BITS
    if not isinstance(public, PublicKey) or not (
        is_curve or is_rsa or isinstance(public, ed25519.Ed25519PublicKey)
    ):
        raise UnusableKeyError(
            "is of a kind that cosign does not sign with: ECDSA on P-256, P-384 or P-521, Ed25519, "
            f"RSA of {LEAST_RSA_BITS} bits or more"
        )
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return CosignKey(public, f"sha256:{hashlib.sha256(der).hexdigest()}")


def signature_tag(digest: str) -> str:
    """The tag of the artifact with the signatures of a manifest."""
    return f"{digest.replace(':', '-')}.sig"


def find_artifact(registry: Registry, repository: str, digest: str) -> Manifest | None:
    """The artifact with the signatures of a manifest; None if there is none.

    Raises RefusedSignatureError for one that is too large to be copied, and what `Registry.manifest` does.
    """
    try:
        artifact = registry.manifest(repository, signature_tag(digest))
    except RegistryError as error:
        if error.code == "images.not-found":
            return None
        raise
    if artifact.is_index:
        raise RefusedSignatureError("is in a list of manifests, and no artifact of signatures")
    if artifact.has_parts_elsewhere:
        raise RefusedSignatureError("is in an artifact that names layers outside of its registry")
    if len(artifact.blobs) > MAX_ARTIFACT_BLOBS:
        raise RefusedSignatureError(
            f"is in an artifact of {len(artifact.blobs)} blobs; at most {MAX_ARTIFACT_BLOBS} are copied"
        )
    too_large = next((blob for blob in artifact.blobs if blob.size > MAX_BLOB_BYTES), None)
    if too_large is not None:
        raise RefusedSignatureError(f"holds a blob of {too_large.size} bytes; none has {MAX_BLOB_BYTES}")
    return artifact


def read_signatures(artifact: Manifest) -> Iterator[CosignSignature]:
    """Each signature by a key. Raises RefusedSignatureError for an artifact that holds none."""
    try:
        layers = _SignatureArtifact.model_validate(json.loads(artifact.raw)).layers
    except (ValidationError, ValueError, RecursionError):
        raise RefusedSignatureError("is in an artifact that cannot be read") from None
    payloads = [(layer, layer.annotations or {}) for layer in layers if layer.mediaType == PAYLOAD]
    signed = [(layer, notes) for layer, notes in payloads if SIGNATURE in notes]
    found = [(layer, notes[SIGNATURE]) for layer, notes in signed if CERTIFICATE not in notes]
    if not signed:
        raise RefusedSignatureError("is in an artifact without signatures")
    if not found:
        raise RefusedSignatureError("is keyless (it has a certificate), and those are not verified here")
    if len(found) > MAX_SIGNATURES:
        raise RefusedSignatureError(f"is one of {len(found)}; at most {MAX_SIGNATURES} are read")
    for layer, text in found:
        yield CosignSignature(Blob(layer.digest, layer.size), text)


def read_payload(registry: Registry, repository: str, signature: CosignSignature) -> bytes:
    """What is signed. Raises RefusedSignatureError, and what `Registry.small_blob` does."""
    if not 0 < signature.payload.size <= MAX_CLAIM_BYTES:
        raise RefusedSignatureError(f"has {signature.payload.size} bytes; at most {MAX_CLAIM_BYTES} are read")
    content = registry.small_blob(repository, signature.payload)
    if len(content) != signature.payload.size:
        raise RefusedSignatureError(f"has {len(content)} bytes instead of {signature.payload.size}")
    return content


def find_signer(keys: Sequence[CosignKey], payload: bytes, text: str) -> CosignKey:
    """The key that has signed these bytes. Raises RefusedSignatureError if none has."""
    signer = next((key for key in keys if is_signed_by(key, payload, text)), None)
    if signer is None:
        raise RefusedSignatureError("is by another key, or does not fit its content")
    return signer


def is_signed_by(key: CosignKey, payload: bytes, text: str) -> bool:
    """Whether the key has signed these bytes. Raises RefusedSignatureError for what is not base64."""
    if len(text) > MAX_SIGNATURE_TEXT:
        raise RefusedSignatureError(f"has {len(text)} characters; at most {MAX_SIGNATURE_TEXT} are read")
    try:
        signature = base64.b64decode(text, validate=True)
    except ValueError:
        raise RefusedSignatureError("is not base64") from None
    public = key.public
    if isinstance(public, ec.EllipticCurvePublicKey):
        kinds = _HASHES[public.curve.name]
        return any(_holds(partial(public.verify, signature, payload, ec.ECDSA(kind))) for kind in kinds)
    if isinstance(public, rsa.RSAPublicKey):
        return _holds(partial(public.verify, signature, payload, padding.PKCS1v15(), SHA256()))
    return _holds(partial(public.verify, signature, payload))


def _holds(verify: Callable[[], None]) -> bool:
    try:
        verify()
    except InvalidSignature:
        return False
    return True
