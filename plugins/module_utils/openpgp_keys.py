# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Which keys are in a file of OpenPGP public keys: their fingerprints, or a refusal of the file.

Strict on purpose: what is not understood here may be understood by apt. So every byte of a file belongs to a
packet that is known, and outside of ASCII armour there is nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator

# A keyring of a distribution has some 50 kB.
LARGEST = 1 << 20
ARMOR_BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
ARMOR_END = b"-----END PGP PUBLIC KEY BLOCK-----"
# gpg drops the rest of a line after 20,000 characters, and reads other packets than are in it.
ARMOR_LINE = 76
ARMOR_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9-]*: .*")
ARMOR_CHECKSUM = re.compile(rb"=[A-Za-z0-9+/]{4}")
ARMOR_DATA = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
FINGERPRINT = re.compile(r"[0-9A-F]{40}")

PUBLIC_KEY = 6
SECRET_KEYS = (5, 7)
# What may follow a key: signature, trust, user name, subkey (which a signature must bind), user attribute.
COMPANIONS = (2, 12, 13, 14, 17)


class UnusableKeyError(ValueError):
    """The file does not consist of public keys, or cannot be judged; the message says why."""


def is_armored(content: bytes) -> bool:
    """Whether the file is in ASCII armour; else it is binary."""
    return content.startswith(b"-----BEGIN ")


def fingerprints(content: bytes) -> list[str]:
    """The fingerprints of all primary keys in the file, in upper case; raises UnusableKeyError."""
    if len(content) > LARGEST:
        raise UnusableKeyError(f"it has more than {LARGEST} bytes")
    blocks = armored_blocks(content) if is_armored(content) else [content]
    return [fingerprint for block in blocks for fingerprint in fingerprints_of_packets(block)]


def normalize(fingerprint: str) -> str:
    """A fingerprint as programs and people write it, in one form; raises ValueError."""
    found = "".join(fingerprint.split()).replace(":", "").upper()
    if not FINGERPRINT.fullmatch(found):
        raise ValueError(f"{fingerprint!r} is not a fingerprint of 40 hexadecimal digits")
    return found


def armored_blocks(content: bytes) -> list[bytes]:
    """The bytes of each armoured block; raises UnusableKeyError where anything is between them."""
    lines = [line.rstrip(b" \t\r") for line in content.split(b"\n")]
    blocks, position = [], 0
    while position < len(lines):
        if not lines[position]:
            position += 1
            continue
        if lines[position] != ARMOR_BEGIN:
            raise UnusableKeyError("there is text outside of its ASCII armour")
        try:
            end = lines.index(ARMOR_END, position)
        except ValueError:
            raise UnusableKeyError("its ASCII armour has no end") from None
        blocks.append(armored_data(lines[position + 1 : end]))
        position = end + 1
    return blocks


def armored_data(lines: list[bytes]) -> bytes:
    """The bytes between the first and the last line of a block."""
    blank = lines.index(b"") if b"" in lines else len(lines)
    headers, data = lines[:blank], lines[blank + 1 :]
    if any(len(line) > ARMOR_LINE for line in lines):
        raise UnusableKeyError(f"a line of its ASCII armour has more than {ARMOR_LINE} characters")
    if data and ARMOR_CHECKSUM.fullmatch(data[-1]):
        data.pop()
    if not all(map(ARMOR_HEADER.fullmatch, headers)) or not all(map(ARMOR_DATA.fullmatch, data)):
        raise UnusableKeyError("its ASCII armour is damaged")
    try:
        return base64.b64decode(b"".join(data), validate=True)
    except binascii.Error:
        raise UnusableKeyError("its ASCII armour is damaged") from None


def fingerprints_of_packets(content: bytes) -> list[str]:
    """The fingerprints of the primary keys in a sequence of packets; raises UnusableKeyError."""
    found: list[str] = []
    for kind, body in packets(content):
        if kind == PUBLIC_KEY:
            found.append(fingerprint_of(body))
        elif kind in SECRET_KEYS:
            raise UnusableKeyError("it holds a secret key")
        elif kind not in COMPANIONS or not found:
            raise UnusableKeyError(f"a packet of kind {kind} has no place there")
    if not found:
        raise UnusableKeyError("it holds no key")
    return found


def fingerprint_of(body: bytes) -> str:
    """The fingerprint of a key of version 4."""
    version = body[0] if body else 0
    if version != 4:
        raise UnusableKeyError(f"it holds a key of OpenPGP version {version}; apt's programs need version 4")
    if len(body) > 0xFFFF:
        raise UnusableKeyError("it holds a key that is too long")
    # The standard names SHA-1; a second key of one fingerprint cannot be made with it.
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324


def packets(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each packet; raises UnusableKeyError where one does not end in the file."""
    if content[:1] == b"" or not content[0] & 0x80:
        raise UnusableKeyError("it is neither ASCII armour nor a binary key (a GnuPG keybox is neither)")
    position = 0
    while position < len(content):
        header = content[position]
        position += 1
        if not header & 0x80:
            raise UnusableKeyError("its packets are damaged")
        if header & 0x40:
            kind, (length, used) = header & 0x3F, new_length(content[position : position + 5])
        else:
            kind = (header & 0x3C) >> 2
            length, used = old_length(header & 3, content[position : position + 4])
        position += used
        if position + length > len(content):
            raise UnusableKeyError("its packets are truncated")
        yield kind, content[position : position + length]
        position += length


def new_length(octets: bytes) -> tuple[int, int]:
    """Length of a packet in the current format, and how many octets say it."""
    first = octets[0] if octets else 255
    if first < 192:
        return first, 1
    if first < 224 and len(octets) >= 2:
        return ((first - 192) << 8) + octets[1] + 192, 2
    if first == 255 and len(octets) == 5:
        return int.from_bytes(octets[1:], "big"), 5
    raise UnusableKeyError("the length of a packet is missing, or partial")


def old_length(kind: int, octets: bytes) -> tuple[int, int]:
    """Length of a packet in the old format, and how many octets say it."""
    used = 1 << kind
    if kind == 3 or len(octets) < used:
        raise UnusableKeyError("the length of a packet is missing, or indeterminate")
    return int.from_bytes(octets[:used], "big"), used
