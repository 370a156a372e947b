"""A personality answers as its system to what reads its files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import os_release
from tests.support.tree import ROOT

from clusterlab.images import node, personality
from clusterlab.systems import PERSONALITIES, SYSTEMS, base_of

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


def test_a_debian_has_no_personality(tmp_path: Path) -> None:
    assert {base_of(system) for system in SYSTEMS} == {"debian12", "debian13"}
    assert personality.hooks("debian12", tmp_path) == []
    assert personality.rootfs("debian13") == []
    assert len({node.node_tag(system) for system in SYSTEMS}) == len(SYSTEMS)
