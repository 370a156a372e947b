"""OpenPGP keys as people export them: blocks of text, of which each is read once."""

from __future__ import annotations

import base64
import time

import pytest

from clusterctl.cluster.signature_keys import UnusableKeyError
from clusterctl.registry.images.signatures.simple_signing import read_keyring

BEGIN, END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
KEY = bytes(range(200))
TEXT = base64.encodebytes(KEY).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"{BEGIN}\n\n{TEXT}{END}\n",
        f"{BEGIN}\nComment: x\nVersion: 1\n\n{TEXT}=AbCd\n{END}\n",
        f"a key\n{BEGIN}\n\n{TEXT}=AbCd\n{END}\nits end",
        f"{BEGIN}\n\n{TEXT}{END}\n".replace("\n", "\r\n"),
        f"{BEGIN}\n{BEGIN}\n\n{TEXT}{END}\n",
        f"{BEGIN}\n\nno base 64: @\n{END}\n{BEGIN}\n\n{TEXT}{END}\n",
    ],
    ids=["bare", "headers", "around", "CRLF", "twice begun", "one unreadable"],
)
def test_a_key_is_read(text: str) -> None:
    assert read_keyring(text.encode()) == KEY


def test_keys_are_read_one_after_the_other() -> None:
    block = f"{BEGIN}\n\n{TEXT}{END}\n"
    assert read_keyring((block * 3).encode()) == KEY * 3
    assert read_keyring(KEY) == KEY


@pytest.mark.parametrize(
    "text",
    [
        BEGIN, f"{BEGIN}\n", f"{BEGIN}\n{END}", f"{BEGIN}\n\n{END}", f"{BEGIN}\n{TEXT}{END}",
        f"{BEGIN} x\n\n{TEXT}{END}", f"{BEGIN}\n\n{TEXT}x{END}", f"{BEGIN}\n\n@\n{END}",
    ],
)  # fmt: skip
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(UnusableKeyError):
        read_keyring(text.encode())


@pytest.mark.parametrize("line", [BEGIN, f"{BEGIN}\n", f"{BEGIN}\nA", f"{BEGIN}\n\nA"])
def test_many_blocks_without_an_end_take_time_in_proportion(line: str) -> None:
    began = time.process_time()
    with pytest.raises(UnusableKeyError):
        read_keyring(f"{line}\n".encode() * 20_000)
    assert time.process_time() - began < 5
