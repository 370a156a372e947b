"""The stand-in Harbor's tokens, held against OpenSSL."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from clusterlab.simulated.harbor import tokens


def test_a_token_is_signed_with_the_key_that_the_registry_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "k.pem", tmp_path / "c.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=t",
         "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    monkeypatch.setattr(tokens, "KEY", str(key))
    monkeypatch.setattr(tokens, "CERTIFICATE", str(certificate))
    said, _, signature = tokens.token("admin", "harbor-registry", []).rpartition(".")
    public = subprocess.run(
        ["openssl", "x509", "-in", str(certificate), "-pubkey", "-noout"], check=True, capture_output=True
    ).stdout
    (tmp_path / "p.pem").write_bytes(public)
    (tmp_path / "s").write_bytes(base64.urlsafe_b64decode(signature + "=="))
    checked = subprocess.run(
        ["openssl", "dgst", "-sha256", "-verify", str(tmp_path / "p.pem"), "-signature", str(tmp_path / "s")],
        input=said.encode(), capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert checked.returncode == 0
