"""The personality of Rocky 9: driver, toolkit and Docker CE by real dnf, other branches, a verdict."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import RunningLab, bring_up, json_lines, must_be_good
from .test_runtime_roles import image
from .validating import validated

pytestmark = [pytest.mark.lab, pytest.mark.drawn("personalities", "rocky9"), pytest.mark.timeout(2400)]

# From the middle of the driver's packages on; there is no pkill on the host.
KILL_DNF = """
until [ -e /usr/bin/nvidia-modprobe ]; do sleep 0.02; done
for process in /proc/[0-9]*; do
    ! tr '\\0' ' ' <$process/cmdline 2>/dev/null | grep -q '[d]nf .*shell' || kill -9 ${process#/proc/}
done
"""
VERSION, OTHER_BRANCH = "580.95.05", "570.148.08"


@pytest.fixture(scope="module")
def rocky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab of its own with one Rocky 9 node, bare; the registry's host is a Debian."""
    directory: Path = tmp_path_factory.mktemp("rocky") / "lab"
    yield from bring_up(directory, "--nodes", "1", "--os", "rocky9")


def applied(lab: RunningLab, *options: str) -> dict[str, Any]:
    """The summary of an apply that succeeded."""
    done = lab.clusterctl("apply", "--yes", "--json", *options)
    must_be_good(done)
    return json_lines(done)[-1]


def drivers(lab: RunningLab) -> dict[str, str]:
    """The versions that rpm, the kernel, nvidia-smi and Fabric Manager say."""
    programs = {
        "rpm": "rpm -q --qf '%{VERSION}' nvidia-driver-cuda",
        "kernel": "cat /sys/module/nvidia/version",
        "nvidia-smi": "nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u",
        "fabric_manager": "nv-fabricmanager --version | grep -o '[0-9.]*$'",
        "stream": "sed -n 's/^stream *= *//p' /etc/dnf/modules.d/nvidia-driver.module",
    }
    return {name: lab.ssh("gpu01", f"sudo {command}") for name, command in programs.items()}


def test_it_is_a_rocky_to_everything_that_asks(rocky: RunningLab) -> None:
    assert (
        rocky.ssh("gpu01", ". /etc/os-release; echo $ID $VERSION_ID $PLATFORM_ID") == "rocky 9.6 platform:el9"
    )
    assert rocky.ssh("gpu01", "uname -r") == "5.14.0-570.12.1.el9_6.x86_64"
    assert rocky.ssh("gpu01", "rpm -q --qf '%{VENDOR}' kernel-core") == "Rocky Enterprise Software Foundation"
    assert rocky.ssh("gpu01", "command -v apt-get dpkg dpkg-query update-ca-certificates", check=False) == ""
    assert (
        rocky.ssh("gpu01", "ls -d /etc/apt /var/lib/dpkg /etc/debian_version 2>/dev/null", check=False) == ""
    )
    assert "nvidia-driver" not in rocky.ssh("gpu01", "sudo dnf -q module list", check=False)
    assert rocky.ssh("registry01", ". /etc/os-release; echo $ID $VERSION_ID") == "debian 12"


def test_a_transaction_that_is_killed_is_completed_by_the_next_apply(rocky: RunningLab) -> None:
    rocky.done("preflight")
    with subprocess.Popen(["docker", "exec", rocky.container("gpu01"), "sh", "-c", KILL_DNF]) as killer:
        failed = rocky.clusterctl("apply", "--yes")
        assert killer.wait(timeout=10) == 0
    assert failed.returncode == 1
    assert "dnf ended with -9" in " ".join(failed.stderr.split())
    half = rocky.ssh("gpu01", "rpm -q nvidia-modprobe nvidia-driver-cuda", check=False)
    assert "nvidia-modprobe-580.95.05" in half
    assert "nvidia-driver-cuda is not installed" in half
    assert applied(rocky)["changed"] > 0
    assert set(drivers(rocky).values()) == {VERSION, "580-open"}
    assert applied(rocky)["changed"] == 0


def test_driver_toolkit_and_docker_come_by_dnf_and_other_branches_too(rocky: RunningLab) -> None:
    applied(rocky)
    expected = {"rpm": VERSION, "kernel": VERSION, "nvidia-smi": VERSION, "fabric_manager": VERSION}
    assert drivers(rocky) == {**expected, "stream": "580-open"}
    listed = rocky.ssh("gpu01", f"sudo docker run --rm --gpus all {image(rocky)} nvidia-smi -L")
    assert [line.split(":")[0] for line in listed.splitlines()] == [f"GPU {index}" for index in range(8)]
    locked = rocky.ssh("gpu01", "sudo dnf -q versionlock list")
    for name in ("nvidia-driver-cuda-3:580.95.05", "docker-ce-3:", "kernel-core-0:5.14.0-570.12.1"):
        assert name in locked
    assert (
        rocky.ssh("gpu01", "sudo dnf -q --refresh check-update") == ""
    )  # newer drivers and kernels are there
    assert applied(rocky, "--full")["changed"] == 0

    version = f"nvidia_driver_version: {VERSION}\n"
    settings = rocky.cluster / "group_vars/all.yml"
    before = settings.read_text()
    settings.write_text(
        before.replace(version, f"nvidia_driver_version: {OTHER_BRANCH}\n").replace("'580'", "'570'")
    )
    assert applied(rocky, "--only", "driver")["changed"] > 0
    assert drivers(rocky) == {**dict.fromkeys(expected, OTHER_BRANCH), "stream": "570-open"}
    settings.write_text(before)
    assert applied(rocky)["changed"] > 0
    assert drivers(rocky) == {**expected, "stream": "580-open"}
    assert applied(rocky, "--full")["changed"] == 0
    code, document = validated(rocky)
    assert (code, document["verdict"], document["simulated"]) == (0, "pass", True)
    assert document["coverage"]["not_run"] == 0
