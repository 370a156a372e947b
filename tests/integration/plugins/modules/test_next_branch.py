"""The next branch and back on NVIDIA's repository: planned, then done by real apt and dpkg on a node's root.

The names of branch 590 are from public descriptions; the packages are the lab's, without their scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import runner
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import removals
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_changes import wanted_holds
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_facts import request_of
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Plan
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_record import read_record
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvidia_driver_planner import make_plan
from ansible_collections.clusterctl.cluster.plugins.modules import nvidia_driver_packages, nvidia_driver_plan
from tests.support.dpkg_node import Archive, DpkgNode, ModuleOnNode, publish
from tests.support.tree import ROOT

from clusterlab.sources.build import nvidia_repository
from clusterlab.sources.deb import Package
from clusterlab.sources.driver_packages import PINNED
from clusterlab.sources.other_packages import dkms
from clusterlab.systems import PERSONALITIES

pytestmark = pytest.mark.needs("root", "apt-get", "dpkg-deb")
COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
KERNEL = "6.8.0-151-generic"
VERSIONS = {"580": "580.105.08", "590": "590.48.01"}
SYSTEMS = {
    "debian12": ('ID=debian\nVERSION_ID="12"\nNAME="Debian GNU/Linux"\nVERSION="12"\n', "1"),
    "ubuntu2404": ('ID=ubuntu\nVERSION_ID="24.04"\nNAME="Ubuntu"\nVERSION="24.04"\n', "0ubuntu1"),
}
# What the operator has besides: of CUDA, of OFED and on hold, and an older nvidia-settings.
OPERATORS = {
    "cuda-toolkit-12-6": "12.6.3-1",
    "mlnx-ofed-kernel-dkms": "24.10-1",
    "nvidia-container-toolkit": "1.18.1-1",
    "nvidia-fs-dkms": "2.24.2-1",
    "nvidia-settings": "510.47.03-0ubuntu1",
    "python3": "3.12-1",
    f"linux-headers-{KERNEL}": "6.8.0-151.151",
    f"linux-image-{KERNEL}": "6.8.0-151.151",
}
HELD_BY_OPERATOR = "mlnx-ofed-kernel-dkms"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Archive]]:
    """The lab's repository of NVIDIA's for a system, and one with the rest; each is built once."""
    built: dict[str, list[Archive]] = {}

    def of(system: str) -> list[Archive]:
        if system not in built:
            place = tmp_path_factory.mktemp(system)
            nvidias = nvidia_repository(PERSONALITIES.get(system))
            wanted = tuple(VERSIONS.values())
            chosen = [one for one in nvidias if one.version.startswith(wanted) or "pinning" in one.name]
            others = [Package(name, version, "x") for name, version in OPERATORS.items()]
            built[system] = [publish(place / "nvidia", chosen), publish(place / "rest", [dkms(), *others])]
        return built[system]

    return of


class DriverNode(DpkgNode):
    """A node with eight A100 behind NVSwitches, and what its operator installed."""

    def __init__(self, root: Path, archives: list[Archive], system: str) -> None:
        super().__init__(root, archives, SYSTEMS[system][0])
        self.url = archives[0].url
        self.install(*(f"{name}={version}" for name, version in OPERATORS.items()))
        self.must(["apt-mark", "hold", HELD_BY_OPERATOR])

    def params(self, **changes: Any) -> dict[str, Any]:
        """Of both modules, as the role passes them."""
        defaults = {
            name: option.get("default")
            for arguments in (nvidia_driver_plan.ARGUMENTS, nvidia_driver_packages.ARGUMENTS)
            for name, option in arguments.items()
        }
        fixed = {"source": "cuda", "flavor": "open", "compat": COMPAT, "repository_url": self.url}
        return {**defaults, **fixed, **changes}

    def plan(self, branch: str, **changes: Any) -> Plan:
        """What the role decides; the machine is not this one."""
        module = ModuleOnNode(self, self.params(branch=branch, **changes))
        bare = nvidia_driver_plan.apt_facts(self.root, {}, {})
        offered = nvidia_driver_plan.offered(
            module, nvidia_driver_plan.names_of_interest(module, replace(bare, kernels=[KERNEL])), []
        )
        facts = replace(
            nvidia_driver_plan.apt_facts(self.root, *offered),
            kernels=[KERNEL],
            headers={KERNEL: True},
            gpus=[{"device": "0x20b2"}] * 8,
            nvswitches=6,
            secure_boot=False,
        )
        return make_plan(request_of(module.params), facts, COMPAT)

    def transact(self, plan: Plan, directory: Path, *, check: bool) -> dict[str, Any]:
        """The result of the packages' module for a plan."""
        directory.mkdir()
        given = {name: getattr(plan, name) for name in ("packages", "remove", "version", "warnings")}
        module = ModuleOnNode(self, self.params(branch="", **given), check_mode=check)
        with runner(module) as run:
            return nvidia_driver_packages.transact(module, run, directory)

    def run_pinning_scripts(self) -> None:
        """What the scripts of the pinning packages do, which are not run here."""
        file = self.root / "etc/apt/preferences.d/nvidia-driver-pinning"
        file.unlink(missing_ok=True)
        for name in self.installed:
            if name.startswith("nvidia-driver-pinning-"):
                pin = f"Package: {PINNED}\nPin: version {name.rpartition('-')[2]}.*\nPin-Priority: 1000\n"
                file.write_text(pin)


@pytest.fixture
def node_of(
    archives: Callable[[str], list[Archive]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], DriverNode]:
    """A node of a system, on which the modules work."""

    def of(system: str) -> DriverNode:
        root = tmp_path / "node"
        monkeypatch.setattr(nvidia_driver_packages, "ROOT", root)
        pin = root / "etc/apt/preferences.d/clusterctl-nvidia-driver"
        monkeypatch.setattr(nvidia_driver_packages, "PREFERENCES", pin)
        return DriverNode(root, archives(system), system)

    return of


def applied(node: DriverNode, step: Path, branch: str, **changes: Any) -> Plan:
    """One apply, with what every apply must keep to."""
    step.mkdir()
    plan = node.plan(branch, **changes)
    assert plan.problems == []
    before, held_before = node.installed, node.held
    foretold = node.transact(plan, step / "check", check=True)
    assert (node.installed, node.held) == (before, held_before)
    done = node.transact(plan, step / "apply", check=False)
    node.run_pinning_scripts()
    after = node.installed

    assert {name: done[name] for name in ("changes", "held", "released")} == {
        name: foretold[name] for name in ("changes", "held", "released")
    }
    names = before.keys() | after.keys()
    differs = {n: [before.get(n, ""), after.get(n, "")] for n in names if before.get(n) != after.get(n)}
    assert done["changes"] == differs
    assert removals({name: (old, new) for name, (old, new) in differs.items()}) == plan.remove
    assert set(plan.missing) <= set(differs)
    assert {name: version for name, version in after.items() if name in OPERATORS} == OPERATORS

    version = VERSIONS[branch]
    wanted = wanted_holds(node.params(branch=branch), after)
    assert node.held == wanted | {HELD_BY_OPERATOR}
    assert set(read_record(node.root)["held"]) == wanted
    parts = set(wanted) - set(OPERATORS)
    assert {after[name].rpartition("-")[0] for name in parts} == {version}
    assert {"nvidia-fabricmanager", "libnvidia-nscq"} <= {n.removesuffix(f"-{branch}") for n in parts}
    again = node.plan(branch, **changes)
    assert (again.missing, again.remove, again.transaction) == ([], [], False)
    return plan


@pytest.mark.parametrize("scope", ["compute", "full"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_next_branch_and_back_moves_every_part_and_nothing_of_the_operators(
    node_of: Callable[[str], DriverNode], tmp_path: Path, system: str, scope: str
) -> None:
    node = node_of(system)
    applied(node, tmp_path / "first", "580", scope=scope)
    numbered = node.installed
    assert "nvidia-driver-pinning-580" in numbered

    forth = applied(node, tmp_path / "forth", "590", scope=scope)
    assert "nvidia-driver-pinning-580" in forth.remove
    assert [name for name in node.installed if "-580" in name] == []
    assert node.installed["nvidia-fabricmanager"].startswith(VERSIONS["590"])
    assert "nvidia-driver-pinning-590" in node.installed

    back = applied(node, tmp_path / "back", "580", scope=scope)
    assert "nvidia-driver-pinning-590" in back.remove
    assert {name: node.installed[name] for name in numbered} == numbered
    # Metapackages of the unversioned names, which 580 has too, may be there besides.
    assert {node.installed[name] for name in node.installed.keys() - numbered.keys()} <= {
        f"{VERSIONS['580']}-{SYSTEMS[system][1]}"
    }
