"""Keys, a cluster directory, and no agent of the operator's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from clusterctl.cluster.directory import ClusterDirectory

from .ssh_servers import Keys


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    directory = tmp_path_factory.mktemp("keys")

    def make(name: str, private: Any, passphrase: bytes | None = None) -> Path:
        lock: Any = serialization.NoEncryption()
        if passphrase:
            lock = serialization.BestAvailableEncryption(passphrase)
        path = directory / name
        path.write_bytes(
            private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, lock)
        )
        path.chmod(0o600)
        return path

    def ed(name: str) -> Path:
        return make(name, ed25519.Ed25519PrivateKey.generate())

    return Keys(
        host=paramiko.PKey.from_path(ed("host")),
        other=paramiko.PKey.from_path(ed("other")),
        ecdsa=paramiko.PKey.from_path(make("ecdsa", ec.generate_private_key(ec.SECP256R1()))),
        user=paramiko.PKey.from_path(user := ed("id_user")),
        user_file=user,
        locked_file=make("id_locked", ed25519.Ed25519PrivateKey.generate(), b"secret"),
    )


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    return ClusterDirectory(tmp_path)
