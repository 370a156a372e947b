"""A personality answers as its system to what reads its files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import os_release
from tests.support.tree import ROOT

from clusterlab.images import node, personality, rocky
from clusterlab.systems import PERSONALITIES, RPM_PERSONALITIES, SYSTEMS, base_of, registry_system

COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())


@pytest.mark.parametrize("system", PERSONALITIES)
def test_it_is_a_supported_system_by_its_os_release(system: str, tmp_path: Path) -> None:
    files = {file.path: file.content.decode() for file in personality.names(PERSONALITIES[system])}
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(files["/usr/lib/os-release"])
    found = os_release(tmp_path)
    assert found["version"] in COMPAT["supported_os"][found["id"]]
    assert system == found["id"] + found["version"].replace(".", "")
    assert files["/etc/dpkg/origins/ubuntu"].startswith("Vendor: Ubuntu\n")
    assert f"DISTRIB_RELEASE={found['version']}\n" in files["/etc/lsb-release"]


def test_a_rocky_is_a_supported_system_and_names_its_own_repositories(tmp_path: Path) -> None:
    system = RPM_PERSONALITIES["rocky9"]
    files = {file.path: file.content.decode() for file in rocky.names(system)}
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(files["/usr/lib/os-release"])
    found = os_release(tmp_path)
    assert found["version"].partition(".")[0] in COMPAT["supported_os"][found["id"]]
    assert 'PLATFORM_ID="platform:el9"\n' in files["/usr/lib/os-release"]
    assert files["/etc/redhat-release"] == "Rocky Linux release 9.6 (Blue Onyx)\n"
    assert "/etc/debian_version" not in files
    repositories = {file.path: file.content for file in rocky.sources("http://depot", b"key")}
    assert repositories[rocky.KEY] == b"key"
    assert repositories["/etc/yum.repos.d/rocky.repo"].count(b"gpgcheck=1") == 2


def test_a_rocky_has_dnf_and_its_registry_host_is_a_debian() -> None:
    packages = personality.packages("rocky9", ("systemd-sysv", "python3-apt"))
    assert {"dnf", "rpm", "systemd-sysv"} <= set(packages)
    assert "python3-apt" not in packages
    assert registry_system("rocky9") == "debian12"
    assert {registry_system(system) for system in SYSTEMS} == set(SYSTEMS) - {"rocky9"}


def test_a_debian_has_no_personality(tmp_path: Path) -> None:
    assert {base_of(system) for system in SYSTEMS} == {"debian12", "debian13"}
    assert personality.hooks("debian12", tmp_path) == []
    assert personality.rootfs("debian13") == []
    assert len({node.node_tag(system) for system in SYSTEMS}) == len(SYSTEMS)
