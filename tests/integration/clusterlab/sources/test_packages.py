"""The depot's packages and its signed index, built with dpkg-deb and gpg."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from tests.unit.clusterlab.sources.test_sources import by_name

from clusterlab.sources import (
    deb,
    driver_packages,
    other_packages,
    repository,
    signing,
)

needs_dpkg = pytest.mark.needs("dpkg-deb")


needs_gpg = pytest.mark.needs("gpg")


@needs_dpkg
def test_a_package_is_a_real_deb(tmp_path: Path) -> None:
    package = by_name("580.95.05")["nvidia-kernel-support"]
    path = deb.build(package, tmp_path)
    assert path.name == "nvidia-kernel-support_580.95.05-1_amd64.deb"
    assert deb.stanza_of(path) == deb.control(package)
    listed = subprocess.run(["dpkg-deb", "-c", path], check=True, capture_output=True, text=True).stdout
    assert "root/root" in listed
    assert "./etc/modprobe.d/nvidia-blacklists-nouveau.conf" in listed
    assert deb.checksum(deb.build(package, tmp_path)) == deb.checksum(path)


@needs_dpkg
@pytest.mark.parametrize(
    ("kernel", "version"),
    [
        ("6.8.0-51-generic", "6.8.0-1"),
        ("5.15.167.4-microsoft-standard-WSL2", "5.15.167.4-1"),
        ("6.1.0+", "6.1.0-1"),
        ("6.12.9_custom", "6.12.9-1"),
    ],
)
def test_any_kernel_has_headers_of_its_name(tmp_path: Path, kernel: str, version: str) -> None:
    package = other_packages.kernel_headers(kernel)
    assert (package.name, package.version) == (f"linux-headers-{kernel.replace('_', '-')}", version)
    assert deb.build(package, tmp_path).exists()


@needs_dpkg
@needs_gpg
def test_a_repository_is_indexed_and_signed(tmp_path: Path) -> None:
    directory = tmp_path / "repository"
    directory.mkdir()
    packages = [driver_packages.pinning("580"), driver_packages.pinning("570")]
    for package in packages:
        deb.build(package, directory)
    key = signing.ensure(tmp_path / "key")
    assert key.secret.stat().st_mode & 0o777 == 0o600
    assert signing.ensure(tmp_path / "key") == key
    repository.index(directory, repository.Identity("NVIDIA", "NVIDIA CUDA"), key, {})
    index = (directory / "Packages").read_text()
    assert index.count("Package: nvidia-driver-pinning-") == 2
    assert gzip.decompress((directory / "Packages.gz").read_bytes()).decode() == index
    release = (directory / "Release").read_text()
    assert "Label: NVIDIA CUDA" in release
    assert hashlib.sha256(index.encode()).hexdigest() in release
    verified = subprocess.run(
        ["gpgv", "--keyring", key.binary, directory / "InRelease"], check=False, capture_output=True
    )
    assert verified.returncode == 0, verified.stderr


@needs_dpkg
def test_no_umask_gets_into_a_package_or_hides_a_source(tmp_path: Path) -> None:
    package = by_name("580.95.05")["nvidia-kernel-support"]
    usual = deb.checksum(deb.build(package, tmp_path))
    before = os.umask(0o077)
    try:
        path = deb.build(package, tmp_path)
        served = tmp_path / "tree" / "cuda" / "Packages"
        served.parent.mkdir(parents=True)
        served.write_text("")
        deb.open_to_all(tmp_path / "tree")
    finally:
        os.umask(before)
    assert deb.checksum(path) == usual
    assert path.stat().st_mode & 0o777 == served.stat().st_mode & 0o777 == 0o644
    assert served.parent.stat().st_mode & 0o777 == 0o755
