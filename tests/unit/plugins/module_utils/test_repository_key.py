"""A keyring package's archive: the keyring in it, or a refusal, and no reading without end."""

from __future__ import annotations

import io
import tarfile

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.repository_key import (
    LARGEST_UNPACKED,
    keyring_of,
)
from tests.support.openpgp import ARMORED

NAME = "./usr/share/keyrings/cuda-archive-keyring.gpg"
BEFORE = [("./", b"", {"type": tarfile.DIRTYPE}), (f"./usr/share/doc/{'x' * 200}", b"words", {})]


def archive_of(*members: tuple[str, bytes, dict[str, object]]) -> bytes:
    """The members, each with a name, content, and what else its header says."""
    written = io.BytesIO()
    for name, content, more in members:
        header = tarfile.TarInfo(name)
        header.size = len(content)
        for word, value in more.items():
            setattr(header, word, value)
        written.write(header.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512))
    return written.getvalue() + b"\0" * 1024


def test_the_keyring_is_found_behind_directories_and_long_names() -> None:
    assert keyring_of(archive_of(*BEFORE, (NAME, ARMORED, {}))) == ARMORED


@pytest.mark.parametrize(
    ("member", "because"),
    [
        # Its next member would be itself.
        (("./b", b"", {"size": -512}), "a member has -512 bytes"),
        (("./b", b"", {"size": -1024}), "a member has -1024 bytes"),
        (("./b", b"", {"size": LARGEST_UNPACKED + 1}), "a member has 16777217 bytes"),
        (("./b", b"20 size=-1024\n", {"type": tarfile.XHDTYPE}), "a member is of type b'x'"),
        (("./b", b"11 a=aaaaa\n", {"type": tarfile.XGLTYPE}), "a member is of type b'g'"),
        (("./b", b"", {"type": tarfile.GNUTYPE_SPARSE}), "a member is of type b'S'"),
        ((NAME, b"x" * (1 << 20) + b"x", {}), "is too large"),
    ],
)
def test_a_member_that_no_package_has_is_refused_at_once(
    member: tuple[str, bytes, dict[str, object]], because: str
) -> None:
    with pytest.raises(ValueError, match=because):
        keyring_of(archive_of(*BEFORE, member, (NAME, ARMORED, {})))


def test_an_archive_without_a_keyring_and_one_that_is_truncated_are_refused() -> None:
    with pytest.raises(ValueError, match="no keyring"):
        keyring_of(archive_of(*BEFORE))
    with pytest.raises(ValueError, match="no Debian package"):
        keyring_of(archive_of(("./b", b"x" * 2000, {}))[:1000])
