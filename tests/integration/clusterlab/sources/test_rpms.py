"""The depot's RPMs and their signed index, built with rpmbuild, rpmsign, createrepo_c and gpg."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clusterlab.sources import rpm, rpm_repository, signing
from clusterlab.sources.deb import Link, PackageFile

pytestmark = pytest.mark.needs("rpmbuild", "rpmsign", "createrepo_c", "modifyrepo_c", "gpg", "gpgv")
TOOL = rpm.RpmPackage(
    "tool",
    "2:1.0-3.el9",
    requires=("other = 1.0",),
    files={
        "/usr/bin/tool": PackageFile("#!/bin/sh\n", 0o755),
        "/etc/tool.conf": PackageFile("key=%value\n"),
        "/lib/tool": Link("../bin/tool"),
    },
    scripts={"post": "printf '%s' done\n"},
)
OTHER = rpm.RpmPackage("other", "1.0-1", "noarch")


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, signing.SigningKey]:
    directory = tmp_path_factory.mktemp("rpms")
    key = signing.ensure(directory / "key")
    streams = {"1": rpm_repository.Stream([TOOL, OTHER], {"default": ["tool"]})}
    rpm_repository.publish(
        directory / "repository", [TOOL, OTHER], key, "The Vendor", module="tools", streams=streams
    )
    return directory / "repository", key


def test_a_package_is_a_real_rpm_as_it_was_described(published: tuple[Path, signing.SigningKey]) -> None:
    path = published[0] / TOOL.filename
    shown = output("rpm", "-qp", "--qf", "%{NAME} %{EVR} %{ARCH} %{VENDOR}", path)
    assert shown == "tool 2:1.0-3.el9 x86_64 The Vendor"
    listed = output("rpm", "-qlvp", path).splitlines()
    assert [line.split(maxsplit=8)[0] for line in listed] == ["-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"]
    assert listed[2].endswith("/usr/lib/tool -> ../bin/tool")
    assert output("rpm", "-qp", "--configfiles", path) == "/etc/tool.conf\n"
    assert "printf '%s' done" in output("rpm", "-qp", "--scripts", path)
    assert "other = 1.0" in output("rpm", "-qRp", path).splitlines()


def test_packages_and_index_are_signed_by_the_key(
    published: tuple[Path, signing.SigningKey], tmp_path: Path
) -> None:
    repository, key = published
    database = f"--dbpath={tmp_path}"
    output("rpmkeys", database, "--import", key.armored)
    checked = output("rpmkeys", database, "--checksig", *repository.glob("*.rpm"))
    assert [line.rpartition(": ")[2] for line in checked.splitlines()] == ["digests signatures OK"] * 2
    index = repository / "repodata/repomd.xml"
    output("gpgv", "--keyring", key.binary, f"{index}.asc", index)
    assert 'type="modules"' in index.read_text()
