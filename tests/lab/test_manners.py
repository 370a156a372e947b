"""Manners on other people's servers: nothing unasked, and every road in that sites have."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from .conftest import RunningLab, json_lines

pytestmark = pytest.mark.lab


# --- a busy node ------------------------------------------------------------------------------------


@pytest.fixture
def busy_gpu02(applied_lab: RunningLab) -> Iterator[RunningLab]:
    """Somebody's job holds a GPU of gpu02."""
    applied_lab.ssh("gpu02", "sudo systemd-run --quiet --unit=somebody sh -c 'exec sleep 900 3</dev/nvidia0'")
    yield applied_lab
    applied_lab.ssh("gpu02", "sudo systemctl stop somebody")


@pytest.mark.drawn("nodes left out")
def test_heavy_checks_leave_a_busy_node_alone_and_the_verdict_is_incomplete(busy_gpu02: RunningLab) -> None:
    done = busy_gpu02.clusterctl("validate", "--json")
    document = json_lines(done)[-1]
    assert done.returncode == 3, done.stderr
    assert document["verdict"] == "incomplete"
    left_out = [r for r in document["results"] if r["verdict"] == "not_run"]
    assert left_out
    assert any("busy" in json.dumps(r) for r in left_out)
    assert busy_gpu02.ssh("gpu02", "systemctl is-active somebody") == "active"


# --- quarantine -------------------------------------------------------------------------------------


@pytest.mark.drawn("nodes left out")
def test_a_quarantined_node_is_out_visibly_until_it_is_released(applied_lab: RunningLab) -> None:
    lab = applied_lab
    lab.done("hosts", "quarantine", "gpu03", "--reason", "fan 2 is loud")
    try:
        listed = {row["host"]: row for row in json_lines(lab.clusterctl("hosts", "list", "--json"))}
        assert "fan 2 is loud" in json.dumps(listed["gpu03"])
        applied = lab.clusterctl("apply", "--only", "registry", "--yes", "--json")
        assert applied.returncode == 0, applied.stderr
        assert "gpu03" not in json_lines(applied)[-1]["hosts"]
        assert "fan 2 is loud" in applied.stderr
        done = lab.clusterctl("validate", "--json")
        document = json_lines(done)[-1]
        assert done.returncode == 0, done.stderr
        assert document["coverage"]["excluded"] > 0
        assert document["coverage"]["not_run"] == 0
        out = [r for r in document["results"] if r["subject"]["node"] == "gpu03"]
        assert {r["verdict"] for r in out} == {"excluded"}
    finally:
        lab.done("hosts", "release", "gpu03")
    back = json_lines(lab.clusterctl("hosts", "list", "--json"))
    assert "fan 2 is loud" not in json.dumps(back)


# --- another host key -------------------------------------------------------------------------------


def end_logins(lab: RunningLab, node: str) -> None:
    """A connection that was opened before the key changed would continue: end all that are open."""
    kill = 'for p in /proc/[0-9]*; do grep -qa "^sshd: ops" $p/cmdline && kill ${p#/proc/}; done; true'
    subprocess.run(["docker", "exec", lab.container(node), "sh", "-c", kill], check=True, timeout=30)


@pytest.mark.drawn("other people's hosts")
def test_another_host_key_is_refused_with_both_fingerprints_until_replaced(applied_lab: RunningLab) -> None:
    lab = applied_lab
    key = "/etc/ssh/ssh_host_ed25519_key"
    made_anew = f"rm {key}* && ssh-keygen -q -t ed25519 -N '' -f {key} && systemctl restart ssh"
    old = lab.ssh("gpu03", f"ssh-keygen -lf {key}.pub").split()[1]
    lab.ssh("gpu03", f"sudo sh -c {shlex.quote(made_anew)}")
    end_logins(lab, "gpu03")
    try:
        refused = lab.clusterctl("hosts", "scan", "--limit", "gpu03", "--yes")
        applied = lab.clusterctl("apply", "--only", "registry", "--limit", "gpu03", "--yes")
    finally:
        lab.done("hosts", "replace", "gpu03", "--yes")
    assert refused.returncode == 1
    assert applied.returncode == 1
    new = lab.ssh("gpu03", f"ssh-keygen -lf {key}.pub").split()[1]
    assert new != old
    assert old in refused.stdout + refused.stderr
    assert new in refused.stdout + refused.stderr
    assert lab.clusterctl("hosts", "scan", "--limit", "gpu03").returncode == 0


# --- what an operator put there ---------------------------------------------------------------------


@pytest.mark.drawn("other people's hosts")
def test_what_an_operator_put_on_a_node_stays(applied_lab: RunningLab) -> None:
    lab = applied_lab
    daemon = json.loads(lab.ssh("gpu03", "sudo cat /etc/docker/daemon.json"))
    theirs = {"log-opts": {"max-size": "17m"}, "labels": ["rack=7"], "debug": False}
    lab.ssh(
        "gpu03",
        f"echo '{json.dumps({**theirs, 'runtimes': {'their': {'path': '/bin/true'}}})}'"
        " | sudo tee /etc/docker/daemon.json",
    )
    lab.ssh(
        "gpu03",
        "sudo apt-mark hold sudo; echo 'vm.swappiness=3' | sudo tee /etc/sysctl.d/x.conf;"
        " printf 'Package: curl\\nPin: version 1*\\nPin-Priority: 1\\n'"
        " | sudo tee /etc/apt/preferences.d/theirs",
    )
    try:
        lab.done("apply", "--only", "driver,runtime,registry", "--limit", "gpu03", "--yes")
        merged = json.loads(lab.ssh("gpu03", "sudo cat /etc/docker/daemon.json"))
        for key, value in theirs.items():
            assert merged[key] == value
        assert merged["runtimes"]["their"] == {"path": "/bin/true"}
        assert merged["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
        assert lab.ssh("gpu03", "ls /etc/docker/daemon.json.*")
        held = lab.ssh("gpu03", "apt-mark showhold").split()
        assert "sudo" in held
        assert lab.ssh("gpu03", "cat /etc/apt/preferences.d/theirs").startswith("Package: curl")
        assert lab.ssh("gpu03", "cat /etc/sysctl.d/x.conf") == "vm.swappiness=3"
    finally:
        ours = "/etc/apt/preferences.d/theirs /etc/sysctl.d/x.conf"
        lab.ssh("gpu03", f"sudo apt-mark unhold sudo; sudo rm -f {ours}")
        lab.ssh(
            "gpu03",
            f"echo '{json.dumps(daemon)}' | sudo tee /etc/docker/daemon.json && sudo systemctl reload docker",
        )
        lab.done("apply", "--only", "runtime,registry", "--limit", "gpu03", "--yes")
