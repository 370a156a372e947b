"""What a signature claims: read strictly, and compared with the image as containers/image does."""
# ruff: noqa: E501 - tables of cases are read a case a line

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter
from tests.support.signed_images import COSIGN_TYPE, GPG_TYPE, claim_of

from clusterctl.cluster.signature_policy import USUAL_IDENTITY, SignedIdentity
from clusterctl.registry.images.signatures import claim
from clusterctl.registry.images.signatures.claim import RefusedSignatureError, matches
from clusterctl.registry.oci.reference import parse

DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
BY_DIGEST = f"docker.io/team/app@{DIGEST}"


def identity(kind: str, **more: str) -> Any:
    return TypeAdapter(SignedIdentity).validate_python({"type": kind, **more})


@pytest.mark.parametrize(
    ("rule", "image", "claimed", "good"),
    [
        (identity("matchExact"), "docker.io/team/app:1", "docker.io/team/app:1", True),
        (identity("matchExact"), "docker.io/team/app:1", "team/app:1", True),
        (identity("matchExact"), "docker.io/team/app:1", "docker.io/team/app:2", False),
        (identity("matchExact"), "docker.io/team/app:1", "docker.io/team/app", False),
        (identity("matchExact"), "docker.io/team/app", "docker.io/team/app:latest", True),
        (identity("matchExact"), BY_DIGEST, "docker.io/team/app:1", False),
        (identity("matchExact"), BY_DIGEST, BY_DIGEST, True),
        (identity("matchExact"), BY_DIGEST, f"docker.io/team/app@{OTHER}", False),
        (USUAL_IDENTITY, "docker.io/team/app:1", "docker.io/team/app:1", True),
        (USUAL_IDENTITY, "docker.io/team/app:1", "docker.io/team/app:2", False),
        (USUAL_IDENTITY, "docker.io/team/app:1", "docker.io/team/app", False),
        (USUAL_IDENTITY, "docker.io/team/app:1", "quay.io/team/app:1", False),
        (USUAL_IDENTITY, BY_DIGEST, "docker.io/team/app:1", True),
        (USUAL_IDENTITY, f"docker.io/team/app:2@{DIGEST}", "docker.io/team/app:1", True),
        (USUAL_IDENTITY, BY_DIGEST, "docker.io/team/app", False),
        (USUAL_IDENTITY, BY_DIGEST, "docker.io/team/other:1", False),
        (identity("matchRepository"), "docker.io/team/app:1", "docker.io/team/app", True),
        (identity("matchRepository"), "docker.io/team/app:1", "docker.io/team/app:9", True),
        (identity("matchRepository"), "docker.io/team/app:1", "docker.io/team/app2:1", False),
        (identity("matchRepository"), "docker.io/team/app:1", "docker.io/team/app/x:1", False),
        (identity("exactReference", dockerReference="vendor.com/app:1"), "docker.io/team/app:9", "vendor.com/app:1", True),
        (identity("exactReference", dockerReference="vendor.com/app:1"), "docker.io/team/app:9", "vendor.com/app:2", False),
        (identity("exactReference", dockerReference=f"vendor.com/app@{DIGEST}"), "docker.io/team/app:9", "vendor.com/app:1", False),
        (identity("exactRepository", dockerRepository="vendor.com/app"), "docker.io/team/app:9", "vendor.com/app:2", True),
        (identity("exactRepository", dockerRepository="vendor.com/app"), "docker.io/team/app:9", "docker.io/team/app:9", False),
        (identity("remapIdentity", prefix="docker.io/team", signedPrefix="vendor.com"), "docker.io/team/app:1", "vendor.com/app:1", True),
        (identity("remapIdentity", prefix="docker.io/team", signedPrefix="vendor.com"), "docker.io/team/app:1", "vendor.com/app:2", False),
        (identity("remapIdentity", prefix="docker.io/team", signedPrefix="vendor.com"), BY_DIGEST, "vendor.com/app:2", True),
        (identity("remapIdentity", prefix="docker.io/team", signedPrefix="vendor.com"), "docker.io/team/app:1", "docker.io/team/app:1", False),
        (identity("remapIdentity", prefix="docker.io/te", signedPrefix="vendor.com/x"), "docker.io/team/app:1", "docker.io/team/app:1", True),
        (identity("remapIdentity", prefix="docker.io/team/app", signedPrefix="vendor.com/app"), "docker.io/team/app:1", "vendor.com/app:1", True),
        (identity("matchRepository"), "docker.io/team/app:1", "http://127.0.0.1/team/app", False),
        (identity("matchRepository"), "docker.io/team/app:1", "", False),
        (identity("matchRepository"), "docker.io/team/app:1", "DOCKER.IO/team/APP", False),
        (identity("matchRepository"), "docker.io/team/app:1", "docker.io/team/app\n", False),
    ],
)  # fmt: skip
def test_the_name_in_a_signature_is_compared_as_the_policy_says(
    rule: Any, image: str, claimed: str, good: bool
) -> None:
    assert matches(rule, parse(image), claimed) is good


def changed(**more: object) -> bytes:
    document = json.loads(claim_of("docker.io/team/app", DIGEST))
    document["critical"].update(more)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "cannot be read"),
        (b"{}", "cannot be read"),
        (b"[" * 60_000, "cannot be read"),
        (b'{"critical":' * 5_000, "cannot be read"),
        (b" " * 65_537, "more than 65536 bytes"),
        (b"1" * 60_000, "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (claim_of("docker.io/team/app", DIGEST)[:-1] + b', "more": 1}', "cannot be read"),
        (changed(more=1), "cannot be read"),
        (changed(image={"docker-manifest-digest": DIGEST, "size": 1}), "cannot be read"),
        (changed(image={"Docker-manifest-digest": DIGEST}), "cannot be read"),
        (changed(image={"docker-manifest-digest": [DIGEST]}), "cannot be read"),
        (changed(identity={"docker-reference": "a" * 2000}), "cannot be read"),
        (claim_of("x", DIGEST).replace(b'"type"', b'"type": "x", "type"'), "cannot be read"),
        (changed(type=GPG_TYPE), "is of another kind"),
        (changed(type="something"), "cannot be read"),
    ],
)  # fmt: skip
def test_a_claim_is_read_strictly(payload: bytes, said: str) -> None:
    with pytest.raises(RefusedSignatureError, match=said):
        claim.read(payload, COSIGN_TYPE)


def test_a_claim_about_other_bytes_is_refused() -> None:
    found = claim.read(claim_of("docker.io/team/app:1", OTHER), COSIGN_TYPE)
    with pytest.raises(RefusedSignatureError, match="is of other bytes"):
        claim.require_claim(found, DIGEST, USUAL_IDENTITY, parse("docker.io/team/app:1"))


def test_what_a_signer_wrote_reaches_no_terminal_as_it_is() -> None:
    found = claim.read(claim_of("docker.io/\x1b]52;c;eA==\x07/app", DIGEST), COSIGN_TYPE)
    with pytest.raises(RefusedSignatureError) as refused:
        claim.require_claim(found, DIGEST, USUAL_IDENTITY, parse("docker.io/team/app:1"))
    assert "\x1b" not in str(refused.value)


def test_cosigns_name_without_a_tag_has_a_hint() -> None:
    found = claim.read(claim_of("docker.io/team/app", DIGEST), COSIGN_TYPE)
    with pytest.raises(RefusedSignatureError, match="signedIdentity matchRepository accepts that"):
        claim.require_claim(found, DIGEST, USUAL_IDENTITY, parse("docker.io/team/app:1"))
