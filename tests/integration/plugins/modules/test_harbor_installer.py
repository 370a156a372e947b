"""The signature of Harbor's installer, with GnuPG."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.modules import harbor_installer
from tests.support.signed_images import KEYS_OF_THEN, SIGNED_THEN, GpgHome, gpg_home
from tests.unit.plugins.modules.test_harbor_installer import installer, tarball


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of GnuPG with one key."""
    home = tmp_path_factory.mktemp("gnupg")
    home.chmod(0o700)
    made = subprocess.run(
        ["gpg", "--homedir", str(home), "--batch", "--passphrase", "", "--quick-gen-key", "h@example.org"],
        capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return home


@pytest.mark.needs("gpg")
def test_a_signature_is_checked_where_a_key_is_given(tmp_path: Path, signer: Path) -> None:
    gpg = ["gpg", "--homedir", str(signer), "--batch", "--armor"]
    sha256 = tarball(tmp_path / "h.tgz")
    key = subprocess.run([*gpg, "--export"], capture_output=True, text=True, check=True).stdout
    signed = [*gpg, "--detach-sign", "--output", "-", str(tmp_path / "h.tgz")]
    signature = subprocess.run(signed, capture_output=True, text=True, check=True).stdout
    other = subprocess.run(
        [*gpg, "--detach-sign"], input="else", capture_output=True, text=True, check=True
    ).stdout
    content = (tmp_path / "h.tgz").read_bytes()
    refused = installer(tmp_path, sha256, key=key, signature=other)
    assert "its signature is not good" in refused["msg"]
    (tmp_path / "h.tgz").write_bytes(content)
    assert installer(tmp_path, sha256, key=key, signature=signature)["changed"]


SHA1 = ("--digest-algo", "SHA1", "--allow-weak-digest-algos")


@pytest.fixture(scope="module")
def signers() -> Iterator[GpgHome]:
    """Keys that count, and keys that count no more."""
    with gpg_home() as home:
        for name in ("good", "revoked"):
            home.make_key(name, *KEYS_OF_THEN)
        home.make_key("expired", *KEYS_OF_THEN, expires="1d")
        yield home


@pytest.mark.needs("gpg", "gpgv")
@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("good", (), ""),
        ("good", SHA1, "over SHA-1"),
        ("good", (*SIGNED_THEN, "--default-sig-expire", "1d"), "Signature expired"),
        ("good", ("--local-user", "revoked@example.com"), "is not one good signature"),
        ("expired", SIGNED_THEN, "by a key that has expired"),
        ("revoked", (), "by a key that was revoked"),
    ],
)
def test_a_signature_that_gpgv_takes_and_that_counts_no_more(
    tmp_path: Path, signers: GpgHome, name: str, options: tuple[str, ...], said: str
) -> None:
    archive = tmp_path / "h.tgz"
    archive.write_bytes(b"an installer")
    by = ("--local-user", f"{name}@example.com", "--armor", "--detach-sign")
    signature = signers.run(*options, *by, stdin=archive.read_bytes()).decode()
    if name == "revoked":
        written = signers.directory / "openpgp-revocs.d" / f"{signers.fingerprint(name)}.rev"
        signers.run("--import", stdin=written.read_bytes().replace(b":-----BEGIN", b"-----BEGIN"))
    key = signers.run("--armor", "--export").decode()
    if said:
        with pytest.raises(harbor_installer.RefusedError, match=said):
            harbor_installer.require_signature(archive, signature, key)
    else:
        harbor_installer.require_signature(archive, signature, key)
