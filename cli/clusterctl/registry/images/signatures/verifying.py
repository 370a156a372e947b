"""The signatures of many images: verified before anything moves, and judged where the images are."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from clusterctl.cluster import signature_policy
from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ExplainedError
from clusterctl.parallel import parallel_map, parallel_map_fairly
from clusterctl.registry.images.mirror import Opened
from clusterctl.registry.images.outcome import TransferOutcome, TransferState, looked_at
from clusterctl.registry.images.resolve import source_host
from clusterctl.registry.images.signatures.checking import CODE, SignatureChecker, SignedImage
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.reference import parse

PARALLEL_IMAGES = 8


class SignatureState(StrEnum):
    """``RECORDED``: the lock says that it was verified, and cannot be verified where the image is."""

    VERIFIED = "verified"
    RECORDED = "recorded"
    NOT_REQUIRED = "not required"


@dataclass(frozen=True)
class VerifiedImages:
    """The signatures of each image, and why those of others are not as the policy demands, or unknown."""

    signed: Mapping[str, SignedImage] = field(default_factory=dict)
    failures: Mapping[str, ExplainedError] = field(default_factory=dict)


def verify_signatures(
    checker: SignatureChecker, images: Sequence[LockedImage], opened: Opened, stop: threading.Event
) -> VerifiedImages:
    """Verify the signatures of all images at their sources.

    Raises ClusterctlError if none can be verified here; that one is not signed as the policy demands, and
    what a registry fails at, is kept by image.
    """

    def check(image: LockedImage) -> SignedImage | ExplainedError:
        try:
            return checker.check(image, opened(image), parse(image.source).repository)
        except ExplainedError as error:
            return error

    found = dict(
        zip(
            (image.name for image in images),
            parallel_map_fairly(check, images, key=source_host, limit=PARALLEL_IMAGES, stop=stop),
            strict=True,
        )
    )
    failures = {name: one for name, one in found.items() if isinstance(one, ExplainedError)}
    for error in failures.values():
        ours = error.code.startswith((f"{CODE}-", signature_policy.CODE))
        if ours and not isinstance(error, RegistryError):
            raise error
    signed = {name: one for name, one in found.items() if isinstance(one, SignedImage)}
    return VerifiedImages(signed, failures)


def judge_signatures(
    checker: SignatureChecker, outcomes: Sequence[TransferOutcome], registry: Registry, *, jobs: int
) -> list[TransferOutcome]:
    """The outcomes of images that a registry has, with the state of their signatures."""

    def judge(outcome: TransferOutcome) -> TransferOutcome:
        if outcome.state is not TransferState.THERE:
            return outcome
        try:
            return replace(outcome, signature=_state(checker, outcome.image, registry).value)
        except ExplainedError as error:
            return looked_at(outcome.image, error)

    return parallel_map(judge, outcomes, limit=jobs, stop=registry.retry.stop)


def _state(checker: SignatureChecker, image: LockedImage, registry: Registry) -> SignatureState:
    """Raises ClusterctlError (``images.signature``) if the policy demands a signature and none is known."""
    if not checker.is_required(image):
        return SignatureState.NOT_REQUIRED
    try:
        checker.check(image, registry, image.target)
    except ExplainedError:
        # The artifact of a list, or of a bundle, is not there; the lock says what was verified at the source.
        if not checker.is_recorded(image):
            raise
        return SignatureState.RECORDED
    return SignatureState.VERIFIED
