"""Does an image have the signatures that the site's policy demands? Asked of where it comes from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import httpx

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster import signature_lookaside, signature_policy
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.lock import LockedImage, LockedSignature
from clusterctl.cluster.signature_keys import UnusableKeyError, keys
from clusterctl.cluster.signature_policy import (
    KeyRequirement,
    Reject,
    SignaturePolicy,
    SignedBy,
    SigstoreSigned,
)
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.declared import (
    asked_host,
    cluster_setting,
    declared_images,
    file_setting,
)
from clusterctl.registry.images.registries import proxy_for
from clusterctl.registry.images.signatures import claim, cosign, lookaside, simple_signing
from clusterctl.registry.images.signatures.claim import CostlySignatureError, RefusedSignatureError
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.deadline import time_left, within
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Manifest, digest_of
from clusterctl.registry.oci.reference import Reference, is_address, parse
from clusterctl.runs.store import now

MAX_REASONS = 4
# For all signatures of an image, at all places, however many there are.
IMAGE_S = 180.0
# Those that use up what one may cost are made to: no more of them are tried.
MAX_COSTLY = 3
CODE = "images.signature"
USUAL_HINT = "Have it signed by that key, name the key that did, or accept its scope without a signature."
REJECTED = "its scope has {type: reject}"
T = TypeVar("T")


@dataclass(frozen=True)
class SignedImage:
    """The signatures of an image that meet the policy, and the artifact with those of a cosign key."""

    signatures: tuple[LockedSignature, ...] = ()
    artifact: Manifest | None = None


@dataclass
class _CheckedImage:
    """An image whose signatures are asked for, and what was found so far."""

    locked: LockedImage
    source: Reference
    registry: Registry
    repository: str
    artifacts: dict[str, Manifest | None] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def digests(self) -> Iterator[str]:
        """What may be signed: the image itself, or the list that it was taken from and is a part of."""
        yield self.locked.digest
        index = self.locked.index
        if index is not None and index != self.locked.digest and self._lists_image(index):
            yield index

    def _lists_image(self, index: str) -> bool:
        try:
            listed = self.registry.manifest(self.repository, index).children
        except RegistryError as error:
            if error.code == "images.not-found":
                return False
            raise
        return any(child.digest == self.locked.digest for child in listed)

    def artifact(self, digest: str) -> Manifest | None:
        """The artifact with the signatures of one of its digests, asked for once."""
        if digest not in self.artifacts:
            self.artifacts[digest] = cosign.find_artifact(self.registry, self.repository, digest)
        return self.artifacts[digest]


class SignatureChecker:
    """The policy of a site, with its keys. Safe from many threads."""

    def __init__(self, inventory: Inventory, policy: SignaturePolicy) -> None:
        self._inventory = inventory
        self._policy = policy
        root = inventory.directory.root
        self._cosign_keys = functools.cache(lambda one: _read_keys(one, root, cosign.read_key))
        self._keyrings = functools.cache(lambda one: _read_keys(one, root, simple_signing.read_keyring))
        self._gpg_keys = functools.cache(lambda one: _read_keys(one, root, _read_gpg_keys))
        self._built = {(one.name, str(one.source)) for one in declared_images(inventory) if one.built}
        self._locations = signature_lookaside.read(
            cluster_setting(inventory, signature_lookaside.NAME, signature_policy.CODE)
        )

    def is_required(self, image: LockedImage) -> bool:
        """Whether the policy says more of the image than that anything is accepted."""
        return self.demands_any(image.name, image.source)

    def demands_any(self, name: str, source: str) -> bool:
        """The same of the image with this name and source."""
        demanded = self._requirements_of(name, source)
        return any(isinstance(one, SignedBy | SigstoreSigned | Reject) for one in demanded)

    def is_recorded(self, image: LockedImage) -> bool:
        """Whether the lock records a signature for each that the policy demands, by a key that it names.

        Raises ClusterctlError (``images.signature-key``).
        """
        recorded = [one for one in image.signatures if one.signed in (image.digest, image.index)]
        for requirement in self._requirements(image):
            if isinstance(requirement, Reject):
                return False
            if not isinstance(requirement, SignedBy | SigstoreSigned):
                continue
            if isinstance(requirement, SignedBy):
                kind, known = "gpg", set[str]().union(*self._gpg_keys(requirement))
            else:
                kind, known = "cosign", {key.fingerprint for key in self._cosign_keys(requirement)}
            if not any(one.kind == kind and one.key in known for one in recorded):
                return False
        return True

    def check(self, image: LockedImage, registry: Registry, repository: str) -> SignedImage:
        """Verify what the policy demands of the image, with the signatures that a registry has of it.

        Raises ClusterctlError (``images.signature``, also with ``-key``, ``-location`` and ``-program``;
        ``settings.signatures``) and what registries do.
        """
        with within(IMAGE_S):
            return self._check(image, _CheckedImage(image, parse(image.source), registry, repository))

    def _check(self, image: LockedImage, wanted: _CheckedImage) -> SignedImage:
        found: dict[tuple[str, str], LockedSignature] = {}
        for requirement in self._requirements(image):
            if isinstance(requirement, Reject):
                raise _refusal(image, "the policy rejects it", REJECTED)
            if isinstance(requirement, SignedBy | SigstoreSigned):
                signature = self._first(requirement, wanted)
                found.setdefault((signature.kind, signature.key), signature)
        signatures = tuple(
            next((old for old in image.signatures if _is_same(old, one)), one) for one in found.values()
        )
        # Of a list that is signed the nodes' registry does not have what was signed.
        is_own = any(one.kind == "cosign" and one.signed == image.digest for one in signatures)
        return SignedImage(signatures, wanted.artifact(image.digest) if is_own else None)

    def require_recorded(self, images: Sequence[LockedImage], *, trusted: bool) -> None:
        """Refuse images whose signatures the lock does not record; ``trusted``: it came with no bundle.

        Raises ClusterctlError (``images.signature``).
        """
        for image in images:
            if not self.is_recorded(image):
                hint = f"{USUAL_HINT} Then clusterctl lock records it."
                raise _refusal(image, "the lock records no such signature", self._describe(image), hint)
            if self.is_required(image) and not trusted:
                because = "the lock that records one comes with the bundle"
                hint = f"Bring {lock_file.NAME} here apart from the bundle, as with git, then load it again."
                raise _refusal(image, because, self._describe(image), hint)

    def _requirements(self, image: LockedImage) -> tuple[signature_policy.Requirement, ...]:
        return self._requirements_of(image.name, image.source)

    def _requirements_of(self, name: str, text: str) -> tuple[signature_policy.Requirement, ...]:
        source = parse(text)
        tag = source.tag or ("" if source.digest else "latest")
        asked = source.registry, source.repository, tag, source.digest
        # Built here, on a base that was checked.
        if (name, text) in self._built and not self._policy.has_scope_of(*asked):
            return ()
        return self._policy.requirements(*asked)

    def _first(self, requirement: KeyRequirement, image: _CheckedImage) -> LockedSignature:
        """The first signature that meets the requirement. Raises ClusterctlError (``images.signature``)."""
        image.reasons.clear()
        for digest in image.digests():
            if isinstance(requirement, SignedBy):
                found = self._by_gpg(requirement, image, digest)
            else:
                found = self._by_cosign(requirement, image, digest)
            if (signature := next(found, None)) is not None:
                return signature
        reasons = list(dict.fromkeys(image.reasons))
        more = f" (and {len(reasons) - MAX_REASONS} more)" if len(reasons) > MAX_REASONS else ""
        because = "; ".join(reasons[:MAX_REASONS]) + more or "it has no signature"
        raise _refusal(image.locked, because, _key_names(requirement))

    def _by_cosign(
        self, requirement: SigstoreSigned, image: _CheckedImage, digest: str
    ) -> Iterator[LockedSignature]:
        try:
            artifact = image.artifact(digest)
            for signature in cosign.read_signatures(artifact) if artifact else ():
                _require_time()
                try:
                    payload = cosign.read_payload(image.registry, image.repository, signature)
                    signer = cosign.find_signer(self._cosign_keys(requirement), payload, signature.text)
                    claimed = claim.read(payload, claim.COSIGN)
                    claim.require_claim(claimed, digest, requirement.signedIdentity, image.source)
                except RefusedSignatureError as error:
                    image.reasons.append(f"its cosign signature {error}")
                else:
                    yield _record("cosign", signer.fingerprint, digest, payload)
        except RefusedSignatureError as error:
            image.reasons.append(f"its cosign signature {error}")

    def _by_gpg(self, requirement: SignedBy, image: _CheckedImage, digest: str) -> Iterator[LockedSignature]:
        keyring = b"".join(self._keyrings(requirement))
        costly = 0
        try:
            for content in self._lookaside(image.source, image.registry, digest):
                _require_time()
                try:
                    message = simple_signing.verify_message(content, keyring)
                    claimed = claim.read(message.content, claim.GPG)
                    claim.require_claim(claimed, digest, requirement.signedIdentity, image.source)
                except RefusedSignatureError as error:
                    image.reasons.append(f"its GPG signature {error}")
                    costly += isinstance(error, CostlySignatureError)
                    if costly >= MAX_COSTLY:
                        return
                else:
                    yield _record("gpg", message.fingerprint, digest, message.content)
        except RefusedSignatureError as error:
            image.reasons.append(f"its GPG signature {error}")

    def _lookaside(self, source: Reference, registry: Registry, digest: str) -> Iterator[bytes]:
        name = source.registry, source.repository, source.tag, source.digest
        base = signature_lookaside.location(self._locations, *name)
        if not base:
            raise ClusterctlError(
                f"nothing says where GPG signatures of {source.registry}/{source.repository} lie",
                code=signature_policy.CODE,
                where=signature_lookaside.NAME,
                hint=f'For example: {signature_lookaside.NAME}: {{"{source.registry}": "https://..."}}',
            )
        if not (base.startswith("file:") or is_address(base)):
            raise ClusterctlError(
                f"no host can be looked up in {base[:80]!r}",
                code=signature_policy.CODE,
                where=signature_lookaside.NAME,
                hint=signature_lookaside.LOCATION_HINT,
            )
        url = httpx.URL(base)
        authority = file_setting(self._inventory, "images_ca_file")
        plain = url.scheme == "http"
        proxy = "" if plain or not url.host else proxy_for(asked_host(self._inventory), url.host)
        endpoint = RegistryEndpoint(
            url.host, plain=plain, proxy=proxy, authorities=(authority,) if authority else ()
        )
        return lookaside.read_signatures(base, source.repository, digest, endpoint, registry.retry)

    def _describe(self, image: LockedImage) -> str:
        demanded = self._requirements(image)
        if any(isinstance(one, Reject) for one in demanded):
            return REJECTED
        return ", ".join(_key_names(one) for one in demanded if isinstance(one, SignedBy | SigstoreSigned))


def checker(inventory: Inventory) -> SignatureChecker | None:
    """The checker of a site that has a policy. Raises ClusterctlError (``settings.signatures``)."""
    policy = signature_policy.read(cluster_setting(inventory, signature_policy.NAME, signature_policy.CODE))
    return SignatureChecker(inventory, policy) if policy else None


def _read_gpg_keys(content: bytes) -> frozenset[str]:
    return simple_signing.key_fingerprints(simple_signing.read_keyring(content))


def _read_keys(requirement: KeyRequirement, root: Path, read: Callable[[bytes], T]) -> tuple[T, ...]:
    """The keys of a requirement. Raises ClusterctlError (``images.signature-key``)."""
    found = []
    name = ""
    try:
        for name, content in keys(requirement, root):  # noqa: B007 - the last one is named by the error
            found.append(read(content))
    except UnusableKeyError as error:
        raise ClusterctlError(
            f"a key of {signature_policy.NAME} cannot be used: {error}",
            code="images.signature-key",
            where=name or str(root),
            hint="cosign writes its public key to cosign.pub; of gpg: gpg --export --armor KEY > FILE",
        ) from None
    return tuple(found)


def _require_time() -> None:
    """Raises RefusedSignatureError where the signatures of an image have taken too long."""
    if time_left() <= 0:
        raise RefusedSignatureError(f"was not reached: those before it took {IMAGE_S:.0f} s")


def _record(kind: Literal["cosign", "gpg"], key: str, signed: str, payload: bytes) -> LockedSignature:
    return LockedSignature(kind=kind, key=key, signed=signed, payload=digest_of(payload), at=now())


def _is_same(one: LockedSignature, other: LockedSignature) -> bool:
    return one.model_copy(update={"at": other.at}) == other


def _key_names(requirement: KeyRequirement) -> str:
    kind = "GPG" if isinstance(requirement, SignedBy) else "cosign"
    names = requirement.paths or [f"keyData {number}" for number, _ in enumerate(requirement.data, 1)]
    return f"a {kind} signature by {' or '.join(names)}"


def _refusal(image: LockedImage, because: str, demanded: str, hint: str = USUAL_HINT) -> ClusterctlError:
    return ClusterctlError(
        f"the image {image.name} is not signed as {signature_policy.NAME} demands ({demanded}): {because}",
        code=CODE,
        where=f"{image.source} ({image.digest})",
        hint=hint,
        exit_code=EXIT_CLUSTER_BAD,
    )
