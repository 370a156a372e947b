"""The driver changes on a node that is in use, is rebooted, goes back, and crosses a branch."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from . import site_proxy

pytestmark = pytest.mark.lab

NODE = "gpu03"
OLD, NEW, OTHER_BRANCH = "580.95.05", "580.105.08", "570.148.08"


@dataclass(frozen=True)
class Played:
    """How a play went on the node."""

    code: int
    changed: int
    printed: str


@dataclass(frozen=True)
class DriverNode:
    """One node of the lab, and the driver's playbook on it."""

    lab: Any
    root: Path

    def play(self, *options: str) -> Played:
        """Plain ansible-playbook: these are the role's manners, not clusterctl's."""
        argv = [
            str(Path(sys.executable).with_name("ansible-playbook")),
            "-i",
            str(self.lab.cluster / "hosts.yml"),
            "playbooks/driver.yml",
            "--limit",
            NODE,
            *options,
        ]
        done = subprocess.run(argv, cwd=self.root, capture_output=True, text=True, timeout=600, check=False)
        printed = " ".join((done.stdout + done.stderr).split())
        changed = re.search(rf"{NODE} : .*?changed=(\d+)", printed)
        return Played(done.returncode, int(changed.group(1)) if changed else -1, printed)

    def set_version(self, version: str, *options: str) -> Played:
        """Plays the playbook with one driver version."""
        branch = version.split(".", maxsplit=1)[0]
        wanted = ("-e", f"nvidia_driver_version={version}", "-e", f"nvidia_driver_branch={branch}")
        return self.play(*wanted, *options)

    def ssh(self, command: str) -> str:
        """What a command prints on the node."""
        return self.lab.ssh(NODE, command)

    def running(self) -> set[str]:
        """The versions that the module, nvidia-smi and Fabric Manager say of themselves."""
        said = self.ssh(
            "sudo grep -o 'x86_64  [0-9.]*' /proc/driver/nvidia/version; "
            "sudo nvidia-smi --query-gpu=driver_version --format=csv,noheader; nv-fabricmanager --version"
        )
        return set(re.findall(r"\d{3}\.\d+\.\d+", said))


@pytest.fixture
def node(applied_lab: Any, repository: Path) -> Iterator[DriverNode]:
    """The node with the old driver, before and after."""
    found = DriverNode(applied_lab, repository)
    yield found
    found.set_version(OLD, "-e", "nvidia_driver_force_busy=true", "-e", "nvidia_driver_reboot=true")
    assert found.running() == {OLD}


@pytest.mark.drawn("packages and images")
def test_a_job_is_left_alone_and_a_module_in_use_asks_for_a_reboot(node: DriverNode) -> None:
    hold = "exec 3</dev/nvidia0; exec sleep 900"
    node.ssh(f"sudo systemd-run --unit=job sh -c '{hold}'")

    left_alone = node.set_version(NEW)
    assert (left_alone.code, left_alone.changed) == (0, 0)
    assert node.running() == {OLD}

    refused = node.set_version(NEW, "-e", "nvidia_driver_force_busy=true")
    assert refused.code != 0
    assert f"{NODE} needs a reboot: the kernel runs {OLD}; the GPUs are in use by sleep" in refused.printed
    assert node.ssh("systemctl is-active nvidia-fabricmanager") == "active"

    boot = node.ssh("cat /proc/sys/kernel/random/boot_id")
    rebooted = node.set_version(NEW, "-e", "nvidia_driver_force_busy=true", "-e", "nvidia_driver_reboot=true")
    assert rebooted.code == 0, rebooted.printed[-3000:]
    assert node.running() == {NEW}
    assert node.ssh("cat /proc/sys/kernel/random/boot_id") != boot

    assert node.set_version(NEW).changed == 0


@pytest.mark.drawn("packages and images")
def test_a_mirror_behind_the_sites_proxy_serves_the_driver(node: DriverNode) -> None:
    mirror = ("-e", "nvidia_driver_repository_url=http://cuda.mirror.invalid/cuda/repos")
    site = ("-e", f"site_http_proxy={site_proxy.URL}", "-e", "site_no_proxy=depot")
    with site_proxy.site_proxy(node.lab):
        directly = node.set_version(OLD, *mirror)
        played = node.set_version(NEW, *mirror, *site)
    assert directly.code != 0
    assert "cuda.mirror.invalid" in directly.printed
    assert played.code == 0, played.printed[-3000:]
    assert node.running() == {NEW}
    assert "cuda.mirror.invalid" in node.ssh("cat /etc/apt/sources.list.d/clusterctl-cuda.sources")


@pytest.mark.slow
def test_up_down_and_across_a_branch_without_a_reboot_and_all_held(node: DriverNode) -> None:
    boot = node.ssh("cat /proc/sys/kernel/random/boot_id")
    for version in (NEW, OLD, OTHER_BRANCH, NEW):
        played = node.set_version(version)
        assert played.code == 0, played.printed[-3000:]
        assert node.running() == {version}
        installed = node.ssh("dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'")
        driver = [line.split() for line in installed.splitlines() if re.search(r" \d{3}\.\d+\.\d+-1$", line)]
        present = [words for words in driver if words[0] in ("ii", "hi")]
        assert {words[2] for words in present} == {f"{version}-1"}
        assert {words[0] for words in present} == {"hi"}
        assert node.set_version(version).changed == 0
    assert node.ssh("cat /proc/sys/kernel/random/boot_id") == boot
