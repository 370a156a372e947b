"""A keyring package is unpacked by dpkg-deb, and gpg and we agree on its key."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.openpgp_keys import fingerprints
from ansible_collections.clusterctl.cluster.plugins.modules import apt_source

from clusterlab.sources import deb, other_packages, signing


@pytest.mark.needs("dpkg-deb")
@pytest.mark.needs("gpg")
def test_the_key_of_a_keyring_package_has_the_fingerprint_that_gpg_prints(tmp_path: Path) -> None:
    key = signing.ensure(tmp_path / "key")
    package = other_packages.keyring("debian12", "http://depot", key.binary.read_bytes())
    content = deb.build(package, tmp_path).read_bytes()
    assert fingerprints(apt_source.key_of_package(content)) == [signing.fingerprint(key)]
    assert fingerprints(key.armored.read_bytes()) == [signing.fingerprint(key)]


@pytest.mark.needs("dpkg-deb")
@pytest.mark.parametrize("content", [b"", b"<html>", b"!<arch>\ndebian-binary"])
def test_what_is_no_package_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="no Debian package"):
        apt_source.key_of_package(content)
