"""The driver on RHEL 9 by real dnf: from nothing through a newer version, branches and flavours, and back.

The node is a directory with an RPM database of its own; the repository has NVIDIA's names and streams.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.dnf_transaction import parse_table
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_record import read_record
from ansible_collections.clusterctl.cluster.plugins.modules import (
    nvidia_driver_packages,
    nvidia_driver_plan,
)
from tests.support import rpm_archive
from tests.support.played_module import PlayedModule, result_of
from tests.support.tree import ROOT

pytestmark = pytest.mark.needs("dnf", "rpmbuild", "createrepo_c", "modifyrepo_c", "root")
COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
OLD, NEW = (f"{release}.x86_64" for release in rpm_archive.KERNELS)
OURS = "etc/dnf/plugins/versionlock.list"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rpm_archive.build(tmp_path_factory.mktemp("rpms"))


class Node(PlayedModule):
    """Ansible's module on such a node; `settings` are those of the role."""

    def __init__(self, host: rpm_archive.Host, patch: pytest.MonkeyPatch, url: str) -> None:
        super().__init__()
        self.host, self.patch = host, patch
        self.settings: dict[str, Any] = {
            "source": "cuda", "flavor": "open", "branch": "580", "version": "580.95.05", "scope": "compute",
            "fabric_manager": "true", "hold": True, "hold_kernel": True, "kernel_header_packages": [],
            "load": False, "existing": "refuse", "precompiled": False, "repository_url": url,
            "http_proxy": "", "https_proxy": "", "no_proxy": "", "force_busy": False, "holders_ignored": [],
            "compat": COMPAT, "imex_nodes": [], "dkms_repository_url": "",
        }  # fmt: skip
        patch.setattr(nvidia_driver_packages, "ROOT", host.root)
        for module in (nvidia_driver_plan, nvidia_driver_packages):
            patch.setattr(module, "AnsibleModule", lambda *_, **__: self)
        real = nvidia_driver_packages.alone
        patch.setattr(nvidia_driver_packages, "alone", lambda name, s: real(name, s, host.root / "locks"))
        patch.setattr(os, "uname", lambda: os.uname_result(("Linux", "gpu01", OLD, "#1", "x86_64")))

    def run_command(self, argv: list[str], **options: Any) -> tuple[int, str, str]:
        return self.host.run(argv, **options)

    def plan(self, **settings: Any) -> Any:
        self.settings.update(settings)
        self.params = self.settings
        return nvidia_driver_plan.decide(self, self.host.root)  # type: ignore[arg-type]

    def install(self, plan: Any, *, check: bool = False) -> dict[str, Any]:
        """Does what the plan says, as the role's task."""
        made = {name: getattr(plan, name) for name in ("packages", "remove", "version", "stream", "warnings")}
        passed = ("source", "hold", "hold_kernel", "repository_url", "dkms_repository_url", "compat")
        self.params = {**made, **{name: self.settings[name] for name in passed}, "refresh": plan.refresh}
        self.params |= {"http_proxy": "", "https_proxy": "", "no_proxy": ""}
        self.check_mode = check
        result = result_of(nvidia_driver_packages.main)
        self.check_mode = False
        return result

    def apply(self, **settings: Any) -> dict[str, Any]:
        """Plans and installs; another plan has nothing to do."""
        plan = self.plan(**settings)
        assert (plan.problems, plan.transaction) == ([], True)
        done = self.install(plan)
        assert "failed" not in done, done
        assert done["changed"] is True
        again = self.plan()
        assert (again.problems, again.missing, again.remove, again.transaction) == ([], [], [], False)
        return done

    def upgradable(self, locks: str) -> list[str]:
        """What `dnf upgrade` would change with the versionlock plugin reading this list."""
        plugins = self.host.root / "plugins"
        plugins.mkdir(exist_ok=True)
        (self.host.root / locks).touch()
        (plugins / "versionlock.conf").write_text(f"[main]\nenabled=1\nlocklist={self.host.root}/{locks}\n")
        output = self.host.run(["dnf", f"--setopt=pluginconfpath={plugins}", "--assumeno", "upgrade"])[1]
        return sorted(parse_table(output, {}).changes)

    def versions(self, *names: str) -> set[str]:
        installed = self.host.rpms()
        return {installed.get(name, "") for name in names}

    @property
    def locks(self) -> list[str]:
        return (self.host.root / OURS).read_text().splitlines()


@pytest.fixture
def node(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    host = rpm_archive.Host(tmp_path / "root", [repository])
    host.have("kernel", "kernel-core", "kernel-devel", at=rpm_archive.KERNELS[0])
    build = host.root / f"lib/modules/{OLD}/build"
    build.mkdir(parents=True)
    (build / "Makefile").touch()
    return Node(host, monkeypatch, f"file://{repository}")


def test_a_driver_comes_and_goes_by_streams_and_everything_is_locked(node: Node) -> None:
    (node.host.root / OURS).write_text("# Added by the operator\nbash-0:5.1.8-9.el9.*\n")
    foretold = node.install(node.plan(), check=True)
    assert "nvidia-driver-cuda" not in node.host.rpms()
    first = node.apply()
    assert (foretold["changed"], foretold["changes"]) == (True, first["changes"])
    assert node.install(node.plan())["changed"] is False
    assert first["changes"]["nvidia-driver (stream)"] == ["", "580-open"]
    names = ("nvidia-driver-cuda", "kmod-nvidia-open-dkms", "nvidia-modprobe")
    # What requires nvidia-modprobe names no version, and a newer one is there.
    assert node.versions(*names) == {"3:580.95.05-1.el9"}
    assert node.versions("nvidia-fabricmanager", "libnvidia-nscq") == {"580.95.05-1"}
    assert node.locks[:2] == ["# Added by the operator", "bash-0:5.1.8-9.el9.*"]
    assert "nvidia-driver-cuda-3:580.95.05-1.el9.*" in node.locks
    assert f"kernel-core-0:{rpm_archive.KERNELS[0]}.*" in node.locks
    assert not any("dkms-0" in line or "versionlock" in line for line in node.locks)

    # The real plugin takes our lines: nothing that has a newer version would be upgraded.
    assert node.upgradable(OURS) == []
    assert "nvidia-driver-cuda" in node.upgradable("no-locks")

    node.apply(version="580.105.08")
    assert node.versions("nvidia-driver-cuda", "libnvidia-ml") == {"3:580.105.08-1.el9"}
    assert not any("580.95.05" in line for line in node.locks)

    back = node.apply(branch="570", version="")  # some of its parts have other names
    assert back["changes"]["nvidia-driver (stream)"] == ["580-open", "570-open"]
    assert node.versions("nvidia-driver-cuda", "kmod-nvidia-open-dkms") == {"3:570.148.08-1.el9"}
    assert node.versions("nvidia-fabric-manager", "libnvidia-nscq-570") == {"570.148.08-1"}
    assert node.versions("nvidia-fabricmanager", "libnvidia-nscq") == {""}

    node.apply(branch="580", version="580.95.05")
    assert node.versions("nvidia-fabric-manager", "libnvidia-nscq-570") == {""}
    assert node.locks[:2] == ["# Added by the operator", "bash-0:5.1.8-9.el9.*"]
    assert "bash" not in read_record(node.host.root)["held"]


@pytest.mark.drawn("drivers by dnf")
def test_flavours_and_precompiled_modules_replace_each_other(node: Node) -> None:
    node.apply()
    node.apply(flavor="proprietary")
    assert node.versions("kmod-nvidia-latest-dkms") == {"3:580.95.05-1.el9"}
    assert node.versions("kmod-nvidia-open-dkms") == {""}
    made = node.apply(precompiled=True)
    kmod = "kmod-nvidia-580.95.05-5.14.0-570.12.1"
    assert node.versions(kmod) == {"3:580.95.05-3.el9_6"}
    assert node.versions("kmod-nvidia-latest-dkms") == {""}
    assert made["changes"]["nvidia-driver (stream)"] == ["580-dkms", "580"]
    assert f"{kmod}-3:580.95.05-3.el9_6.*" in node.locks
    node.apply(precompiled=False, flavor="open", version="580.105.08")
    assert not any(name.startswith("kmod-nvidia-5") for name in node.host.rpms())


@pytest.mark.drawn("drivers by dnf")
def test_the_whole_driver_and_hold_false(node: Node) -> None:
    node.apply(scope="full")
    assert node.versions("nvidia-open", "nvidia-driver") == {"3:580.95.05-1.el9"}
    released = node.apply(hold=False)
    assert "nvidia-open" in released["released"]
    assert node.locks == []


@pytest.mark.drawn("drivers by dnf")
def test_a_kernel_without_precompiled_modules_is_said_with_the_kernel_that_has_them(node: Node) -> None:
    running = NEW
    node.patch.setattr(os, "uname", lambda: os.uname_result(("Linux", "gpu01", running, "#1", "x86_64")))
    node.host.run(["rpm", "-e", "kernel", "kernel-core", "kernel-devel"])
    node.host.have("kernel-core", at=rpm_archive.KERNELS[1])
    plan = node.plan(flavor="proprietary", precompiled=True)
    assert [problem["code"] for problem in plan.problems] == ["packages.not-offered"]
    assert f"dnf install kernel-{OLD}" in plan.problems[0]["remedy"]
    assert "precompiles" in node.plan(flavor="open").problems[0]["what"]


@pytest.mark.drawn("drivers by dnf")
def test_headers_come_for_the_newest_kernel_too(node: Node) -> None:
    node.host.have("kernel-core", at=rpm_archive.KERNELS[1])
    plan = node.plan()
    assert f"kernel-devel-{NEW}" in plan.packages
    node.install(plan)
    assert node.host.run(["rpm", "-q", f"kernel-devel-{NEW}"])[0] == 0


@pytest.mark.drawn("drivers by dnf")
def test_no_kernel_comes_along_with_dkms(node: Node) -> None:
    node.apply()
    kernels = node.host.run(["rpm", "-qa", "kernel-core", "kernel-devel-matched"])[1].splitlines()
    assert sorted(kernels) == [f"kernel-core-{OLD}", f"kernel-devel-matched-{OLD}"]


@pytest.mark.drawn("drivers by dnf")
def test_the_core_of_another_kernel_is_refused(node: Node) -> None:
    plan = node.plan()
    plan.packages.pop(f"kernel-devel-matched-{OLD}")  # what dkms requires, dnf then takes of the newest
    refused = node.install(plan)
    assert f"dnf would install kernel-core-{NEW}" in refused["msg"]
    assert "nvidia-driver-cuda" not in node.host.rpms()


def test_somebody_elses_lock_and_driver_are_refused(node: Node) -> None:
    node.apply()
    (node.host.root / OURS).write_text("nvidia-driver-cuda-3:580.95.05-1.el9.*\n")
    record = node.host.root / "var/lib/clusterctl/nvidia_driver.json"
    record.unlink()
    theirs = node.plan(version="580.105.08")
    assert ["clusterctl did not install" in one["what"] for one in theirs.problems] == [True, False]
    assert theirs.problems[1]["code"] == "packages.held"
    assert "dnf versionlock delete nvidia-driver-cuda" in theirs.problems[1]["remedy"]
    adopted = node.plan(existing="adopt")
    assert [one["code"] for one in adopted.problems] == ["packages.held"]
    (node.host.root / OURS).write_text("")
    assert node.plan().problems == []


@pytest.mark.drawn("drivers by dnf")
def test_a_stream_or_version_that_is_not_there_is_said(node: Node) -> None:
    missing = node.plan(branch="999", version="")
    assert "no stream nvidia-driver:999-open; it has 570" in missing.problems[0]["what"]
    version = node.plan(branch="580", version="580.1.1")
    assert "it has 570.148.08, 580.95.05, 580.105.08" in version.problems[0]["what"]


@pytest.mark.drawn("drivers by dnf")
def test_without_epel_the_remedy_names_it(node: Node, tmp_path: Path) -> None:
    plan = node.plan()
    file = node.host.root / "etc/yum.repos.d/site0.repo"
    file.write_text(file.read_text() + "excludepkgs=dkms\n")
    failed = node.install(plan)
    assert failed["failed"]
    assert "nvidia_driver_epel_url" in failed["msg"]
    assert "dnf install epel-release" in failed["msg"]


def test_a_source_of_dkms_that_is_to_be_added_counts_in_a_simulation(
    node: Node, repository: Path, tmp_path: Path
) -> None:
    plan = node.plan()
    (node.host.root / "etc/yum.repos.d/site0.repo").unlink()
    cuda, epel = tmp_path / "cuda", tmp_path / "epel"
    shutil.copytree(repository, cuda, ignore=shutil.ignore_patterns("dkms-*", "repodata"))
    shutil.copytree(repository, epel, ignore=lambda _, names: [n for n in names if not n.startswith("dkms-")])
    for one in (cuda, epel):
        subprocess.run(["createrepo_c", "--quiet", str(one)], check=True, timeout=60)
    node.settings["repository_url"] = f"file://{cuda}"
    plan.stream = ""  # these indexes have no module
    assert "nvidia_driver_epel_url" in node.install(plan, check=True)["msg"]
    node.settings["dkms_repository_url"] = f"file://{epel}"
    foretold = node.install(plan, check=True)
    assert foretold["changes"]["dkms"] == ["", "3.4.1-1.el9"]
    assert not list((node.host.root / "etc/yum.repos.d").iterdir())


def test_a_source_that_is_not_configured_yet_is_simulated_and_one_that_is_down_is_said(
    node: Node, repository: Path
) -> None:
    (node.host.root / "etc/yum.repos.d/site0.repo").unlink()
    plan = node.plan()
    assert plan.problems == []
    foretold = node.install(plan, check=True)
    assert foretold["changes"]["nvidia-driver-cuda"] == ["", "3:580.95.05-1.el9"]
    node.settings["repository_url"] = f"file://{repository}/nowhere"
    assert result_of(node.plan)["code"] == "packages.source-down"


@pytest.mark.drawn("drivers by dnf")
def test_a_transaction_that_was_interrupted_between_two_versions_is_completed(node: Node) -> None:
    node.apply()
    rpm = next(Path(node.settings["repository_url"][7:]).glob("libnvidia-ml-580.105.08*"))
    node.host.run(["rpm", "-i", "--nodeps", "--force", str(rpm)])
    assert len(node.host.run(["rpm", "-q", "libnvidia-ml"])[1].splitlines()) == 2
    node.apply(version="580.105.08")
    assert node.host.run(["rpm", "-q", "libnvidia-ml"])[1] == "libnvidia-ml-580.105.08-1.el9.x86_64\n"
