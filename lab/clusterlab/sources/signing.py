"""The depot's signing key: made once a cache, used in a GnuPG home that is gone afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusterctl.content import shared_module
from clusterlab.process import call

IDENTITY = "clusterlab depot (simulated packages) <lab@invalid>"
SIGNING_S = 300.0


@dataclass(frozen=True)
class SigningKey:
    """Paths of one key: the secret (0600), and the public half armored and binary."""

    secret: Path
    armored: Path
    binary: Path


def ensure(directory: Path) -> SigningKey:
    """The key of this cache directory, made on first use. Raises ClusterctlError where gpg fails."""
    key = SigningKey(directory / "secret.asc", directory / "public.asc", directory / "public.gpg")
    if key.secret.exists() and key.armored.exists() and key.binary.exists():
        return key
    directory.mkdir(parents=True, exist_ok=True)
    with _home() as home:
        _gpg(home, "--quick-generate-key", IDENTITY, "rsa3072", "sign", "never")
        key.secret.touch(mode=0o600)
        key.secret.write_bytes(_gpg(home, "--armor", "--export-secret-keys"))
        key.armored.write_bytes(_gpg(home, "--armor", "--export"))
        key.binary.write_bytes(_gpg(home, "--export"))
    return key


def fingerprint(key: SigningKey) -> str:
    """The key's fingerprint, as settings pin it and nodes compare it."""
    (found,) = shared_module("openpgp_keys").fingerprints(key.binary.read_bytes())
    return str(found)


def clearsign(key: SigningKey, files: dict[Path, Path]) -> None:
    """Sign each file inline into the path given for it (Release -> InRelease).

    Raises ClusterctlError (``lab.signing-failed``) where gpg fails.
    """
    with _home() as home:
        _gpg(home, "--import", str(key.secret))
        for source, target in files.items():
            target.unlink(missing_ok=True)
            _gpg(home, "--digest-algo", "SHA256", "--output", str(target), "--clearsign", str(source))


def detach_sign(key: SigningKey, file: Path) -> None:
    """Write the armored signature of the file next to it (repomd.xml.asc).

    Raises ClusterctlError (``lab.signing-failed``) where gpg fails.
    """
    with _home() as home:
        _gpg(home, "--import", str(key.secret))
        options = ["--digest-algo", "SHA256", "--armor", "--output", f"{file}.asc"]
        _gpg(home, *options, "--detach-sign", str(file))


def sign_rpms(key: SigningKey, packages: Sequence[Path]) -> None:
    """Sign RPMs in place. Raises ClusterctlError (``lab.signing-failed``) where rpmsign fails."""
    if not packages:
        return
    with _home() as home:
        _gpg(home, "--import", str(key.secret))
        macros = {"__gpg": "/usr/bin/gpg", "_gpg_name": fingerprint(key), "_gpg_path": str(home)}
        options = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        call(
            ["rpmsign", "--addsign", *options, *map(str, packages)],
            timeout_s=SIGNING_S,
            code="lab.signing-failed",
            hint="RPMs are signed by rpmsign (package rpm) and gpg: are both whole on this machine?",
        )


@contextmanager
def _home() -> Iterator[Path]:
    # Sockets of gpg-agent allow 108 characters of path: a cache directory may be longer.
    home = Path(tempfile.mkdtemp(prefix="clusterlab-gpg-", dir="/tmp"))
    try:
        yield home
    finally:
        call(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
        shutil.rmtree(home, ignore_errors=True)


def _gpg(home: Path, *arguments: str) -> bytes:
    command = ["gpg", "--homedir", str(home), "--batch", "--yes", "--passphrase", ""]
    command += ["--pinentry-mode", "loopback", "--quiet", *arguments]
    return call(
        command,
        code="lab.signing-failed",
        hint="Is gpg (package gnupg) whole on this machine, and is there room in /tmp?",
    ).stdout
