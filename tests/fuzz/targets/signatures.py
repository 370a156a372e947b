"""What lies beside images and bundles as their signatures: only what a key of ours signed counts."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
from tests.fuzz.refusals import explained, require_sentences
from tests.fuzz.target import Target
from tests.fuzz.targets.registries import HOME, played
from tests.support.signed_images import (
    DIGEST,
    GPG_TYPE,
    artifact_of,
    checker_of,
    claim_of,
    cosign_key,
    gpg_home,
    image_at,
    public_pem,
    put_simple_signature,
    signature_of,
)

from clusterctl.registry.images import bundle_signature
from clusterctl.registry.images.bundle_signature import NAMESPACE, TrustPolicy
from clusterctl.registry.images.signatures import cosign
from clusterctl.registry.images.signatures.checking import SignatureChecker, SignedImage
from clusterctl.registry.oci import manifest

REPOSITORY = "team/app"
NAME = f"{HOME}/{REPOSITORY}:1"
IMAGE = image_at(HOME, source=NAME)
CLAIM = claim_of(NAME, DIGEST)
GPG_CLAIM = claim_of(NAME, DIGEST, GPG_TYPE)
INDEX = b'{"schema_version": 1}\n'


@dataclass(frozen=True)
class Signers:
    """Checkers of sites that name a key each, a GPG message and a bundle's signature, and their place."""

    by_cosign: SignatureChecker
    by_gpg: SignatureChecker
    lookaside: Path
    message: bytes
    bundle: TrustPolicy
    bundle_signature: bytes
    place: tempfile.TemporaryDirectory[str]


@cache
def signers() -> Signers:
    """Made once a process."""
    place = tempfile.TemporaryDirectory(prefix="clusterctl-fuzz-")
    root = Path(place.name).resolve()
    (root / "cosign.pub").write_bytes(public_pem(cosign_key()))
    with gpg_home() as home:
        home.make_key("vendor")
        (root / "vendor.gpg").write_bytes(home.run("--export", "vendor@example.com"))
        message = home.sign("vendor", GPG_CLAIM)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", root / "key"], check=True)
    signed = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", root / "key"],
        input=INDEX, capture_output=True, check=True,
    )  # fmt: skip
    lookaside = root / "lookaside"
    return Signers(
        checker_of(root, {"default": [{"type": "sigstoreSigned", "keyPath": "cosign.pub"}]}),
        checker_of(
            root,
            {"default": [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "vendor.gpg"}]},
            images_signatures_lookaside={HOME: lookaside.as_uri()},
        ),
        lookaside,
        message,
        TrustPolicy(((root / "key.pub").read_text().strip(),)),
        signed.stdout,
        place,
    )


def checked(checker: SignatureChecker, by_tag: bytes = b"", *blobs: bytes) -> SignedImage | None:
    """What a registry with this artifact beside the image gets; None where it is refused as it must be."""

    def answer(request: httpx.Request) -> httpx.Response:
        wanted = request.url.path.rpartition("/")[2]
        there = {manifest.digest_of(blob): blob for blob in blobs} | {cosign.signature_tag(DIGEST): by_tag}
        if not there.get(wanted):
            return httpx.Response(404)
        return httpx.Response(200, headers={"content-type": manifest.OCI_MANIFEST}, content=there[wanted])

    with played(answer) as registry:
        found: SignedImage | None = explained(lambda: checker.check(IMAGE, registry, REPOSITORY))
    return found


def require_signed(found: SignedImage | None, *payloads: bytes) -> None:
    """What was counted is what the key signed, if anything was."""
    for one in found.signatures if found else ():
        assert one.payload in map(manifest.digest_of, payloads), f"{one} was never signed"
        assert one.signed == DIGEST


def artifact(payload: bytes, signature: str) -> tuple[bytes, list[bytes]]:
    made, blobs = artifact_of([(payload, {cosign.SIGNATURE: signature})])
    return made.raw, list(blobs.values())


def run_artifact(data: bytes) -> None:
    _, blobs = artifact(CLAIM, "")
    require_signed(checked(signers().by_cosign, data, *blobs), CLAIM)


def run_payload(data: bytes) -> None:
    """Beside the signature of the good one."""
    raw, blobs = artifact(data, signature_of(cosign_key(), CLAIM))
    assert (checked(signers().by_cosign, raw, *blobs) is not None) is (data == CLAIM)


def run_claim(data: bytes) -> None:
    """Signed whatever it says: it must say of which image."""
    raw, blobs = artifact(data, signature_of(cosign_key(), data))
    if checked(signers().by_cosign, raw, *blobs) is not None:
        critical = json.loads(data)["critical"]
        assert critical["image"] == {"docker-manifest-digest": DIGEST}
        assert critical["identity"]["docker-reference"] in (NAME, f"{NAME}@{DIGEST}")


def run_message(data: bytes) -> None:
    file = put_simple_signature(signers().lookaside, REPOSITORY, DIGEST, 1, data)
    try:
        require_signed(checked(signers().by_gpg), GPG_CLAIM)
    finally:
        file.unlink()


def run_bundle_signature(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        index = Path(name) / "bundle.json"
        bundle_signature.signature_of(index).write_bytes(data)
        told = explained(lambda: bundle_signature.require_trusted(INDEX, index, signers().bundle))
        require_sentences(told or "")
        other = INDEX.replace(b"1", b"2")
        assert explained(lambda: bundle_signature.require_trusted(other, index, signers().bundle)) is None


def message_seeds() -> list[bytes]:
    file = put_simple_signature(signers().lookaside, REPOSITORY, DIGEST, 1, signers().message)
    assert checked(signers().by_gpg) is not None, "the good one is refused"
    file.unlink()
    return [signers().message]


def bundle_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        index = Path(name) / "bundle.json"
        bundle_signature.signature_of(index).write_bytes(signers().bundle_signature)
        assert "is signed by" in bundle_signature.require_trusted(INDEX, index, signers().bundle)
    return [signers().bundle_signature]


def artifact_seeds() -> list[bytes]:
    good = signature_of(cosign_key(), CLAIM)
    two = artifact_of([(b"{}", {cosign.SIGNATURE: "AAAA"}), (CLAIM, {cosign.SIGNATURE: good})])[0].raw
    keyless = {cosign.SIGNATURE: good, cosign.CERTIFICATE: "-----BEGIN CERTIFICATE-----"}
    return [artifact(CLAIM, good)[0], two, artifact_of([(CLAIM, keyless)])[0].raw]


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("cosign-artifact", artifact_seeds, run_artifact),
        Target("cosign-payload", lambda: [CLAIM], run_payload),
        Target("signed-claim", lambda: [CLAIM], run_claim),
        Target("gpg-message", message_seeds, run_message),
        Target("bundle-signature", bundle_seeds, run_bundle_signature),
    )
}
