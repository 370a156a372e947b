"""NVIDIA's repositories by the architecture of the node, from one table; Arm was never seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.support.role_variables import templated

UBUNTU = {
    "os_family": "Debian",
    "distribution": "Ubuntu",
    "distribution_version": "24.04",
    "distribution_major_version": "24",
}


@pytest.mark.parametrize(
    ("architecture", "driver", "toolkit"), [("x86_64", "x86_64", "amd64"), ("aarch64", "sbsa", "arm64")]
)
def test_preflight_asks_the_repositories_that_the_roles_install_from(
    repository: Path, architecture: str, driver: str, toolkit: str
) -> None:
    compat = yaml.safe_load((repository / "roles/nvidia_driver/files/compat.yml").read_text())
    variables = {
        "ansible_facts": {**UBUNTU, "architecture": architecture},
        "_nvidia_driver_compat": compat,
        "_preflight_compat": compat,
        "_nvidia_container_toolkit_architectures": compat["toolkit_architectures"],
    }

    def of(role: str, name: str) -> object:
        return templated(repository, role, name, variables)

    url = of("nvidia_driver", "_nvidia_driver_repository")
    assert str(url).endswith(f"/ubuntu2404/{driver}/")
    assert of("nvidia_container_toolkit", "_nvidia_container_toolkit_architecture") == toolkit
    asked = of("preflight", "_preflight_gpu_sources")
    assert isinstance(asked, list)
    assert asked[0] == f"{url}Release"
    assert asked[1].endswith(f"/deb/{toolkit}/Release")


@pytest.mark.parametrize("distribution", ["Rocky", "AlmaLinux", "RedHat"])
def test_rhel_and_its_rebuilds_share_nvidias_directory_and_have_repositories_of_rpms(
    repository: Path, distribution: str
) -> None:
    compat = yaml.safe_load((repository / "roles/nvidia_driver/files/compat.yml").read_text())
    facts = {"os_family": "RedHat", "distribution": distribution, "distribution_version": "9.6"}
    variables = {
        "ansible_facts": {**facts, "distribution_major_version": "9", "architecture": "x86_64"},
        "_nvidia_driver_compat": compat,
        "_preflight_compat": compat,
    }

    def of(role: str, name: str) -> object:
        return templated(repository, role, name, variables)

    driver = of("nvidia_driver", "_nvidia_driver_repository")
    assert str(driver).endswith("/rhel9/x86_64/")
    toolkit = of("nvidia_container_toolkit", "_nvidia_container_toolkit_rpm_url")
    assert toolkit == "https://nvidia.github.io/libnvidia-container/stable/rpm"
    assert of("preflight", "_preflight_gpu_sources") == [
        f"{driver}repodata/repomd.xml",
        f"{toolkit}/x86_64/repodata/repomd.xml",
    ]
    docker = "rhel" if distribution == "RedHat" else "centos"
    url = f"https://download.docker.com/linux/{docker}"
    assert of("container_runtime", "_container_runtime_rpm_repository") == f"{url}/9/x86_64/stable"
    assert of("container_runtime", "_container_runtime_rpm_key") == f"{url}/gpg"
    variables["container_runtime_repository_url"] = "http://mirror/docker"
    assert (
        of("container_runtime", "_container_runtime_rpm_repository") == "http://mirror/docker/9/x86_64/stable"
    )
    assert of("nvidia_driver", "_nvidia_driver_epel") == ""
    variables["nvidia_driver_epel_url"] = "http://mirror/epel/"
    epel = "http://mirror/epel/9/Everything/x86_64/"
    assert of("nvidia_driver", "_nvidia_driver_epel") == epel
    assert f"{epel}repodata/repomd.xml" in str(of("preflight", "_preflight_gpu_sources"))
    variables["nvidia_driver_precompiled"] = True
    assert of("nvidia_driver", "_nvidia_driver_epel") == ""
    assert of("container_runtime", "_container_runtime_packages") == [
        "docker-ce", "docker-ce-cli", "containerd.io",
    ]  # fmt: skip
    # What these roles installed themselves is not somebody else's.
    assert of("container_runtime", "_container_runtime_adopt") == ["moby-engine"]
    assert of("registry_client", "_registry_client_ca_path") == (
        "/etc/pki/ca-trust/source/anchors/clusterctl-cluster.crt"
    )
