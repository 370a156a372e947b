"""Plans for HGX B200 and racks of GB200, resolved by real apt over the lab's index of NVIDIA's repositories.

Names and relations are from public descriptions; no such machine was seen.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Facts, Plan, Request
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvidia_driver_planner import make_plan
from ansible_collections.clusterctl.cluster.plugins.modules.nvidia_driver_packages import wanted_holds
from tests.support.apt_node import AptNode
from tests.support.tree import ROOT

from clusterlab.sources import driver_packages, other_packages, ubuntu_driver
from clusterlab.sources.build import DRIVER_VERSIONS

pytestmark = pytest.mark.needs("apt-get")
COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
KERNEL = "6.8.0-151-generic"
B200, GB200 = "0x2901", "0x2941"
SYSTEMS = {
    "debian": {"id": "debian", "version": "12", "name": "Debian GNU/Linux 12"},
    "ubuntu": {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3 LTS"},
}
REQUEST = Request("cuda", "open", "580", "", "compute", "auto", True, True, [], True, "refuse")
OUTSIDE = {"python3": "3.12", "infiniband-diags": "50.0", f"linux-headers-{KERNEL}": "6.8.0-151.151"}


class Node(AptNode):
    """A node of one system and kind of GPU, and apt that knows NVIDIA's repository for that system."""

    def __init__(self, root: Path, system: str, gpu: str) -> None:
        packages = [driver_packages.subnet_manager(), other_packages.dkms()]
        for version in DRIVER_VERSIONS:
            packages += (
                ubuntu_driver.packages(version, ubuntu_driver.NVIDIA)
                if system == "ubuntu"
                else driver_packages.packages(version)
            )
        super().__init__(root, packages, OUTSIDE)
        self.system, self.gpu = SYSTEMS[system], gpu

    def facts(self) -> Facts:
        names = sorted({name for name, _ in self.stanzas})
        return self.facts_with(
            os=self.system,
            kernels=[KERNEL],
            gpus=[{"device": self.gpu}] * 8,
            nvswitches=0,
            nvswitch_bridges=4 if self.gpu == B200 else 0,
            available=self.offered(names),
        )

    def bring(self, branch: str, version: str = "") -> Plan:
        """What an apply does to the packages."""
        plan = make_plan(replace(REQUEST, branch=branch, version=version), self.facts(), COMPAT)
        self.resolve(plan, COMPAT)
        return plan

    def of_fabric(self) -> dict[str, str]:
        """The installed packages of the NVLink fabric with their versions."""
        marks = ("fabricmanager", "nscq", "nvsdm", "nvlsm", "imex", "infiniband")
        return {name: version for name, version in self.installed.items() if any(m in name for m in marks)}


@pytest.mark.parametrize(("system", "revision"), [("debian", "1"), ("ubuntu", "0ubuntu1")])
def test_hgx_b200_gets_nvlsm_and_libnvsdm_beside_fabric_manager_in_every_branch(
    tmp_path: Path, system: str, revision: str
) -> None:
    node = Node(tmp_path, system, B200)
    own = {"nvlsm": "2025.06.11-1", "infiniband-diags": "50.0"}
    steps = (("570", "", "libnvsdm-570"), ("580", "580.95.05", "libnvsdm"), ("580", "580.105.08", "libnvsdm"))
    for branch, version, library in (*steps, *reversed(steps)):
        plan = node.bring(branch, version)
        assert plan.nvlsm and plan.fabric_manager and not plan.imex
        exact = f"{plan.version}-{revision}"
        names = (f"nvidia-fabricmanager-{branch}", f"libnvidia-nscq-{branch}", library)
        assert node.of_fabric() == dict.fromkeys(names, exact) | own
        assert node.bring(branch, version).missing == []


@pytest.mark.parametrize(("system", "revision"), [("debian", "1"), ("ubuntu", "0ubuntu1")])
def test_a_tray_of_gb200_gets_imex_and_no_fabric_manager(tmp_path: Path, system: str, revision: str) -> None:
    node = Node(tmp_path, system, GB200)
    for branch in ("570", "580", "570"):
        plan = node.bring(branch)
        assert plan.imex and not plan.fabric_manager and not plan.nvlsm
        assert node.of_fabric() == {f"nvidia-imex-{branch}": f"{plan.version}-{revision}"}


def test_nvlsm_is_held_with_the_driver_and_the_systems_own_tools_are_not(tmp_path: Path) -> None:
    node = Node(tmp_path, "debian", B200)
    plan = node.bring("580")
    params = {"compat": COMPAT, "hold": True, "hold_kernel": False}
    held = wanted_holds(params, node.installed)
    assert {"nvlsm", "libnvsdm", "nvidia-fabricmanager-580"} <= held
    assert held.isdisjoint({"infiniband-diags", "python3"})
    assert {"nvlsm", "libnvsdm"} <= set(plan.hold)
