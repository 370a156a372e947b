"""Debian packages by real apt and dpkg on a node's root: what check mode foretells is what an apply does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import package_task
from ansible_collections.clusterctl.cluster.plugins.modules import debian_packages
from tests.support.dpkg_node import DpkgNode, ModuleOnNode, publish
from tests.support.played_module import result_of

from clusterlab.sources.deb import Package

pytestmark = pytest.mark.needs("root", "apt-get", "dpkg-deb")
DISTRIBUTION = [
    Package("containerd", "1.7-1", "x"),
    Package("containerd", "2.2-1", "x"),
    Package("docker.io", "29.1-1", "x", fields={"Depends": "containerd (>= 2), iptables"}),
    Package("iptables", "1.8-1", "x"),
    Package("podman-docker", "4.3-1", "x", fields={"Conflicts": "docker.io"}),
]
VENDOR = [
    Package("toolkit", "1.18.1-1", "x", fields={"Depends": "toolkit-base (= 1.18.1-1)"}),
    Package("toolkit-base", "1.18.1-1", "x"),
]
DEFAULTS: dict[str, Any] = {
    "version": "", "hold": True, "busy": "", "adopt": [], "http_proxy": "", "https_proxy": "", "no_proxy": "",
    "repository_url": "", "repository_suite": "./", "repository_components": "",
}  # fmt: skip


class Node(DpkgNode):
    """A node that knows the distribution's packages and not the vendor's."""

    def __init__(self, place: Path, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        super().__init__(place / "node", [publish(place / "distribution", DISTRIBUTION)], "ID=debian\n")
        self.vendor = publish(place / "vendor", VENDOR)
        patch.setattr(debian_packages, "ROOT", self.root)
        patch.setattr(package_task, "HOLDS", self.root / "var/lib/clusterctl/holds.json")
        real = package_task.alone
        patch.setattr(package_task, "alone", lambda name, seconds: real(name, seconds, self.root / "locks"))

    def packages(self, *packages: str, check: bool = False, **params: Any) -> dict[str, Any]:
        """The module's result; `warned` are its warnings."""
        given = {**DEFAULTS, "packages": list(packages), **params}
        module = ModuleOnNode(self, given, check_mode=check)
        self.patch.setattr(debian_packages, "AnsibleModule", lambda **_: module)
        self.patch.setattr(debian_packages, "require_apt", lambda _module: None)
        return {"warned": module.warned, **result_of(debian_packages.main)}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_what_comes_along_is_foretold_and_nothing_changes_before(node: Node) -> None:
    node.install("containerd=1.7-1")
    lists = {
        path.name: path.read_bytes() for path in (node.root / "var/lib/apt/lists").iterdir() if path.is_file()
    }
    foretold = node.packages("docker.io", check=True)
    assert node.installed == {"containerd": "1.7-1"}
    done = node.packages("docker.io")
    assert foretold["changes"] == done["changes"] == {
        "containerd": ["1.7-1", "2.2-1"], "docker.io": ["", "29.1-1"], "iptables": ["", "1.8-1"],
    }  # fmt: skip
    assert (foretold["diff"], foretold["warned"]) == (done["diff"], [])
    assert node.installed == {"containerd": "2.2-1", "docker.io": "29.1-1", "iptables": "1.8-1"}
    assert node.held == {"docker.io"}
    assert lists.keys() <= {path.name for path in (node.root / "var/lib/apt/lists").iterdir()}


def test_somebody_elses_hold_on_a_dependency_and_a_removal_are_foretold(node: Node) -> None:
    node.install("containerd=1.7-1")
    node.must(["apt-mark", "hold", "containerd"])
    held = node.packages("docker.io", check=True)
    assert held["code"] == "packages.held"
    assert held["msg"] == node.packages("docker.io")["msg"]
    node.must(["apt-mark", "unhold", "containerd"])
    node.install("podman-docker")
    removed = node.packages("docker.io", check=True)
    assert "apt would remove podman-docker" in removed["msg"]
    assert removed["msg"] == node.packages("docker.io")["msg"]
    assert node.installed == {"containerd": "1.7-1", "podman-docker": "4.3-1"}


def test_a_repository_that_is_not_configured_yet_is_read_and_without_it_a_warning_says_so(node: Node) -> None:
    foretold = node.packages("toolkit", version="1.18.1", check=True, repository_url=node.vendor.url)
    assert foretold["changes"] == {"toolkit": ["", "1.18.1-1"], "toolkit-base": ["", "1.18.1-1"]}
    unknown = node.packages("toolkit", version="1.18.1", check=True)
    assert (unknown["changed"], unknown["changes"]) == (True, {})
    (warning,) = unknown["warned"]
    assert warning.startswith(
        "What else toolkit=1.18.1-* would change is not known: E: Unable to locate package"
    )
    assert [path.name for path in (node.root / "etc/apt/sources.list.d").iterdir()] == ["archives.list"]


def test_what_was_being_unpacked_when_the_power_went_is_unpacked_again(node: Node) -> None:
    """dpkg itself configures no such package, and refuses to go on with others before apt was told so."""
    node.install("containerd=1.7-1")
    status = node.root / "var/lib/dpkg/status"
    text = status.read_text()
    left = text.replace("Status: install ok installed", "Status: install reinstreq half-installed")
    assert left != text
    status.write_text(left)
    (node.root / "var/lib/dpkg/updates/0000").write_text(left)
    assert "dpkg was interrupted" in node.run(["apt-get", "--yes", "install", "iptables"])[2]
    done = node.packages("containerd=1.7-1", "iptables")
    assert done.get("changed"), done
    assert node.installed == {"containerd": "1.7-1", "iptables": "1.8-1"}
    assert "reinstreq" not in status.read_text()
    assert node.packages("containerd=1.7-1", "iptables")["changed"] is False
