"""A keyring package is unpacked by dpkg-deb, and gpg and we agree on its key."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import repository_key
from ansible_collections.clusterctl.cluster.plugins.module_utils.openpgp_keys import fingerprints

from clusterlab.sources import deb, other_packages, signing


@pytest.mark.needs("dpkg-deb")
@pytest.mark.needs("gpg")
def test_the_key_of_a_keyring_package_has_the_fingerprint_that_gpg_prints(tmp_path: Path) -> None:
    key = signing.ensure(tmp_path / "key")
    package = other_packages.keyring("debian12", "http://depot", key.binary.read_bytes())
    content = deb.build(package, tmp_path).read_bytes()
    command = ["gpg", "--homedir", str(tmp_path), "--with-colons", "--show-keys", str(key.armored)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    printed = [line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr:")]
    assert fingerprints(repository_key.key_of_package(content)) == printed
    assert fingerprints(key.armored.read_bytes()) == printed == [signing.fingerprint(key)]


@pytest.mark.needs("dpkg-deb")
@pytest.mark.parametrize("content", [b"", b"<html>", b"!<arch>\ndebian-binary"])
def test_what_is_no_package_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="no Debian package"):
        repository_key.key_of_package(content)


def package(data: bytes) -> bytes:
    """A Debian package with this as its tar, which dpkg-deb passes on as it is."""
    control = io.BytesIO()
    with tarfile.open(fileobj=control, mode="w"):
        pass
    members = {"debian-binary": b"2.0\n", "control.tar": control.getvalue(), "data.tar": data}
    found = b"!<arch>\n"
    for name, content in members.items():
        found += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        found += content + b"\n" * (len(content) % 2)
    return found


@pytest.mark.needs("dpkg-deb")
def test_a_keyring_that_unpacks_to_much_more_is_read_to_a_bound() -> None:
    member = tarfile.TarInfo("usr/share/keyrings/a.gpg")
    member.size = 3
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(b"key"))
    plain = stream.getvalue()
    assert repository_key.key_of_package(package(plain)) == b"key"
    with pytest.raises(ValueError, match="no Debian package"):
        repository_key.key_of_package(package(gzip.compress(plain)))
    # A sparse file: 3 bytes are there, of 64 MiB.
    header = bytearray(plain[:512])
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"00000000000\x0000000000003\x00"
    header[483:495] = b"00400000000\x00"
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    with pytest.raises(ValueError, match="a member is of type b'S'"):
        repository_key.key_of_package(package(bytes(header) + plain[512:]))


@pytest.mark.needs("dpkg-deb")
def test_a_keyring_package_with_a_trap_in_its_headers_is_refused() -> None:
    # tarfile reads what a long name stands for by itself: a chain of 3000 goes as deep.
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2
    link = member.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")
    with pytest.raises(ValueError, match="no Debian package"):
        repository_key.key_of_package(package(link * 3000))
