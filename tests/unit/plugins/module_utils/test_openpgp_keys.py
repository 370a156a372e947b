"""Which keys are in a key file: every one is found, and what cannot be judged is refused."""

from __future__ import annotations

import base64
import hashlib

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.openpgp_keys import (
    LARGEST,
    UnusableKeyError,
    fingerprints,
    is_armored,
    normalize,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.support.openpgp import ARMORED, BINARY, FINGERPRINT, armored, foreign_key, packet

BEGIN, END = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n", b"-----END PGP PUBLIC KEY BLOCK-----\n"
# A line that gpg would not read to its end, if it were some 20,000 characters long.
ONE_LINE = BEGIN + b"\n" + base64.b64encode(BINARY) + b"\n" + END


@pytest.mark.parametrize(
    "content",
    [
        BINARY,
        ARMORED,
        armored(BINARY),
        ARMORED.replace(BEGIN, BEGIN + b"Version: GnuPG v2\nComment: of the tests\n"),
        ARMORED.replace(b"\n", b"\r\n"),
        ARMORED + b"\n\n",
    ],
)
def test_the_fingerprint_is_that_which_gpg_prints(content: bytes) -> None:
    assert fingerprints(content) == [FINGERPRINT]
    assert is_armored(content) is (content != BINARY)


@pytest.mark.parametrize(
    "content",
    [
        BINARY + foreign_key(),
        armored(BINARY + foreign_key()),
        ARMORED + armored(foreign_key()),
        ARMORED + b"\n \n" + armored(foreign_key()),
    ],
)
def test_every_key_in_the_file_is_found(content: bytes) -> None:
    first, second = fingerprints(content)
    assert first == FINGERPRINT
    assert second != FINGERPRINT


@pytest.mark.parametrize(
    ("header", "size"),
    [
        (b"\xc6\x3d", 61), (b"\xc6\xc1\xfd", 701), (b"\xc6\xff\0\0\2\xbd", 701),
        (b"\x98\x3d", 61), (b"\x99\2\xbd", 701), (b"\x9a\0\0\2\xbd", 701),
    ],
)  # fmt: skip
def test_every_way_of_writing_a_length_gives_one_fingerprint(header: bytes, size: int) -> None:
    body = b"\4" + bytes(size - 1)
    expected = hashlib.sha1(b"\x99" + size.to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324
    assert fingerprints(header + body) == [expected]


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (b"", "neither ASCII armour nor"),
        (b"<html>404</html>", "neither ASCII armour nor"),
        (b"\0\0\0\x20\1\1\0\2KBXf" + BINARY, "keybox"),
        (BINARY[:-1], "truncated"),
        (BINARY + b"\n", "packets are damaged"),
        (packet(13, b"a name alone"), "kind 13"),
        (packet(14, b"\4a subkey alone"), "kind 14"),
        (packet(5, b"\4secret"), "secret key"),
        (BINARY + packet(7, b"\4secret"), "secret key"),
        (BINARY + packet(8, b"\0" + foreign_key()), "kind 8"),
        (foreign_key(6), "version 6"),
        (foreign_key(5), "version 5"),
        (foreign_key(3), "version 3"),
        (packet(6, b""), "version 0"),
        (packet(6, b"\4" + bytes(70_000)), "too long"),
        (BINARY + b"\xc6\xe1" + bytes(40), "partial"),
        (BINARY + b"\x9b" + bytes(40), "indeterminate"),
        (BINARY + b"\xc6", "missing"),
        (BINARY + b"\x99\0", "missing"),
        (BINARY + bytes(LARGEST), "more than"),
        (BEGIN + b"\n" + END, "neither ASCII armour nor"),
        (ARMORED[: ARMORED.index(END)], "no end"),
        (ARMORED + b"and more\n", "outside of its ASCII armour"),
        (ARMORED.replace(BEGIN, b"-----BEGIN PGP MESSAGE-----\n"), "outside of its ASCII armour"),
        (ARMORED.replace(BEGIN + b"\n", BEGIN), "armour is damaged"),
        (ARMORED.replace(b"\nBRPp", b"\n\nBRPp"), "armour is damaged"),
        (ARMORED.replace(b"QI=\n=", b"QI=\nAAAA\n="), "armour is damaged"),
        (ARMORED.replace(b"mDME", b"m!ME"), "armour is damaged"),
        (ONE_LINE, "more than 76 characters"),
        (ARMORED.replace(BEGIN, BEGIN + b"Comment: " + b"x" * 68 + b"\n"), "more than 76 characters"),
        (ARMORED.replace(b"mDME", b"mDM"), "armour is damaged"),
    ],
)
def test_what_cannot_be_judged_is_refused(content: bytes, because: str) -> None:
    with pytest.raises(UnusableKeyError, match=because):
        fingerprints(content)


@given(st.binary(max_size=300), st.integers(0, len(BINARY)))
def test_no_bytes_end_in_anything_but_fingerprints_or_a_refusal(noise: bytes, at: int) -> None:
    for content in (noise, BINARY[:at] + noise + BINARY[at:], b"-----BEGIN " + noise, ARMORED[:at] + noise):
        try:
            found = fingerprints(content)
        except UnusableKeyError:
            continue
        assert found
        assert all(normalize(one) == one for one in found)


def test_a_fingerprint_is_read_as_people_write_it() -> None:
    spaced = "2fe6 a8eb 64b7 8ef9 d7ce  5c7e a7a7 a67a 0513 e909"
    assert normalize(spaced) == normalize(FINGERPRINT) == FINGERPRINT
    for short in ("0513E909", "A7A7A67A0513E909", "", FINGERPRINT + "00", "G" * 40):
        with pytest.raises(ValueError, match="not a fingerprint"):
            normalize(short)
