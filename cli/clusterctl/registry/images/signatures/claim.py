"""What a signature says of an image: a small JSON document, read strictly and only after it was verified.

https://github.com/containers/image/blob/main/docs/containers-signature.5.md
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clustercheck.parse.document import once_each
from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.signature_policy import (
    USUAL_IDENTITY,
    ExactReference,
    ExactRepository,
    RemapIdentity,
    SignedIdentity,
)
from clusterctl.errors import ClusterctlError
from clusterctl.registry.oci.reference import PLAIN, Reference, parse

MAX_CLAIM_BYTES = 64 * 1024
COSIGN = "cosign container image signature"
GPG = "atomic container signature"
MAX_SHOWN = 120


class RefusedSignatureError(Exception):
    """Why a signature does not count: a part of a sentence that starts with the signature."""


class CostlySignatureError(RefusedSignatureError):
    """The same of a signature that used up what one may cost."""


class _StrictClaim(BaseModel):
    # What is not known may restrict what the signature is good for.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _ClaimedImage(_StrictClaim):
    digest: str = Field(alias="docker-manifest-digest", max_length=100)


class _ClaimedIdentity(_StrictClaim):
    reference: str = Field(alias="docker-reference", max_length=1024)


class _CriticalClaim(_StrictClaim):
    type: Literal["cosign container image signature", "atomic container signature"]
    image: _ClaimedImage
    identity: _ClaimedIdentity


class Claim(_StrictClaim):
    """The signed document."""

    critical: _CriticalClaim
    optional: dict[str, Any] | None = None

    @property
    def reference(self) -> str:
        """The image that the signer names."""
        return self.critical.identity.reference


def read(payload: bytes, kind: str) -> Claim:
    """The claim of a verified signature of that kind. Raises RefusedSignatureError."""
    if len(payload) > MAX_CLAIM_BYTES:
        raise RefusedSignatureError(f"has more than {MAX_CLAIM_BYTES} bytes")
    try:
        claim = Claim.model_validate(json.loads(payload, object_pairs_hook=once_each))
    except (ValueError, RecursionError) as error:
        because = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "it is not plain JSON"
        raise RefusedSignatureError(f"cannot be read: {because}") from None
    if claim.critical.type != kind:
        raise RefusedSignatureError(f"is of another kind: {claim.critical.type}")
    return claim


def require_claim(claim: Claim, digest: str, identity: SignedIdentity, image: Reference) -> None:
    """Refuse a claim about other bytes, or about an image of another name. Raises RefusedSignatureError."""
    if claim.critical.image.digest != digest:
        raise RefusedSignatureError(f"is of other bytes: {one_line(claim.critical.image.digest, MAX_SHOWN)}")
    if not matches(identity, image, claim.reference):
        repository_only = not _has_tag(claim.reference) and identity == USUAL_IDENTITY
        raise RefusedSignatureError(
            f"names another image ({identity.type}): {one_line(claim.reference, MAX_SHOWN)}"
            + (", without a tag (signedIdentity matchRepository accepts that)" if repository_only else "")
        )


def matches(identity: SignedIdentity, image: Reference, claimed: str) -> bool:
    """Whether the name in a signature is the one that the policy expects for an image.

    Of an image that is declared by its digest only the repository is compared, as its bytes are known.
    """
    signed, expected = _parsed(claimed), _expected(identity, image)
    if signed is None or expected is None:
        return False
    is_of_repository = (expected.registry, expected.repository) == (signed.registry, signed.repository)
    if identity.type in ("matchRepository", "exactRepository"):
        return is_of_repository
    # A name without a tag says nothing of which image of the repository is meant.
    if not is_of_repository or not (signed.tag or signed.digest):
        return False
    if expected.digest and identity.type in ("matchRepoDigestOrExact", "remapIdentity"):
        return True
    tag = expected.tag or ("" if expected.digest else "latest")
    return (tag, expected.digest) == (signed.tag, signed.digest)


def _expected(identity: SignedIdentity, image: Reference) -> Reference | None:
    if isinstance(identity, ExactReference):
        return _parsed(identity.dockerReference)
    if isinstance(identity, ExactRepository):
        return _parsed(identity.dockerRepository)
    return _remapped(identity, image) if isinstance(identity, RemapIdentity) else image


def _remapped(identity: RemapIdentity, image: Reference) -> Reference | None:
    name, prefix = f"{image.registry}/{image.repository}", identity.prefix
    if name != prefix and not name.startswith(f"{prefix}/"):
        return image
    suffix = f":{image.tag}" if image.tag else ""
    suffix += f"@{image.digest}" if image.digest else ""
    return _parsed(f"{identity.signedPrefix}{name.removeprefix(prefix)}{suffix}")


def _has_tag(claimed: str) -> bool:
    signed = _parsed(claimed)
    return signed is not None and bool(signed.tag or signed.digest)


def _parsed(text: str) -> Reference | None:
    try:
        return None if text.startswith(PLAIN) else parse(text)
    except ClusterctlError:
        return None
