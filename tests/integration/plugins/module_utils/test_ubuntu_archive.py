"""Plans for Ubuntu's own archive, resolved by real apt over the index of the lab's archive of its shape.

Names, versions and relations are as Ubuntu 22.04 and 24.04 have them; the packages themselves are never read.
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
MODULES = "linux-modules-nvidia-580-server-open"
DRIVERS = ("580.95.05", "580.105.08")


class Node(AptNode):
    """An Ubuntu node, and apt that knows Ubuntu's archive alone; two kernels of the archive's."""

    def __init__(self, root: Path, system: str) -> None:
        self.ubuntu = PERSONALITIES[system]
        packages = [package for package in ubuntu_archive(self.ubuntu) if "-570" not in package.name]
        # Python is there already, outside of the archive.
        super().__init__(root, packages, {"python3": "3.10"})
        self.new, self.old = (kernel.release for kernel in self.ubuntu.kernels[:2])

    def have_kernels(self, *releases: str) -> None:
        """These kernels are installed, with the metapackage of the one that has a flavour."""
        found: dict[str, str] = {}
        for kernel in self.ubuntu.kernels:
            if kernel.release in releases:
                names = [f"linux-{part}-{kernel.release}" for part in ("image", "modules")]
                names += [f"linux-image-{kernel.flavour}"] if kernel.flavour else []
                found |= dict.fromkeys(names, kernel.version)
        self.have(found)

    def builds(self, number: int, *kernels: str) -> dict[str, str]:
        """Versions of one build of the modules, by kernel; the flavour follows its newest."""
        versions = {kernel.release: kernel.version for kernel in self.ubuntu.kernels}
        found = {kernel: versions[kernel] + (f"+{number}" if number else "") for kernel in kernels}
        return found | ({"generic": found[self.new]} if self.new in found else {})

    def revision(self, driver: str) -> str:
        """The version of the archive's packages of a driver."""
        return f"{driver}-{self.ubuntu.revision}"

    def facts(self, kernels: list[str]) -> Facts:
        status = (self.root / "var/lib/dpkg/status").read_text()
        names = [*prebuilt_names(MODULES, kernels, ["generic"]), "nvidia-utils-580-server"]
        names += ["nvidia-headless-no-dkms-580-server-open", *driver_packages(self.installed, COMPAT)]
        available = self.offered(names)
        modules = [name for name in available if name.startswith(MODULES)]
        builds = parse_builds(self.run(["apt-cache", *self.options, "show", *modules])[1])
        return self.facts_with(
            os={"id": "ubuntu", "version": self.ubuntu.version_id, "name": self.ubuntu.name},
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


@pytest.fixture(params=["ubuntu2204", "ubuntu2404"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Node:
    return Node(tmp_path, request.param)


def test_a_fresh_node_gets_modules_without_dkms_and_follows_versions_up_and_down(node: Node) -> None:
    new = node.new
    node.have_kernels(new)
    assert node.bring([new]).version == DRIVERS[1]
    assert node.modules() == node.builds(1, new)
    assert node.bring([new]).missing == []
    for build, driver in enumerate(DRIVERS):
        node.bring([new], driver)
        assert node.modules() == node.builds(build, new)
        assert node.installed["nvidia-utils-580-server"] == node.revision(driver)
        assert node.installed["libnvidia-compute-580-server"] == node.revision(driver)
        firmware = [name for name in node.installed if name.startswith("nvidia-firmware-")]
        assert firmware == [f"nvidia-firmware-580-server-{driver}"]


def test_no_kernel_comes_along_with_the_modules_of_an_old_one(node: Node) -> None:
    node.have_kernels(node.old)
    assert node.bring([node.old]).version == DRIVERS[0]
    assert node.modules() == node.builds(0, node.old)
    assert f"linux-image-{node.new}" not in node.installed


def test_a_driver_without_modules_for_the_running_kernel_waits_for_the_newer_one(node: Node) -> None:
    kernels = [node.old, node.new]
    node.have_kernels(*kernels)
    assert node.bring(kernels).reboot == ""
    assert set(node.modules()) == {*kernels, "generic"}
    plan = node.bring(kernels, DRIVERS[1])
    assert plan.reboot.startswith(f"kernel {node.old} has no prebuilt modules")
    assert node.modules() == node.builds(1, node.new)


def test_modules_that_dkms_built_give_way_to_signed_ones(node: Node) -> None:
    node.have_kernels(node.new)
    node.bring([node.new], DRIVERS[0])
    built = {"nvidia-dkms-580-server-open": node.revision(DRIVERS[0])}
    signed = {name for name in node.installed if name.startswith(MODULES)}
    node.have({name: own for name, own in node.installed.items() if name not in signed} | built)
    assert node.bring([node.new]).version == DRIVERS[0]
    assert node.modules() == node.builds(0, node.new)
