"""Plans for Ubuntu's own archive, resolved by real apt over the index of the lab's archive of its shape.

Names, versions and relations are as Ubuntu 24.04 has them; the packages themselves are never read.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import (
    Facts,
    Plan,
    Request,
    driver_packages,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_prebuilt import prebuilt_names
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvidia_driver_planner import make_plan
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import (
    merge,
    parse_builds,
    parse_kernel_metapackages,
)
from tests.support.apt_node import AptNode
from tests.support.tree import ROOT

from clusterlab.sources.build import ubuntu_archive
from clusterlab.systems import PERSONALITIES

pytestmark = pytest.mark.needs("apt-get")
COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
UBUNTU = PERSONALITIES["ubuntu2404"]
OLD, NEW = "6.8.0-45-generic", "6.8.0-151-generic"
MODULES = "linux-modules-nvidia-580-server-open"
DRIVERS = ("580.95.05", "580.105.08")
KERNELS = {
    kernel.release: {f"linux-{part}-{kernel.release}": kernel.version for part in ("image", "modules")}
    | ({f"linux-image-{kernel.flavour}": kernel.version} if kernel.flavour else {})
    for kernel in UBUNTU.kernels
}


def revision(driver: str) -> str:
    return f"{driver}-{UBUNTU.revision}"


class Node(AptNode):
    """An Ubuntu node, and apt that knows Ubuntu's archive alone."""

    def __init__(self, root: Path) -> None:
        packages = [package for package in ubuntu_archive(UBUNTU) if "-570" not in package.name]
        # Python is there already, outside of the archive.
        super().__init__(root, packages, {"python3": "3.12"})

    def facts(self, kernels: list[str]) -> Facts:
        status = (self.root / "var/lib/dpkg/status").read_text()
        names = [*prebuilt_names(MODULES, kernels, ["generic"]), "nvidia-utils-580-server"]
        names += ["nvidia-headless-no-dkms-580-server-open", *driver_packages(self.installed, COMPAT)]
        available = self.offered(names)
        modules = [name for name in available if name.startswith(MODULES)]
        builds = parse_builds(self.run(["apt-cache", *self.options, "show", *modules])[1])
        return self.facts_with(
            os={"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3 LTS"},
            kernels=kernels,
            gpus=[{"device": "0x20b2"}],
            nvswitches=0,
            available=available,
            builds=merge(builds, parse_builds(status)),
            kernel_metapackages=parse_kernel_metapackages(status),
        )

    def bring(self, kernels: list[str], version: str = "") -> Plan:
        """What an apply does to the packages: the plan, resolved by apt."""
        asked = ("distribution", "open", "580", version, "compute", "auto", True, True, [], True, "refuse")
        plan = make_plan(Request(*asked), self.facts(kernels), COMPAT)
        self.resolve(plan, COMPAT)
        return plan

    def modules(self) -> dict[str, str]:
        """The installed modules, by kernel or flavour."""
        found = {n.removeprefix(f"{MODULES}-"): v for n, v in self.installed.items() if n.startswith(MODULES)}
        assert "dkms" not in self.installed and "nvidia-dkms-580-server-open" not in self.installed
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_fresh_node_gets_modules_without_dkms_and_follows_versions_up_and_down(node: Node) -> None:
    node.have(KERNELS[NEW])
    assert node.bring([NEW]).version == DRIVERS[1]
    assert node.modules() == dict.fromkeys((NEW, "generic"), "6.8.0-151.151+1")
    assert node.bring([NEW]).missing == []
    for driver, version in ((DRIVERS[0], "6.8.0-151.151"), (DRIVERS[1], "6.8.0-151.151+1")):
        node.bring([NEW], driver)
        assert node.modules() == dict.fromkeys((NEW, "generic"), version)
        assert node.installed["nvidia-utils-580-server"] == revision(driver)
        assert node.installed["libnvidia-compute-580-server"] == revision(driver)
        firmware = [name for name in node.installed if name.startswith("nvidia-firmware-")]
        assert firmware == [f"nvidia-firmware-580-server-{driver}"]


def test_no_kernel_comes_along_with_the_modules_of_an_old_one(node: Node) -> None:
    node.have(KERNELS[OLD])
    assert node.bring([OLD]).version == DRIVERS[0]
    assert node.modules() == {OLD: "6.8.0-45.45"}
    assert f"linux-image-{NEW}" not in node.installed


def test_a_driver_without_modules_for_the_running_kernel_waits_for_the_newer_one(node: Node) -> None:
    node.have(KERNELS[OLD] | KERNELS[NEW])
    assert node.bring([OLD, NEW]).reboot == ""
    assert set(node.modules()) == {OLD, NEW, "generic"}
    plan = node.bring([OLD, NEW], DRIVERS[1])
    assert plan.reboot.startswith(f"kernel {OLD} has no prebuilt modules")
    assert node.modules() == dict.fromkeys((NEW, "generic"), "6.8.0-151.151+1")


def test_modules_that_dkms_built_give_way_to_signed_ones(node: Node) -> None:
    node.have(KERNELS[NEW])
    node.bring([NEW], DRIVERS[0])
    built = {"nvidia-dkms-580-server-open": revision(DRIVERS[0])}
    signed = {name for name in node.installed if name.startswith(MODULES)}
    node.have({name: own for name, own in node.installed.items() if name not in signed} | built)
    assert node.bring([NEW]).version == DRIVERS[0]
    assert node.modules() == dict.fromkeys((NEW, "generic"), "6.8.0-151.151")
