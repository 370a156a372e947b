"""The RPMs of the lab's archive: names, versions, streams and relations, as the roles meet them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
import yaml
from tests.support.rpm_archive import ROCKY

from clusterlab.sources import rhel_driver, rhel_packages, rpm, rpm_repository
from clusterlab.sources.build import DRIVER_VERSIONS, TOOLKIT_VERSIONS
from clusterlab.sources.deb import Link, PackageFile

DRIVERS, STREAMS = rhel_driver.repository(DRIVER_VERSIONS, ROCKY.kernels[0])
SYSTEM = [*rhel_packages.release(ROCKY), *rhel_packages.appstream(), rhel_packages.versionlock()]
for kernel in ROCKY.kernels:
    SYSTEM += [*rhel_packages.kernel(kernel), *rhel_packages.kernel_devel(kernel)]
OTHERS = [rhel_packages.dkms(), *rhel_packages.docker("20.10.24", "1.6.20")]
for toolkit in TOOLKIT_VERSIONS:
    OTHERS += rhel_packages.toolkit(toolkit)
EVERYTHING = [*SYSTEM, *OTHERS, *DRIVERS]


def unserved(packages: Iterable[rpm.RpmPackage], served: Iterable[rpm.RpmPackage]) -> set[str]:
    """Requirements without a package of that name, or without one of exactly that version."""
    versions: dict[str, set[str]] = {}
    for package in served:
        epoch, version, _ = package.parts
        evr = package.evr.rpartition("-")[0] if epoch != "0" else version
        versions.setdefault(package.name, set()).update({evr, package.evr})
        for provided in package.provides:
            name, _, version = provided.partition(" = ")
            versions.setdefault(name, set()).add(version)
    missing = set()
    for package in packages:
        for requirement in package.requires:
            name, comparison, version = (*requirement.split(" "), "", "")[:3]
            rich = requirement.startswith("(")
            if not rich and (name not in versions or (comparison == "=" and version not in versions[name])):
                missing.add(requirement)
    return missing


def test_everything_that_a_package_requires_is_served() -> None:
    assert unserved(EVERYTHING, EVERYTHING) == set()


@pytest.mark.parametrize("version", DRIVER_VERSIONS)
def test_a_driver_is_one_version_throughout(version: str) -> None:
    own, streams = rhel_driver.repository([version], ROCKY.kernels[0])
    assert {package.parts[1] for package in own} == {version}
    branch = version.split(".", maxsplit=1)[0]
    assert set(streams) == {branch, f"{branch}-open", f"{branch}-dkms"}
    for stream in streams.values():
        names = {package.name for package in stream.packages}
        assert {name for rpms in stream.profiles.values() for name in rpms} <= names


def test_the_names_without_a_branch_came_with_580() -> None:
    names = {package.name for package in STREAMS["580-open"].packages}
    assert {"nvidia-fabricmanager", "libnvidia-nscq"} <= names
    older = {package.name for package in STREAMS["570-open"].packages}
    assert {"nvidia-fabric-manager", "libnvidia-nscq-570"} <= older


def test_a_stream_is_a_module_document_with_its_packages() -> None:
    documents = list(yaml.safe_load_all(rpm_repository.modules("nvidia-driver", STREAMS)))
    assert {document["data"]["stream"] for document in documents} == set(STREAMS)
    newest = next(one["data"] for one in documents if one["data"]["stream"] == "580-open")
    assert newest["profiles"]["fm"]["rpms"] == ["nvidia-driver", "nvidia-fabricmanager"]
    artifacts = newest["artifacts"]["rpms"]
    assert "kmod-nvidia-open-dkms-3:580.95.05-1.el9.noarch" in artifacts
    assert "nvidia-fabricmanager-0:580.105.08-1.x86_64" in artifacts


def test_packages_that_are_built_together_share_no_name_and_no_path() -> None:
    groups = rpm.rounds(EVERYTHING)
    assert sorted(package.nevra for group in groups for package in group) == sorted(
        package.nevra for package in EVERYTHING
    )
    for group in groups:
        taken = [entry for package in group for entry in (package.name, *map(rpm.merged, package.files))]
        assert len(taken) == len(set(taken))


def test_a_spec_keeps_operators_files_and_escapes_what_rpm_would_expand() -> None:
    package = rpm.RpmPackage(
        "a", "2:1.0-3.el9", "noarch", files={"/etc/a.conf": PackageFile("x"), "/lib/a": Link("b")},
        scripts={"post": "printf '%s' x\n"},
    )  # fmt: skip
    lines = rpm.stanza(package)
    assert "%config(noreplace) /etc/a.conf" in lines
    assert "/usr/lib/a" in lines
    assert "printf '%%s' x\n" in lines
    assert (package.nevra, package.filename) == ("a-2:1.0-3.el9.noarch", "a-1.0-3.el9.noarch.rpm")


def test_no_placeholder_is_left() -> None:
    for package in EVERYTHING:
        texts = [item.content for item in package.files.values() if isinstance(item, PackageFile)]
        for text in (*texts, *package.scripts.values()):
            assert not isinstance(text, str) or not re.search(r"@[A-Z]+@", text), package.name
