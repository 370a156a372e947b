"""The settings of images' signatures: each wrong line is named, keys are looked for, templates are left alone."""
# ruff: noqa: E501 - tables of cases are read a case a line

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.support.signed_images import cosign_key, public_pem

from .cluster_directories import cluster, found, only

# As Fedora and RHEL ship it, with a key of the site's own.
POLICY_JSON = {
    "default": [{"type": "reject"}],
    "transports": {
        "docker": {
            "registry.access.redhat.com": [
                {"type": "signedBy", "keyType": "GPGKeys", "keyPath": "keys/gpg.asc"}
            ],
            "docker.io/paddlepaddle": [
                {
                    "type": "sigstoreSigned",
                    "keyPath": "keys/cosign.pub",
                    "signedIdentity": {"type": "matchRepository"},
                }
            ],
        },
        "docker-daemon": {"": [{"type": "insecureAcceptAnything"}]},
    },
}


def with_keys(root: Path) -> Path:
    keys = root / "keys"
    keys.mkdir()
    (keys / "cosign.pub").write_bytes(public_pem(cosign_key()))
    (keys / "gpg.asc").write_text(
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME\n-----END PGP PUBLIC KEY BLOCK-----\n"
    )
    (keys / "private.key").write_text("-----BEGIN ENCRYPTED COSIGN PRIVATE KEY-----\nx\n")
    (keys / "other.txt").write_text("no key\n")
    (keys / "large.pub").write_bytes(b"x" * ((1 << 20) + 1))
    return root


def test_a_policy_json_can_be_pasted_and_its_keys_lie_in_the_cluster_directory(tmp_path: Path) -> None:
    directory = cluster(
        with_keys(tmp_path), group_vars__all=f"images_signatures: {json.dumps(POLICY_JSON)}\n"
    )
    assert found(directory) == []


def written(requirement: str) -> str:
    return (
        "images_signatures:\n"
        "  default: [{type: insecureAcceptAnything}]\n"
        "  transports:\n"
        "    docker:\n"
        "      docker.io/team/app:\n"
        f"        - {requirement}\n"
    )


@pytest.mark.parametrize(
    ("requirement", "said"),
    [
        ("{type: sigstoreSigned, keyPath: keys/none.pub}", "keys/none.pub cannot be read: No such file"),
        ("{type: sigstoreSigned, keyPath: keys}", "keys is not a regular file"),
        ("{type: sigstoreSigned, keyPath: /dev/zero}", "/dev/zero is not trusted: it is world-writable"),
        ("{type: sigstoreSigned, keyPath: keys/large.pub}", "at most 1048576 are read"),
        ("{type: sigstoreSigned, keyPath: keys/private.key}", "keys/private.key is a private key"),
        ("{type: sigstoreSigned, keyPath: keys/gpg.asc}", "keys/gpg.asc is not a public key in PEM"),
        ("{type: sigstoreSigned, keyPath: ~nobody-of-that-name/key}", "cannot be read"),
        ("{type: sigstoreSigned, keyPaths: [keys/cosign.pub, keys/other.txt]}", "keys/other.txt is not a public key"),
        ("{type: sigstoreSigned, keyData: '%%%'}", "keyData 1 is not base64"),
        ("{type: sigstoreSigned, keyData: bm8ga2V5}", "keyData 1 is not a public key"),
        ("{type: signedBy, keyType: GPGKeys, keyPath: keys/cosign.pub}", "keys/cosign.pub is not an OpenPGP public key"),
        ("{type: signedBy, keyType: GPGKeys, keyData: lQE=}", "keyData 1 is a private key"),
        ("{type: sigstoreSigned, fulcio: {}}", "fulcio is not supported"),
        ("{type: sigstoreSigned, keyPath: 12}", "valid string"),
        ("{type: trusted}", "there is no type 'trusted'"),
    ],
)  # fmt: skip
def test_a_requirement_that_cannot_be_met_is_named_with_its_line(
    tmp_path: Path, requirement: str, said: str
) -> None:
    file, line, sentence = only(cluster(with_keys(tmp_path), group_vars__all=written(requirement)))
    assert (file, line) == ("group_vars/all.yml", 6)
    assert said in sentence
    assert "images_signatures" in sentence


def test_a_key_that_others_could_have_written_is_not_used(tmp_path: Path) -> None:
    directory = cluster(
        with_keys(tmp_path), group_vars__all=written("{type: sigstoreSigned, keyPath: keys/cosign.pub}")
    )
    assert found(directory) == []
    keys = tmp_path / "keys"
    for path, which in ((keys / "cosign.pub", "it"), (keys, f"the directory {keys}, in which it is,")):
        mode = path.stat().st_mode
        path.chmod(0o777)
        assert f"keys/cosign.pub is not trusted: {which} is world-writable" in only(directory)[2]
        path.chmod(mode)


def test_a_key_in_the_settings_needs_no_file(tmp_path: Path) -> None:
    data = base64.b64encode(public_pem(cosign_key())).decode()
    directory = cluster(tmp_path, group_vars__all=written(f"{{type: sigstoreSigned, keyData: {data}}}"))
    assert found(directory) == []


@pytest.mark.parametrize(
    "value",
    [
        '"{{ site_policy }}"',
        '{default: "{{ site_requirements }}"}',
        '{default: [{type: sigstoreSigned, keyPath: "{{ inventory_dir }}/cosign.pub"}]}',
        "{}",
    ],
)
def test_what_only_ansible_knows_is_left_to_it(tmp_path: Path, value: str) -> None:
    assert found(cluster(tmp_path, group_vars__all=f"images_signatures: {value}\n")) == []


def test_it_is_checked_wherever_variables_stand(tmp_path: Path) -> None:
    hosts = (
        "all:\n  vars:\n    images_signatures: {default: []}\n  children:\n"
        "    gpu_nodes: {hosts: {gpu01: {ansible_host: 10.0.0.1}}}\n"
    )
    file, line, _ = only(cluster(tmp_path, hosts=hosts))
    assert (file, line) == ("hosts.yml", 3)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("https://signatures.example.com/containers", ""),
        ("file:///srv/signatures", ""),
        ("http://127.0.0.1:8000", ""),
        ('"{{ site_signatures }}"', ""),
        ("http://signatures.example.com", "neither https:// nor file:///"),
        ("ftp://signatures.example.com", "neither https:// nor file:///"),
        ("file://host/srv", "neither https:// nor file:///"),
        ("/srv/signatures", "neither https:// nor file:///"),
        ("https://user:password@example.com", "no user, query or fragment"),
        ("https://[::1", "is not an address"),
        ('"https://example.com/a b"', "is not an address"),
    ],
)
def test_signatures_lie_behind_tls_or_in_a_directory(tmp_path: Path, location: str, said: str) -> None:
    text = f"images_signatures_lookaside:\n  registry.example.com: {location}\n"
    problems = found(cluster(tmp_path, group_vars__all=text))
    assert [line for _, line, _ in problems] == ([2] if said else [])
    assert all(said in sentence for _, _, sentence in problems)


def test_a_scope_of_signatures_is_a_scope(tmp_path: Path) -> None:
    text = "images_signatures_lookaside:\n  busybox: file:///srv\n"
    assert "'busybox' is not a scope" in only(cluster(tmp_path, group_vars__all=text))[2]
