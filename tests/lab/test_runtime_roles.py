"""The runtime on other people's hosts: Docker options and containers stay; GPUs and images are there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import RunningLab

pytestmark = pytest.mark.lab

NODE = "gpu03"
DAEMON_JSON = "/etc/docker/daemon.json"


def settings(lab: RunningLab) -> dict[str, Any]:
    """The lab's settings for all hosts."""
    found: dict[str, Any] = {}
    for path in sorted((lab.cluster / "group_vars").glob("all*")):
        found |= yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return found


def image(lab: RunningLab) -> str:
    """The training image as nodes name it."""
    return f"registry01:5000/library/paddle@{settings(lab)['training_image_digest']}"


def runtime(lab: RunningLab, **options: Any) -> dict[str, Any]:
    """The runtime applied to one node by plain Ansible: how many tasks changed, and what was said."""
    playbook = Path(__file__).resolve().parents[2] / "playbooks/runtime.yml"
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(lab.cluster / "hosts.yml"), "--limit", NODE,
         "-e", json.dumps(options), str(playbook)],
        cwd=playbook.parents[1], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    recap = next(line for line in done.stdout.splitlines() if line.startswith(NODE) and "changed=" in line)
    said = " ".join((done.stdout + done.stderr).split())
    return {"changed": int(recap.split("changed=")[1].split()[0]), "said": said}


@pytest.fixture
def daemon_json(applied_lab: RunningLab) -> Iterator[RunningLab]:
    """A node with an operator's option in daemon.json; put back, with Docker restarted, afterwards."""
    before = applied_lab.ssh(NODE, f"sudo cat {DAEMON_JSON}")
    theirs = {**json.loads(before), "insecure-registries": ["old.site:5000"], "max-concurrent-uploads": 2}
    put(applied_lab, json.dumps(theirs))
    yield applied_lab
    applied_lab.ssh(NODE, "sudo docker rm -f job", check=False)
    put(applied_lab, before)
    applied_lab.ssh(NODE, "sudo systemctl restart docker")


def put(lab: RunningLab, content: str) -> None:
    """Write daemon.json as an operator would."""
    lab.ssh(NODE, f"echo '{content}' | sudo tee {DAEMON_JSON} >/dev/null && sudo systemctl reload docker")


@pytest.mark.parametrize("node", ["gpu01", "gpu02", "gpu03"])
def test_a_container_sees_all_gpus(applied_lab: RunningLab, node: str) -> None:
    listed = applied_lab.ssh(node, f"sudo docker run --rm --gpus all {image(applied_lab)} nvidia-smi -L")
    assert len([line for line in listed.splitlines() if line.startswith("GPU ")]) == 8


@pytest.mark.drawn("other people's hosts")
def test_an_operators_options_and_containers_stay(daemon_json: RunningLab) -> None:
    lab = daemon_json
    lab.ssh(NODE, f"sudo docker run -d --name job {image(lab)} sleep 600")
    daemon = "systemctl show docker --property=MainPID --value"
    pid = lab.ssh(NODE, daemon)
    # A log driver needs a restart, which would stop the job: it is left out and said.
    busy = runtime(lab, container_runtime_daemon_options={"log-driver": "journald"})
    assert "would stop a container that runs" in busy["said"]
    assert lab.ssh(NODE, daemon) == pid
    assert lab.ssh(NODE, "sudo docker ps --format '{{.Names}}'") == "job"
    merged = json.loads(lab.ssh(NODE, f"sudo cat {DAEMON_JSON}"))
    assert merged["insecure-registries"] == ["old.site:5000"]
    assert merged["max-concurrent-uploads"] == 2
    assert merged["runtimes"]["nvidia"]
    assert "log-driver" not in merged, "the file says it when Docker restarts, not at some later boot"
    # When the job is done, the next run makes up for it.
    lab.ssh(NODE, "sudo docker rm -f job")
    assert runtime(lab, container_runtime_daemon_options={"log-driver": "journald"})["changed"] == 1
    assert lab.ssh(NODE, daemon) != pid
    assert lab.ssh(NODE, "sudo docker info --format '{{.LoggingDriver}}'") == "journald"
    assert runtime(lab, container_runtime_daemon_options={"log-driver": "journald"})["changed"] == 0


@pytest.mark.drawn("other people's hosts")
def test_a_refresh_of_cdi_that_failed_half_way_through_a_change_is_mended(applied_lab: RunningLab) -> None:
    unit, program = "nvidia-cdi-refresh.service", "/usr/bin/nvidia-ctk"
    applied_lab.ssh(
        NODE,
        f"sudo mv {program} {program}.away; sudo systemctl start {unit}; sudo mv {program}.away {program}",
        check=False,
    )
    assert applied_lab.ssh(NODE, f"systemctl is-active {unit}", check=False) == "failed"
    assert runtime(applied_lab)["changed"] == 1
    assert applied_lab.ssh(NODE, f"systemctl is-active {unit}", check=False) == "inactive"
    assert runtime(applied_lab)["changed"] == 0


def test_nothing_can_be_written_to_the_registry_from_the_network(applied_lab: RunningLab) -> None:
    reference = f"docker://registry01:5000/library/paddle@{settings(applied_lab)['training_image_digest']}"
    copied = applied_lab.ssh(
        "registry01",
        f"skopeo copy -q {reference} docker://registry01:5000/intruder/paddle:1 2>&1; "
        "skopeo inspect docker://registry01:5000/intruder/paddle:1 >/dev/null 2>&1 || echo not there",
        check=False,
    )
    assert copied.endswith("not there")


def test_the_registrys_secrets_are_roots_alone(applied_lab: RunningLab) -> None:
    modes = applied_lab.ssh(
        "registry01", "sudo find /etc/clusterctl/registry -type f ! -name '*.yml' -printf '%m %u\\n'"
    )
    assert set(modes.splitlines()) == {"600 root"}
    copied = applied_lab.ssh(
        "registry01", "sudo find /run/clusterctl-registry-secrets -mindepth 1 -printf '%m %u %g %P\\n' | sort"
    )
    assert copied.splitlines() == [
        "440 root docker-registry clusterctl-registry-push/htpasswd",
        "440 root docker-registry clusterctl-registry/tls.crt",
        "440 root docker-registry clusterctl-registry/tls.key",
        "750 root docker-registry clusterctl-registry",
        "750 root docker-registry clusterctl-registry-push",
    ]
    kept = applied_lab.cluster / ".clusterctl/secrets"
    assert {path.stat().st_mode & 0o077 for path in kept.iterdir() if path.name != ".lock"} == {0}
