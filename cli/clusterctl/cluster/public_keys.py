"""SSH public keys as a setting names them: one line of a `.pub` file."""

from __future__ import annotations

import base64
import binascii

from clusterctl.cluster.known_hosts import HostKey

SIGNING_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


def public_key(line: str) -> HostKey | None:
    """The key in a line `TYPE BASE64 [COMMENT]`; None if it is not one that signs, or not one line."""
    kind, _, rest = line.strip().partition(" ")
    body = rest.split(" ", 1)[0]
    try:
        blob = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None
    fields = _fields(blob)
    fits = kind in SIGNING_TYPES and len(fields) > 1 and fields[0] == kind.encode()
    return HostKey(kind, body) if fits and line.strip().isprintable() else None


def _fields(blob: bytes) -> list[bytes]:
    """The parts of a key, each after its length; none if the last is truncated."""
    found, position = [], 0
    while position < len(blob):
        end = position + 4 + int.from_bytes(blob[position : position + 4], "big")
        if end > len(blob) or position + 4 > len(blob):
            return []
        found.append(blob[position + 4 : end])
        position = end
    return found
