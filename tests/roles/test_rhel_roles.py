"""The roles on Rocky 9, as Ansible plays them: real facts, modules, dnf and rpm in a root of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.rhel_root import RhelRoot, role, site_settings
from tests.support.tree import ROOT

pytestmark = pytest.mark.needs(
    "dnf", "rpmbuild", "createrepo_c", "modifyrepo_c", "rpmsign", "gpg", "unshare", "root"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return site_settings(tmp_path_factory.mktemp("rpms"))


@pytest.mark.timeout(1200)
def test_the_road_of_a_gpu_node_in_check_mode_for_real_again_and_to_another_branch(
    site: dict[str, Any], tmp_path: Path
) -> None:
    host = RhelRoot(tmp_path, [])
    road = [
        role("nvidia_driver"),
        role("container_runtime", "install"),
        role("nvidia_container_toolkit", "install"),
        role("registry_client", "trust"),
    ]
    checked, output = host.play(road, site, "--check")
    assert checked.get("failed") == 0, output[-4000:]
    assert host.run("rpm -qa") == ""
    applied, output = host.play(road, site)
    assert applied.get("failed") == 0, output[-4000:]
    assert applied["changed"] == checked["changed"]
    packages = host.run("rpm -qa")
    for name in ("nvidia-driver-cuda-580.95.05", "nvidia-fabricmanager-580.95.05", "docker-ce-29.1.3"):
        assert name in packages
    assert "nvidia-container-toolkit-1.18.1" in packages
    locks = (host.root / "etc/dnf/plugins/versionlock.list").read_text()
    for name in ("nvidia-driver-cuda-3:580.95.05", "docker-ce-3:29.1.3", "libnvidia-container1-0:1.18.1"):
        assert name in locks
    bundle = host.root / "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
    assert "QUJD" in bundle.read_text()
    assert (host.root / "etc/docker/certs.d/registry01:5000/ca.crt").exists()
    assert "includepkgs=dkms\n" in (host.root / "etc/yum.repos.d/clusterctl-epel.repo").read_text()

    again, output = host.play(road, site)
    assert (again.get("failed"), again.get("changed")) == (0, 0), output[-4000:]
    other, output = host.play(road[:1], {**site, "nvidia_driver_branch": "570", "nvidia_driver_version": ""})
    assert other.get("failed") == 0, output[-4000:]
    assert "nvidia-driver-cuda-570.148.08" in host.run("rpm -qa")


def test_preflight_asks_for_epel_and_the_registry_is_refused(site: dict[str, Any], tmp_path: Path) -> None:
    host = RhelRoot(tmp_path, [])
    report = {**site, "preflight_report_only": True}
    found, output = host.play([role("preflight")], {**report, "nvidia_driver_epel_url": ""})
    assert found.get("failed") == 0, output[-4000:]
    assert "dkms" in output
    assert "dnf install epel-release" in output
    assert "operating system" not in output
    added, output = host.play([role("preflight")], report)
    assert added.get("failed") == 0, output[-4000:]
    assert "dkms" not in output
    registry = {**site, "registry_hostname": "registry01"}
    refused, output = host.play([role("registry")], registry)
    assert refused.get("failed") == 1
    assert "packages are those of Debian and Ubuntu" in " ".join(output.split())
    assert (ROOT / "roles/registry/tasks/main.yml").exists()
