"""A bundle's signature: what ssh-keygen makes is accepted, and everything else is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clusterctl.cluster.public_keys import public_key
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import bundle_signature
from clusterctl.registry.images.bundle_signature import TrustPolicy, require_trusted, sign, signature_of

RAW = b'{"schema_version": 1}\n'


def key_in(directory: Path, name: str, kind: str = "ed25519") -> Path:
    """A key of ssh-keygen without a passphrase."""
    path = directory / name
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", f"{name} of the tests", "-f", path], check=True
    )
    return path


def public(key: Path) -> str:
    return key.with_name(f"{key.name}.pub").read_text().strip()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("keys")
    return {name: key_in(directory, name) for name in ("ours", "theirs")}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    path = tmp_path / "bundle.json"
    path.write_bytes(RAW)
    return path


def refusal(raw: bytes, index: Path, *signers: str, **more: bool) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        require_trusted(raw, index, TrustPolicy(signers, **more))
    return refused.value


def test_a_signature_of_a_declared_key_is_good_and_of_these_bytes_alone(
    keys: dict[str, Path], index: Path
) -> None:
    bundle_signature.require_signing_key(keys["ours"])
    assert sign(RAW, index, keys["ours"]) == index.with_name("bundle.json.sig")
    both = (public(keys["theirs"]), public(keys["ours"]))
    ours = public_key(public(keys["ours"]))
    assert ours is not None
    assert require_trusted(RAW, index, TrustPolicy(both)) == f"the bundle is signed by {ours.fingerprint}"
    changed = refusal(RAW.replace(b"1", b"2"), index, *both)
    assert (changed.code, changed.exit_code) == ("images.bundle-signature", 1)
    assert "incorrect signature" in changed.what
    other = refusal(RAW, index, public(keys["theirs"]))
    assert (other.code, other.exit_code) == ("images.bundle-signature", 1)
    assert "is none of images_bundle_signers" in other.what


def test_what_ssh_keygen_signs_by_hand_is_the_same(keys: dict[str, Path], index: Path) -> None:
    words = ["ssh-keygen", "-q", "-Y", "sign", "-f", keys["ours"]]
    subprocess.run([*words, "-n", "clusterctl-bundle", index], check=True, capture_output=True)
    assert "signed by" in require_trusted(RAW, index, TrustPolicy((public(keys["ours"]),)))
    # The same key, for another purpose.
    signature_of(index).unlink()
    subprocess.run([*words, "-n", "git", index], check=True, capture_output=True)
    assert refusal(RAW, index, public(keys["ours"])).code == "images.bundle-signature"


@pytest.mark.parametrize("allow_unsigned", [False, True])
@pytest.mark.parametrize("content", [b"", b"no signature", b"\xff\xfe", b"A" * 100_000])
def test_a_signature_that_is_none_is_refused_whatever_is_allowed(
    content: bytes, allow_unsigned: bool, keys: dict[str, Path], index: Path
) -> None:
    signature_of(index).write_bytes(content)
    refused = refusal(RAW, index, public(keys["ours"]), allow_unsigned=allow_unsigned)
    assert refused.code == "images.bundle-signature"


def test_a_pipe_in_place_of_a_signature_is_not_waited_for(keys: dict[str, Path], index: Path) -> None:
    os.mkfifo(signature_of(index))
    refused = refusal(RAW, index, public(keys["ours"]))
    assert (refused.code, "not a regular file" in refused.what) == ("images.bundle-signature", True)


def test_without_a_signature_or_without_signers_the_origin_is_not_verified(
    keys: dict[str, Path], index: Path
) -> None:
    missing = refusal(RAW, index, public(keys["ours"]))
    assert (missing.code, missing.exit_code) == ("images.bundle-unsigned", 2)
    assert "no bundle.json.sig" in missing.what
    sign(RAW, index, keys["ours"])
    assert "names no key" in refusal(RAW, index).what
    assert "--allow-unsigned" in require_trusted(RAW, index, TrustPolicy((), allow_unsigned=True))
    assert "SHA-256" in require_trusted(RAW, index, TrustPolicy((), pinned=True))


@pytest.mark.parametrize(
    "line", ["/etc/passwd", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa {body}", "{key}\nx"]
)
def test_a_signer_that_is_no_public_key_is_refused(line: str, keys: dict[str, Path], index: Path) -> None:
    sign(RAW, index, keys["ours"])
    key = public(keys["ours"])
    refused = refusal(RAW, index, line.format(key=key, body=key.split()[1]))
    assert (refused.code, refused.where) == ("images.bundle-signers", "images_bundle_signers")


def test_what_cannot_sign_is_said_before_anything_is_fetched(tmp_path: Path, index: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no key")
    for key in (tmp_path / "absent", tmp_path, text):
        with pytest.raises(ClusterctlError) as refused:
            bundle_signature.require_signing_key(key)
        assert (refused.value.code, refused.value.exit_code) == ("images.bundle-sign", 2)
    with pytest.raises(ClusterctlError) as refused:
        sign(RAW, index, text)
    assert refused.value.code == "images.bundle-sign"
    assert not signature_of(index).exists()


def test_without_openssh_it_is_said_what_to_install(
    keys: dict[str, Path], index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(RAW, index, keys["ours"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert refusal(RAW, index, public(keys["ours"])).code == "ssh.missing"
