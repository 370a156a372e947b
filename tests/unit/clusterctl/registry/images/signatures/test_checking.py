"""Signatures of images against a policy: which are accepted, and whatever else lies there is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import openpgp
from tests.support.memory_registry import MemoryRegistry, memory_registry
from tests.support.signed_images import (
    DIGEST,
    OTHER,
    Annotations,
    artifact_of,
    checker_of,
    claim_of,
    cosign_key,
    image_at,
    public_pem,
    signature_of,
)

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.signatures import cosign, simple_signing
from clusterctl.registry.images.signatures.checking import SignatureChecker, SignedImage
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.manifest import Manifest

TAG = cosign.signature_tag(DIGEST)
IN_REPOSITORY = {"type": "matchRepository"}


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    with memory_registry() as running:
        yield running


def by_key(root: Path, *pems: bytes, **more: object) -> SignatureChecker:
    """The checker of a cluster that wants a signature by one of these keys for every image."""
    names = []
    for number, pem in enumerate(pems):
        (root / f"{number}.pub").write_bytes(pem)
        names.append(f"{number}.pub")
    requirement = {
        "type": "sigstoreSigned", "keyPaths": names, "signedIdentity": IN_REPOSITORY, **more
    }  # fmt: skip
    return checker_of(root, {"default": [requirement]})


def lay_down(registry: MemoryRegistry, *signatures: tuple[bytes, Annotations]) -> Manifest:
    """Have an artifact of these signatures beside the image."""
    found, blobs = artifact_of(signatures)
    for content in blobs.values():
        registry.put_blob("team/app", content)
    registry.put_manifest("team/app", found, TAG)
    return found


def signed(
    registry: MemoryRegistry, key: Any, digest: str = DIGEST, **more: str
) -> tuple[bytes, Annotations]:
    payload = claim_of(more.get("reference", f"{registry.host}/team/app"), digest)
    return payload, {cosign.SIGNATURE: signature_of(key, payload)}


def check(found: SignatureChecker, registry: MemoryRegistry, **more: Any) -> SignedImage:
    with registry.client() as client:
        return found.check(image_at(registry.host, **more), client, "team/app")


def refusal(found: SignatureChecker, registry: MemoryRegistry, **more: Any) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        check(found, registry, **more)
    return refused.value


@pytest.mark.parametrize("kind", ["P-256", "P-384", "P-521", "Ed25519", "RSA-2048"])
def test_a_signature_of_cosign_by_a_key_of_the_policy_is_accepted_and_described(
    tmp_path: Path, registry: MemoryRegistry, kind: str
) -> None:
    key = cosign_key(kind)
    payload, notes = signed(registry, key)
    laid = lay_down(registry, (payload, notes))
    found = check(by_key(tmp_path, public_pem(cosign_key("P-256", 2)), public_pem(key)), registry)
    (one,) = found.signatures
    assert (one.kind, one.signed, one.payload) == ("cosign", DIGEST, manifest.digest_of(payload))
    assert one.key == cosign.read_key(public_pem(key)).fingerprint
    assert found.artifact is not None
    assert found.artifact.digest == laid.digest


def test_one_good_signature_among_others_is_enough(tmp_path: Path, registry: MemoryRegistry) -> None:
    good = signed(registry, cosign_key())
    other = signed(registry, cosign_key("P-256", 2), reference=f"{registry.host}/team/app:x")
    broken = (good[0] + b" ", {cosign.SIGNATURE: "%%%"})
    lay_down(registry, broken, other, good)
    assert len(check(by_key(tmp_path, public_pem(cosign_key())), registry).signatures) == 1


def test_every_requirement_of_a_scope_must_be_met(tmp_path: Path, registry: MemoryRegistry) -> None:
    (tmp_path / "a.pub").write_bytes(public_pem(cosign_key()))
    (tmp_path / "b.pub").write_bytes(public_pem(cosign_key("P-256", 2)))
    wanted = [
        {"type": "sigstoreSigned", "keyPath": name, "signedIdentity": IN_REPOSITORY}
        for name in ("a.pub", "b.pub")
    ]
    found = checker_of(tmp_path, {"default": wanted})
    first = signed(registry, cosign_key())
    lay_down(registry, first)
    assert "b.pub" in refusal(found, registry).what
    second = (first[0], {cosign.SIGNATURE: signature_of(cosign_key("P-256", 2), first[0])})
    lay_down(registry, first, second)
    assert len(check(found, registry).signatures) == 2


def test_an_image_without_a_signature_is_refused_and_named(tmp_path: Path, registry: MemoryRegistry) -> None:
    error = refusal(by_key(tmp_path, public_pem(cosign_key())), registry)
    assert (error.code, error.exit_code) == ("images.signature", 1)
    assert "the image app" in error.what
    assert "0.pub" in error.what
    assert error.what.endswith("it has no signature")
    assert DIGEST in error.where
    assert error.hint


Case = tuple[list[tuple[bytes, Annotations]], str]


def hostile(registry: MemoryRegistry) -> dict[str, Case]:
    """What others may lay beside an image, and what is said of it."""
    key, good = cosign_key(), signed(registry, cosign_key())
    text = good[1][cosign.SIGNATURE]
    return {
        "by another key": ([signed(registry, cosign_key("P-256", 2))], "by another key"),
        "of another payload": ([(claim_of("x", DIGEST), good[1])], "or does not fit its content"),
        "of another digest": ([signed(registry, key, OTHER)], "is of other bytes"),
        "of another repository": (
            [signed(registry, key, reference=f"{registry.host}/team/evil")], "names another image"
        ),
        "of another registry": ([signed(registry, key, reference="evil.org/app")], "names another image"),
        "not base64": ([(good[0], {cosign.SIGNATURE: text[:-2] + "%="})], "is not base64"),
        "base64 of nothing": ([(good[0], {cosign.SIGNATURE: ""})], "or does not fit its content"),
        "endless signature": ([(good[0], {cosign.SIGNATURE: "A" * 5000})], "at most 4096 are read"),
        "keyless": ([(good[0], {**good[1], cosign.CERTIFICATE: "-----BEGIN"})], "is keyless"),
        "without a signature": ([(good[0], {"org.example": "x"})], "without signatures"),
        "no signatures at all": ([], "without signatures"),
        "too many": ([good] * 129, "at most 128 are read"),
        "deep": ([(deep := b"[" * 60_000, {cosign.SIGNATURE: signature_of(key, deep)})], "cannot be read"),
    }  # fmt: skip


CASES = (
    "by another key", "of another payload", "of another digest", "of another repository",
    "of another registry", "not base64", "base64 of nothing", "endless signature", "keyless",
    "without a signature", "no signatures at all", "too many", "deep",
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_others_lay_beside_an_image_is_no_signature(
    tmp_path: Path, registry: MemoryRegistry, name: str
) -> None:
    signatures, said = hostile(registry)[name]
    lay_down(registry, *signatures)
    error = refusal(by_key(tmp_path, public_pem(cosign_key())), registry)
    assert error.code == "images.signature"
    assert said in error.what
    assert len(error.what) < 1000


def test_all_hostile_signatures_are_tried() -> None:
    with memory_registry() as running:
        assert tuple(hostile(running)) == CASES


def test_a_payload_that_is_too_large_is_not_asked_for(tmp_path: Path, registry: MemoryRegistry) -> None:
    payload = b" " * (1 << 17)
    lay_down(registry, (payload, {cosign.SIGNATURE: signature_of(cosign_key(), payload)}))
    error = refusal(by_key(tmp_path, public_pem(cosign_key())), registry)
    assert "at most 65536 are read" in error.what
    assert not [path for path in registry.asked if "/blobs/" in path]


def test_a_payload_of_another_size_than_announced_is_refused(
    tmp_path: Path, registry: MemoryRegistry
) -> None:
    payload, notes = signed(registry, cosign_key())
    found, _ = artifact_of([(payload, notes)])
    raw = found.raw.replace(f'"size": {len(payload)}'.encode(), b'"size": 1')
    registry.put_blob("team/app", payload)
    registry.put_manifest("team/app", manifest.read(raw, manifest.OCI_MANIFEST, "test"), TAG)
    assert refusal(by_key(tmp_path, public_pem(cosign_key())), registry).code in (
        "images.signature", "images.corrupt",
    )  # fmt: skip


def test_an_artifact_with_a_large_blob_is_refused(tmp_path: Path, registry: MemoryRegistry) -> None:
    payload, notes = signed(registry, cosign_key())
    found, _ = artifact_of([(payload, notes)])
    document = json.loads(found.raw)
    document["config"]["size"] = 1 << 30
    raw = json.dumps(document).encode()
    registry.put_blob("team/app", payload)
    registry.put_manifest("team/app", manifest.read(raw, manifest.OCI_MANIFEST, "test"), TAG)
    assert (
        f"holds a blob of {1 << 30} bytes"
        in refusal(by_key(tmp_path, public_pem(cosign_key())), registry).what
    )


def test_an_artifact_that_names_other_addresses_for_a_layer_is_refused(
    tmp_path: Path, registry: MemoryRegistry
) -> None:
    payload, notes = signed(registry, cosign_key())
    found, _ = artifact_of([(payload, notes)])
    document = json.loads(found.raw)
    document["layers"][0]["urls"] = ["http://192.0.2.1/"]
    registry.put_blob("team/app", payload)
    top = manifest.read(json.dumps(document).encode(), manifest.OCI_MANIFEST, "test")
    registry.put_manifest("team/app", top, TAG)
    refused = refusal(by_key(tmp_path, public_pem(cosign_key())), registry)
    assert "layers outside of its registry" in refused.what


def test_an_artifact_with_many_layers_around_a_signature_is_refused(
    tmp_path: Path, registry: MemoryRegistry
) -> None:
    payload, notes = signed(registry, cosign_key())
    found, _ = artifact_of([(payload, notes)])
    document = json.loads(found.raw)
    more = [{"mediaType": "x", "digest": f"sha256:{n:064x}", "size": 1} for n in range(cosign.MAX_SIGNATURES)]
    document["layers"] += more
    raw = json.dumps(document).encode()
    registry.put_blob("team/app", payload)
    registry.put_manifest("team/app", manifest.read(raw, manifest.OCI_MANIFEST, "test"), TAG)
    refused = refusal(by_key(tmp_path, public_pem(cosign_key())), registry)
    assert f"an artifact of {len(more) + 2} blobs" in refused.what


@pytest.mark.parametrize(
    "digest", ["sha256:\0", "a\nb", "../../../../other/path?x=1", f"sha256:{'a' * 70_000}"]
)
@pytest.mark.parametrize("in_list", [False, True])
def test_an_artifact_with_a_digest_that_is_none_is_refused(
    tmp_path: Path, registry: MemoryRegistry, digest: str, in_list: bool
) -> None:
    payload, notes = signed(registry, cosign_key())
    layer = {"mediaType": cosign.PAYLOAD, "digest": digest, "size": len(payload), "annotations": notes}
    document = {"mediaType": manifest.OCI_INDEX, "manifests": [], "layers": [layer]}
    if not in_list:
        found, _ = artifact_of([(payload, notes)])
        document = {**json.loads(found.raw), "layers": [layer]}
    raw = json.dumps(document).encode()
    kind = manifest.OCI_INDEX if in_list else manifest.OCI_MANIFEST
    put = Manifest(manifest.digest_of(raw), kind, raw)
    registry.put_manifest("team/app", put, TAG)
    assert refusal(by_key(tmp_path, public_pem(cosign_key())), registry).code in (
        "images.signature", "images.manifest",
    )  # fmt: skip


def test_a_signed_list_covers_the_image_that_it_lists_and_no_other(
    tmp_path: Path, registry: MemoryRegistry
) -> None:
    def listing(*digests: str) -> Manifest:
        entries = [{"digest": digest, "size": 7, "platform": {"os": "linux"}} for digest in digests]
        raw = json.dumps({"mediaType": manifest.OCI_INDEX, "manifests": entries}).encode()
        return manifest.read(raw, manifest.OCI_INDEX, "test")

    found = by_key(tmp_path, public_pem(cosign_key()))
    for index, is_covered in ((listing(OTHER, DIGEST), True), (listing(OTHER), False)):
        payload, notes = signed(registry, cosign_key(), index.digest)
        artifact, blobs = artifact_of([(payload, notes)])
        for content in blobs.values():
            registry.put_blob("team/app", content)
        registry.put_manifest("team/app", index)
        registry.put_manifest("team/app", artifact, cosign.signature_tag(index.digest))
        if is_covered:
            done = check(found, registry, index=index.digest)
            assert [one.signed for one in done.signatures] == [index.digest]
            # The nodes' registry does not have the list that is signed.
            assert done.artifact is None
        else:
            assert refusal(found, registry, index=index.digest).code == "images.signature"


def test_a_rejected_scope_is_refused_whoever_signed(tmp_path: Path, registry: MemoryRegistry) -> None:
    lay_down(registry, signed(registry, cosign_key()))
    error = refusal(checker_of(tmp_path, {"default": [{"type": "reject"}]}), registry)
    assert (error.code, registry.asked) == ("images.signature", [])
    assert "the policy rejects it" in error.what


def test_what_needs_no_signature_asks_nobody(tmp_path: Path, registry: MemoryRegistry) -> None:
    found = checker_of(tmp_path, {"default": [{"type": "insecureAcceptAnything"}]})
    assert check(found, registry) == SignedImage()
    assert registry.asked == []
    assert not found.is_required(image_at(registry.host))


def test_what_was_built_here_needs_no_signature(tmp_path: Path, registry: MemoryRegistry) -> None:
    found = checker_of(tmp_path, {"default": [REJECT]}, **built_at(registry.host))
    assert check(found, registry, source=f"{registry.host}/team/app:1") == SignedImage()


REJECT = {"type": "reject"}


def built_at(host: str) -> dict[str, object]:
    """The settings of a cluster whose own registry that is, with a build of the image."""
    name, _, port = host.partition(":")
    builds = [{"name": "app", "base": "training", "target": "team/app:1"}]
    return {"registry_hostname": name, "registry_port": int(port), "image_builds": builds}


@pytest.mark.parametrize("other", ["another name", "another source", "no build"])
def test_what_lies_in_our_registry_and_was_not_built_here_needs_its_signature(
    other: str, tmp_path: Path, registry: MemoryRegistry
) -> None:
    settings = built_at(registry.host) | ({"image_builds": []} if other == "no build" else {})
    found = checker_of(tmp_path, {"default": [REJECT]}, **settings)
    name = "one" if other == "another name" else "app"
    source = f"{registry.host}/team/{'other' if other == 'another source' else 'app'}:1"
    assert refusal(found, registry, name=name, source=source).code == "images.signature"


@pytest.mark.parametrize("scope", ["", "/team", "/team/app:1"])
def test_a_scope_of_our_own_registry_holds_for_what_was_built_here(
    scope: str, tmp_path: Path, registry: MemoryRegistry
) -> None:
    policy = {
        "default": [{"type": "insecureAcceptAnything"}],
        "transports": {"docker": {f"{registry.host}{scope}": [REJECT]}},
    }
    source = f"{registry.host}/team/app:1"
    found = checker_of(tmp_path, policy, **built_at(registry.host))
    assert refusal(found, registry, source=source).code == "images.signature"
    everything = {"default": [REJECT], "transports": {"docker": {"": [REJECT]}}}
    found = checker_of(tmp_path, everything, **built_at(registry.host))
    assert check(found, registry, source=source) == SignedImage()


def test_an_image_that_is_not_recorded_is_refused_with_what_is_demanded(
    tmp_path: Path, registry: MemoryRegistry
) -> None:
    for found, demanded in (
        (checker_of(tmp_path, {"default": [REJECT]}), "{type: reject}"),
        (by_key(tmp_path, public_pem(cosign_key())), "a cosign signature by 0.pub"),
    ):
        with pytest.raises(ClusterctlError) as refused:
            found.require_recorded([image_at(registry.host)], trusted=True)
        assert demanded in refused.value.what
        assert "clusterctl lock" in refused.value.hint


def test_a_record_says_when_it_was_first_made(tmp_path: Path, registry: MemoryRegistry) -> None:
    lay_down(registry, signed(registry, cosign_key()))
    found = by_key(tmp_path, public_pem(cosign_key()))
    (one,) = check(found, registry).signatures
    before = one.model_copy(update={"at": "2020-01-01T00:00:00Z"})
    assert check(found, registry, signatures=(before,)).signatures == (before,)
    other = before.model_copy(update={"payload": OTHER})
    assert check(found, registry, signatures=(other,)).signatures[0].at > "2020-01-01T00:00:00Z"


def test_a_record_counts_while_the_policy_names_its_key(tmp_path: Path, registry: MemoryRegistry) -> None:
    lay_down(registry, signed(registry, cosign_key()))
    signatures = check(by_key(tmp_path, public_pem(cosign_key())), registry).signatures
    locked = image_at(registry.host, signatures=signatures)
    assert by_key(tmp_path, public_pem(cosign_key())).is_recorded(locked)
    assert not by_key(tmp_path, public_pem(cosign_key("P-256", 2))).is_recorded(locked)
    assert not by_key(tmp_path, public_pem(cosign_key())).is_recorded(image_at(registry.host))
    # Of another build of the image the record says nothing.
    rebuilt = image_at(registry.host, digest=OTHER, signatures=signatures)
    assert not by_key(tmp_path, public_pem(cosign_key())).is_recorded(rebuilt)
    assert not checker_of(tmp_path, {"default": [{"type": "reject"}]}).is_recorded(locked)


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        (public_pem(cosign_key("K-256")), "of a kind that cosign does not sign with"),
        (public_pem(cosign_key("RSA-1024")), "of a kind that cosign does not sign with"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "is not a public key in PEM"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(
    tmp_path: Path, registry: MemoryRegistry, pem: bytes, said: str
) -> None:
    lay_down(registry, signed(registry, cosign_key()))
    error = refusal(by_key(tmp_path, pem), registry)
    assert (error.code, error.where) == ("images.signature-key", "0.pub")
    assert said in error.what


def test_a_key_in_the_settings_is_a_key(tmp_path: Path, registry: MemoryRegistry) -> None:
    lay_down(registry, signed(registry, cosign_key()))
    data = base64.b64encode(public_pem(cosign_key())).decode()
    wanted = {"type": "sigstoreSigned", "keyData": data, "signedIdentity": IN_REPOSITORY}
    assert check(checker_of(tmp_path, {"default": [wanted]}), registry).signatures


# The sample key of LibrePGP, its part that is public: draft-koch-librepgp, "Sample v5 Certificate".
OF_VERSION_5 = bytes.fromhex(
    "055c91f4e4160000002d092b06010401da470f0101"
    "0740585995571556dc1ffb6d713503d7f9e70c24904bd0c3dd7e3ef98aec7e9b2f10"
)


def test_fingerprints_of_a_keyring_are_those_of_its_keys_and_subkeys() -> None:
    odd = openpgp.foreign_key(3) + openpgp.packet(6, b"") + openpgp.packet(2, b"\4")
    keyring = openpgp.BINARY + openpgp.packet(6, OF_VERSION_5) + odd
    assert simple_signing.key_fingerprints(keyring) == {
        openpgp.FINGERPRINT, openpgp.SUBKEY,
        "19347BC9872464025F99DF3EC2E0000ED9884892E1F7B3EA4C94009159569B54",
    }  # fmt: skip


def test_a_keyring_that_cannot_be_read_records_nothing(tmp_path: Path) -> None:
    (tmp_path / "key.gpg").write_bytes(openpgp.BINARY + b"\x99rest")
    wanted = {"type": "signedBy", "keyType": "GPGKeys", "keyPath": "key.gpg"}
    with pytest.raises(ClusterctlError) as refused:
        checker_of(tmp_path, {"default": [wanted]}).is_recorded(image_at("127.0.0.1:9"))
    assert (refused.value.code, refused.value.where) == ("images.signature-key", "key.gpg")


def test_gpg_signatures_need_a_place_to_be_found(tmp_path: Path, registry: MemoryRegistry) -> None:
    (tmp_path / "key.asc").write_bytes(b"\x99rest")
    wanted = {"type": "signedBy", "keyType": "GPGKeys", "keyPath": "key.asc"}
    error = refusal(checker_of(tmp_path, {"default": [wanted]}), registry)
    assert (error.code, error.where) == ("settings.signatures", "images_signatures_lookaside")
