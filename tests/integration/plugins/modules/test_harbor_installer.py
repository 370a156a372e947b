"""The signature of Harbor's installer, with GnuPG."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
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
