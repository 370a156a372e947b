"""NVIDIA's repositories by the architecture of the node, from one table; Arm was never seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.support.role_variables import templated

UBUNTU = {"distribution": "Ubuntu", "distribution_version": "24.04", "distribution_major_version": "24"}


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
