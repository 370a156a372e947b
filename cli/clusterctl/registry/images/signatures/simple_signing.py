"""GPG simple signing: a signed OpenPGP message with the claim, verified by gpgv with the policy's keys alone.

https://github.com/containers/image/blob/main/docs/containers-signature.5.md
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from clusterctl.cluster.captured import OutputTooLongError, run_captured
from clusterctl.cluster.private_place import private_place
from clusterctl.cluster.signature_keys import UnusableKeyError
from clusterctl.content import shared_module
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.signatures.claim import (
    MAX_CLAIM_BYTES,
    CostlySignatureError,
    RefusedSignatureError,
)
from clusterctl.registry.oci.deadline import time_left

PROGRAM = "gpgv"
TIMEOUT_S = 30.0
# gpgv takes some 10 MB for an honest signature, and keeps all that a hostile one unpacks to. As many run as
# images are verified at a time.
MAX_MEMORY_BYTES = 64 << 20
# Beyond it even a claim of the largest size is not what was signed.
MAX_SIGNATURE_BYTES = 2 * MAX_CLAIM_BYTES
_BEGIN, _END = (b"-----%s PGP PUBLIC KEY BLOCK-----" % word for word in (b"BEGIN", b"END"))
_BASE64 = re.compile(rb"[A-Za-z0-9+/=\s]*")
_CHECKSUM = re.compile(rb"=[A-Za-z0-9+/]{4}")
_STATUS = re.compile(r"^\[GNUPG:\] ([A-Z_]+)(?: (.*))?$", re.MULTILINE)
# The word of VALIDSIG with the hash algorithm, and those that no signature counts with (RFC 9580, 9.5).
_HASH = 7
_BROKEN_HASHES = {"1": "MD5", "2": "SHA-1", "3": "RIPEMD-160"}
V4 = 4
# By the version of a key (RFC 9580, 5.5.4; 5 is GnuPG's own of 64 digits).
_FINGERPRINT_OF: Mapping[int, tuple[Callable[[bytes], Any], bytes]] = MappingProxyType(
    {V4: (hashlib.sha1, b"\x99"), 5: (hashlib.sha256, b"\x9a"), 6: (hashlib.sha256, b"\x9b")}
)
# Kinds of packets, and what such a signature says of the key, or the subkey, before it (RFC 9580, 5.2.1).
_SIGNATURE = 2
_SUBKEY = 14
_KEY_REVOCATION = b"\x20"
_SUBKEY_REVOCATION = b"\x28"
_FINGERPRINT = re.compile(r"[0-9A-F]{40}|[0-9A-F]{64}")
# https://github.com/gpg/gnupg/blob/master/doc/DETAILS#format-of-the-status-fd-output
_REFUSALS = {
    "BADSIG": "does not fit its content",
    "EXPSIG": "has expired",
    "EXPKEYSIG": "is by a key that has expired",
    "REVKEYSIG": "is by a key that was revoked",
    "NO_PUBKEY": "is by a key that the policy does not name",
    "ERRSIG": "cannot be checked by gpgv",
    "NODATA": "is not a signed OpenPGP message",
}


@dataclass(frozen=True)
class SignedMessage:
    """The content of a message that was verified, and the fingerprint of the key or subkey that signed it."""

    content: bytes
    fingerprint: str


def read_keyring(content: bytes) -> bytes:
    """OpenPGP public keys in the binary form that gpgv reads. Raises UnusableKeyError."""
    if b"-----BEGIN PGP" not in content:
        return content
    blocks = (part.partition(_END) for part in content.split(_BEGIN)[1:])
    bodies = (_armoured(lines) for lines, end, _ in blocks if end)
    try:
        found = [base64.b64decode(body, validate=True) for body in bodies if body is not None]
    except ValueError:
        found = []
    if not found:
        raise UnusableKeyError("is not an OpenPGP public key that can be read")
    return b"".join(found)


def _armoured(block: bytes) -> bytes | None:
    """What lies between BEGIN and END, below its headers and an empty line, without its checksum."""
    first, *lines = block.replace(b"\r\n", b"\n").split(b"\n")
    if first or b"" not in lines[:-1] or lines[-1]:
        return None
    body = lines[lines.index(b"") + 1 : -1]
    if body and _CHECKSUM.fullmatch(body[-1]):
        body.pop()
    joined = b"".join(body)
    return b"".join(joined.split()) if joined and _BASE64.fullmatch(joined) else None


def key_fingerprints(keyring: bytes) -> frozenset[str]:
    """The fingerprints of keys and subkeys in a keyring, without those that it revokes, as gpgv names them.

    Raises UnusableKeyError.
    """
    openpgp = shared_module("openpgp_keys")
    # Each with its primary key, which revokes all of its subkeys.
    found, revoked = dict[str, str](), {""}
    primary = latest = ""
    try:
        for kind, body in openpgp.packets(keyring):
            if kind in (openpgp.PUBLIC_KEY, _SUBKEY):
                latest = _fingerprint_of_key(body)
                primary = latest if kind == openpgp.PUBLIC_KEY else primary
                found[latest] = primary
            # Not verified: if the key is whole, gpgv is asked once more.
            elif kind == _SIGNATURE and body[1:2] == _KEY_REVOCATION:
                revoked.add(primary)
            elif kind == _SIGNATURE and body[1:2] == _SUBKEY_REVOCATION:
                revoked.add(latest)
    except ValueError as error:
        raise UnusableKeyError(f"is not a file of OpenPGP keys: {error}") from None
    return frozenset(one for one, above in found.items() if not revoked & {one, above})


def _fingerprint_of_key(body: bytes) -> str:
    """Empty for a version that is unknown."""
    version = body[0] if body else 0
    if version not in _FINGERPRINT_OF:
        return ""
    made, mark = _FINGERPRINT_OF[version]
    return str(made(mark + len(body).to_bytes(2 if version == V4 else 4, "big") + body).hexdigest().upper())


def verify_message(signature: bytes, keyring: bytes) -> SignedMessage:
    """Verify a signed message with the keys of a keyring and no others.

    Raises RefusedSignatureError, and ClusterctlError (``images.signature-program``) where gpgv is missing.
    """
    # Text would be a clear-signed message, and a detached signature has no content.
    if not signature or signature[0] < 0x80:
        raise RefusedSignatureError("is not a signed OpenPGP message in binary form")
    program = shutil.which(PROGRAM)
    if program is None:
        raise _missing()
    with private_place("clusterctl-gpgv-") as home:
        (home / "keys.gpg").write_bytes(keyring)
        (home / "message").write_bytes(signature)
        command = (
            program, "--homedir", str(home), "--keyring", str(home / "keys.gpg"), "--status-fd", "2",
            "--log-file", os.devnull, "--output", "-", str(home / "message"),
        )  # fmt: skip
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "HOME": str(home)}
        try:
            done = run_captured(
                command, stdin="", timeout_s=min(TIMEOUT_S, time_left()), environment=environment,
                max_stdout_bytes=MAX_CLAIM_BYTES, max_memory_bytes=MAX_MEMORY_BYTES,
            )  # fmt: skip
        except OutputTooLongError:
            raise CostlySignatureError(f"has more than {MAX_CLAIM_BYTES} bytes of content") from None
        except subprocess.TimeoutExpired:
            raise CostlySignatureError(f"was not verified by gpgv within {TIMEOUT_S:.0f} s") from None
        if done.returncode < 0:  # it ends itself where it gets no memory
            raise CostlySignatureError(f"takes gpgv more than {MAX_MEMORY_BYTES >> 20} MiB of memory")
    return SignedMessage(done.stdout.encode(), _fingerprint(done))


def _fingerprint(done: subprocess.CompletedProcess[str]) -> str:
    """Of the key that made the only signature, and a good one. Raises RefusedSignatureError."""
    status = _STATUS.findall(done.stderr)
    names = [name for name, _ in status]
    refused = next((sentence for name, sentence in _REFUSALS.items() if name in names), None)
    if refused is not None:
        raise RefusedSignatureError(refused)
    once = all(names.count(name) == 1 for name in ("PLAINTEXT", "NEWSIG", "GOODSIG", "VALIDSIG"))
    valid = next((words.split() for name, words in status if name == "VALIDSIG"), [""])
    if done.returncode != 0 or not once or len(valid) < _HASH + 1 or not _FINGERPRINT.fullmatch(valid[0]):
        raise RefusedSignatureError("is not one good signature of one message")
    if valid[_HASH] in _BROKEN_HASHES:
        raise RefusedSignatureError(f"is over {_BROKEN_HASHES[valid[_HASH]]}, which others can collide")
    return valid[0]


def _missing() -> ClusterctlError:
    return ClusterctlError(
        f"{PROGRAM}, which verifies GPG signatures of images, is not installed on this machine",
        code="images.signature-program",
        where="images_signatures: signedBy",
        hint="Install it: apt install gpgv (Debian, Ubuntu), dnf install gnupg2 (Fedora, RHEL).",
    )
