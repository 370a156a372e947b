"""The policy of images' signatures: which requirements an image has, and what is not taken for a policy."""
# ruff: noqa: E501 - tables of cases are read a case a line

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.cluster import signature_lookaside, signature_policy
from clusterctl.cluster.signature_policy import SigstoreSigned, scopes_of
from clusterctl.errors import ClusterctlError

ACCEPT: list[dict[str, Any]] = [{"type": "insecureAcceptAnything"}]
REJECT: list[dict[str, Any]] = [{"type": "reject"}]
DIGEST = f"sha256:{'a' * 64}"


def key(name: str, **more: object) -> list[dict[str, Any]]:
    return [{"type": "sigstoreSigned", "keyPath": name, **more}]


def test_scopes_are_those_of_containers_image_the_most_specific_first() -> None:
    assert list(scopes_of("a.b.example.com:5000", "team/app", "1", "")) == [
        "a.b.example.com:5000/team/app:1",
        "a.b.example.com:5000/team/app",
        "a.b.example.com:5000/team",
        "a.b.example.com:5000",
        "*.b.example.com",
        "*.example.com",
        "*.com",
        "",
    ]
    assert (
        next(scopes_of("docker.io", "library/busybox", "", DIGEST)) == f"docker.io/library/busybox@{DIGEST}"
    )
    assert list(scopes_of("[::1]:5000", "app", "", "")) == ["[::1]:5000/app", "[::1]:5000", ""]


@pytest.mark.parametrize(
    ("image", "used"),
    [
        (("docker.io", "team/app", "1", ""), "tag.pub"),
        (("docker.io", "team/app", "2", ""), "repository.pub"),
        (("docker.io", "team/app/part", "1", ""), "repository.pub"),
        (("docker.io", "team/application", "1", ""), "team.pub"),
        (("docker.io", "other/app", "1", ""), "host.pub"),
        (("eu.example.com:5000", "any", "1", ""), "domain.pub"),
        (("example.com", "any", "1", ""), "transport.pub"),
        (("docker.io.evil.org", "team/app", "1", ""), "transport.pub"),
    ],
)
def test_only_the_most_specific_scope_counts(image: tuple[str, str, str, str], used: str) -> None:
    policy = signature_policy.read(
        {
            "default": REJECT,
            "transports": {
                "docker": {
                    "docker.io/team/app:1": key("tag.pub"),
                    "docker.io/team/app": key("repository.pub"),
                    "docker.io/team": key("team.pub"),
                    "docker.io": key("host.pub"),
                    "*.example.com": key("domain.pub"),
                    "": key("transport.pub"),
                },
                "docker-daemon": {"": ACCEPT},
            },
        }
    )
    assert policy is not None
    (found,) = policy.requirements(*image)
    assert isinstance(found, SigstoreSigned)
    assert found.keyPath == used


@pytest.mark.parametrize(
    "scope", ["ghcr.io", "GHCR.io", "ghcr.io:443", "ghcr.io/a", "ghcr.io:443/a/b", "GHCR.IO/a/b:Tag", "*.IO"]
)
@pytest.mark.parametrize("registry", ["ghcr.io", "GHCR.io", "ghcr.io:443", "Ghcr.Io:443", "ghcr.io:0443"])
def test_a_server_has_one_policy_however_it_is_written(scope: str, registry: str) -> None:
    policy = signature_policy.read({"default": ACCEPT, "transports": {"docker": {scope: REJECT}}})
    assert policy is not None
    assert [one.type for one in policy.requirements(registry, "a/b", "Tag", "")] == ["reject"]
    assert policy.has_scope_of(registry, "a/b", "Tag", "")
    assert [one.type for one in policy.requirements("ghcr.io:5000", "c", "1", "")] == (
        ["reject"] if scope == "*.IO" else ["insecureAcceptAnything"]
    )


@pytest.mark.parametrize("registry", ["index.docker.io", "Registry-1.Docker.io:443", "DOCKER.io"])
def test_docker_hub_has_one_policy_too(registry: str) -> None:
    policy = signature_policy.read({"default": ACCEPT, "transports": {"docker": {"docker.io": REJECT}}})
    assert policy is not None
    assert [one.type for one in policy.requirements(registry, "a/b", "1", "")] == ["reject"]


def test_two_policies_of_one_server_are_refused() -> None:
    scopes = {"ghcr.io/a": REJECT, "GHCR.io:443/a": ACCEPT}
    with pytest.raises(ClusterctlError, match=r"'ghcr\.io/a' is there twice"):
        signature_policy.read({"default": ACCEPT, "transports": {"docker": scopes}})


def test_signatures_lie_in_one_place_however_a_server_is_written() -> None:
    locations = signature_lookaside.read({"GHCR.io:443": "https://signatures.example.com"})
    assert (
        signature_lookaside.location(locations, "ghcr.io", "a", "1", "") == "https://signatures.example.com"
    )


def test_the_default_counts_where_no_scope_does() -> None:
    policy = signature_policy.read({"default": REJECT, "transports": {"docker": {"docker.io": ACCEPT}}})
    assert policy is not None
    assert [one.type for one in policy.requirements("quay.io", "a/b", "1", "")] == ["reject"]
    assert [one.type for one in policy.requirements("docker.io", "a/b", "1", "")] == [
        "insecureAcceptAnything"
    ]


@pytest.mark.parametrize("nothing", [None, {}, ""])
def test_without_a_policy_there_is_none(nothing: object) -> None:
    assert signature_policy.read(nothing) is None


KEYLESS = {"fulcio": {}, "rekorPublicKeyPath": "rekor.pub", "rekorPublicKeyData": "eA==", "pki": {}}


@pytest.mark.parametrize("name", KEYLESS)
def test_keyless_is_refused_by_name_and_says_what_to_do(name: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        signature_policy.read({"default": key("cosign.pub", **{name: KEYLESS[name]})})
    assert refused.value.code == "settings.signatures"
    assert f"{name} is not supported" in refused.value.what
    assert "cosign sign --key" in refused.value.hint


def nested(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"default": found}
    return found


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"transports": {}}, "default is missing"),
        ({"default": []}, "at least 1 item"),
        ({"default": ACCEPT * 17}, "at most 16 items"),
        ({"default": [{"type": "signedBaseLayer"}]}, "there is no type 'signedBaseLayer'"),
        ({"default": [{}]}, "it has no type"),
        ({"default": [{"type": "reject", "keyPath": "a"}]}, "there is no 'keyPath'"),
        ({"default": [{"type": "sigstoreSigned"}]}, "it needs one of keyPath, keyPaths, keyData, keyDatas, and has none"),
        ({"default": key("a", keyData="eA==")}, "and has keyPath, keyData"),
        ({"default": [{"type": "sigstoreSigned", "keyPaths": []}]}, "at least 1 item"),
        ({"default": [{"type": "sigstoreSigned", "keyPath": 7}]}, "valid string"),
        ({"default": [{"type": "sigstoreSigned", "keyPath": "a" * 2000}]}, "at most 1024 characters"),
        ({"default": [{"type": "sigstoreSigned", "keyData": "a" * 1_400_001}]}, "at most 1400000 characters"),
        ({"default": [{"type": "signedBy", "keyPath": "a"}]}, "keyType is missing"),
        ({"default": [{"type": "signedBy", "keyType": "X509Certificates", "keyPath": "a"}]}, "'GPGKeys'"),
        ({"default": key("a", signedIdentity={"type": "matchAnything"})}, "there is no type 'matchAnything'"),
        ({"default": key("a", signedIdentity={"type": "exactRepository"})}, "dockerRepository is missing"),
        ({"default": key("a", signedIdentity={"type": "exactReference", "dockerReference": "docker.io/a/b"})}, "neither a tag nor a digest"),
        ({"default": key("a", signedIdentity={"type": "exactRepository", "dockerRepository": "busybox"})}, "not a name in full"),
        ({"default": ACCEPT, "transports": {"dokcer": {}}}, "there is no 'dokcer'"),
        ({"default": ACCEPT, "transports": {"others": {"dir": {}}}}, "there is no transport 'others'"),
        ({"default": ACCEPT, "transports": {"docker": {"busybox": REJECT}}}, "'busybox' is not a scope"),
        ({"default": ACCEPT, "transports": {"docker": {"example*.com": REJECT}}}, "is not a scope"),
        ({"default": ACCEPT, "transports": {"docker": {f"h{n}.com": REJECT for n in range(1001)}}}, "at most 1000 items"),
        ({"default": ACCEPT, "more": 1}, "there is no 'more'"),
        (nested(5000), "valid tuple"),
        ([1], "valid dictionary"),
        ("{}", "valid dictionary"),
        (7, "valid dictionary"),
    ],
)  # fmt: skip
def test_what_is_no_policy_is_refused_with_its_place(wrong: object, said: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        signature_policy.read(wrong)
    assert refused.value.code == "settings.signatures"
    assert said in refused.value.what
    assert refused.value.where.startswith("images_signatures")
    assert len(refused.value.what) < 400
