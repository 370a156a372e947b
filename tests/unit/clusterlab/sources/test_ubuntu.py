"""Ubuntu's archive and NVIDIA's repository for it: names, versions and relations, as the roles meet them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import parse_builds

from clusterlab.sources import deb, other_packages, ubuntu_driver, ubuntu_kernel
from clusterlab.sources.build import DRIVER_VERSIONS, UBUNTU_BUILDS, ubuntu_archive
from clusterlab.systems import PERSONALITIES, Kernel

PERSONALITY = PERSONALITIES["ubuntu2404"]
KERNEL = PERSONALITY.kernels[0]
NVIDIAS = ubuntu_driver.NVIDIA
CANONICALS = ubuntu_driver.ubuntu(PERSONALITY.revision)
# Of Debian, and there already.
OUTSIDE = {"python3"}


def unserved(packages: Iterable[deb.Package]) -> set[str]:
    """Dependencies that no package of these satisfies."""
    found, names, exact = set(), set(), set()
    for package in packages:
        names |= {package.name}
        exact |= {f"{package.name} (= {package.version})"}
        for provided in filter(None, package.fields.get("Provides", "").split(", ")):
            names |= {provided.partition(" ")[0]}
            exact |= {provided}
    for package in packages:
        for clause in filter(None, package.fields.get("Depends", "").split(", ")):
            for choice in clause.split(" | "):
                name = choice.partition(" ")[0]
                if choice in exact or (name in names | OUTSIDE and "(= " not in choice):
                    break
            else:
                found.add(clause)
    return found


@pytest.mark.parametrize("system", ["ubuntu2204", "ubuntu2404"])
def test_everything_in_ubuntus_archive_can_be_installed(system: str) -> None:
    assert unserved(ubuntu_archive(PERSONALITIES[system])) == set()


def test_everything_in_nvidias_repository_can_be_installed() -> None:
    packages = [other_packages.dkms()]
    for version in DRIVER_VERSIONS:
        packages += ubuntu_driver.packages(version, NVIDIAS)
    assert unserved(packages) == set()


@pytest.mark.parametrize("origin", [NVIDIAS, CANONICALS])
def test_a_driver_is_one_version_throughout(origin: ubuntu_driver.PackageOrigin) -> None:
    packages = ubuntu_driver.packages("580.95.05", origin)
    versions = {package.version for package in packages if "pinning" not in package.name}
    assert versions == {f"580.95.05-{origin.revision}"}
    names = {package.name for package in packages}
    assert {f"nvidia-utils-580{origin.suffix}", f"nvidia-headless-no-dkms-580{origin.suffix}-open"} <= names
    # It is not a part of the name of these in either.
    assert {"nvidia-fabricmanager-580", "libnvidia-nscq-580"} <= names


def test_nvidias_packages_need_a_newer_dkms_than_ubuntu_has() -> None:
    packages = {package.name: package for package in ubuntu_driver.packages("580.95.05", NVIDIAS)}
    assert packages["nvidia-dkms-580-open"].fields["Depends"].endswith("dkms (>= 3.1.8)")
    assert "nvidia-open-580" in packages


def test_modules_have_the_kernels_version_and_name_the_driver_elsewhere() -> None:
    text = ""
    for number, drivers in enumerate(UBUNTU_BUILDS):
        build = ubuntu_kernel.ModuleBuild(KERNEL, number, PERSONALITY.revision)
        text += "\n".join(map(deb.control, ubuntu_kernel.module_packages(build, drivers))) + "\n"
    builds = parse_builds(text)
    stem = "linux-modules-nvidia-580-server-open"
    for name in (f"{stem}-{KERNEL.release}", f"{stem}-generic"):
        drivers_by_version = {version: build.driver for version, build in builds[name].items()}
        assert drivers_by_version == {"6.8.0-151.151": "580.95.05", "6.8.0-151.151+1": "580.105.08"}
    proprietary = builds[f"linux-modules-nvidia-580-server-{KERNEL.release}"]["6.8.0-151.151"]
    assert set(proprietary.parts) == {
        f"linux-signatures-nvidia-{KERNEL.release}",
        f"linux-objects-nvidia-580-server-{KERNEL.release}",
    }


def test_a_kernel_of_no_flavour_has_no_metapackage() -> None:
    names = {
        package.name for package in ubuntu_kernel.kernel_packages(Kernel("6.8.0-45-generic", "6.8.0-45.45"))
    }
    assert names == {f"linux-{part}-6.8.0-45-generic" for part in ("image", "modules", "headers")}
    newest = {package.name for package in ubuntu_kernel.kernel_packages(KERNEL)}
    assert {"linux-generic", "linux-image-generic", "linux-headers-generic"} <= newest


def test_no_placeholder_is_left() -> None:
    packages = ubuntu_archive(PERSONALITY)
    for package in packages:
        texts = [item.content for item in package.files.values() if isinstance(item, deb.PackageFile)]
        for text in (*texts, *package.scripts.values()):
            assert not isinstance(text, str) or not re.search(r"@[A-Z]+@", text), package.name
