"""A second apply: nothing is started where nothing has changed, and no drift is overlooked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.rollout.drift.calls import CONTROLLER
from clusterctl.rollout.drift.records import load_record

from .inspecting import inspect

pytestmark = pytest.mark.lab

NODE = "gpu03"
REGISTRY = "registry01"
NOUVEAU = "/etc/modprobe.d/clusterctl-nouveau.conf"
WITHOUT_NVIDIA = (
    'import json; p="/etc/docker/daemon.json"; d=json.load(open(p)); d["runtimes"].pop("nvidia"); \
json.dump(d, open(p, "w"))'
)

# What an operator, a package or an accident may do, in this order, and the task that reports it.
DRIFTS = [
    (NODE, f"chmod 0600 {NOUVEAU}", "Disable nouveau"),
    (NODE, "sed -i 's|^URIs:.*|URIs: http://192.0.2.1/|' /etc/apt/sources.list.d/clusterctl-cuda.sources",
     "Add NVIDIA's repository"),
    (NODE, "rm /etc/apt/sources.list.d/clusterctl-container-toolkit.sources", "Add the toolkit's repository"),
    (NODE, "apt-mark unhold nvidia-persistenced", "Plan the driver of the node"),
    (NODE, "apt-mark unhold libnvidia-container1", "Install and hold the toolkit's packages"),
    (NODE, f"python3 -c '{WITHOUT_NVIDIA}'", "Merge NVIDIA's runtime into daemon.json"),
    (NODE, "systemctl disable docker.service", "enable and start Docker"),
    (NODE, "rm -f /var/run/cdi/nvidia.yaml", "Refresh the CDI specification"),
    (NODE, "sh -c 'echo more >> /etc/docker/certs.d/registry01:5000/ca.crt'", "Trust the registry"),
    (NODE, "systemctl stop nvidia-fabricmanager.service", "Run the installed driver"),
    (NODE, "docker image prune --all --force", "Ensure the training image is present"),
    (NODE, "systemctl stop docker.service docker.socket", "Gather Docker facts"),
    (NODE, "dpkg --remove --force-depends docker.io", "Install the Docker packages"),
    (REGISTRY, "rm /etc/systemd/system/docker-registry.service", "Mask the package's own service"),
    (REGISTRY, "systemctl stop clusterctl-registry-push.service", "Verify that the push listener"),
    (REGISTRY, "sh -c 'echo \"# mine\" >> /etc/systemd/system/clusterctl-registry.service'",
     "Configure and start the registry's listeners"),
]  # fmt: skip


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def recorded(applied_lab: Any) -> Any:
    """The applied lab, of each host of which an apply is recorded."""
    if len(lines(applied_lab.clusterctl("apply", "--yes", "--json"))[-1].get("probed", [])) < 4:
        applied_lab.done("apply", "--yes")
    return applied_lab


@pytest.fixture
def fixed(recorded: Any) -> Iterator[Any]:
    """The same for a test that makes hosts drift: they are fixed afterwards, also where it fails."""
    yield recorded
    recorded.done("apply", "--yes")


def test_where_nothing_has_changed_no_ansible_is_started_for_the_hosts(recorded):
    done = recorded.clusterctl("apply", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    *events, summary = lines(done)
    run = recorded.cluster / ".clusterctl/runs" / summary["run"]
    assert not (run / "ansible.log").exists()
    assert [e["type"] for e in events if e["type"] != "finding"] == ["host_looked"] * 4
    assert summary["probed"] == ["gpu01", "gpu02", "gpu03", REGISTRY]
    assert (summary["changed"], summary["failed"], summary["unreachable"], summary["exit"]) == (0, 0, 0, 0)
    assert all(one["ok"] > 10 for one in summary["hosts"].values())
    said = recorded.done("apply", "--yes")
    assert said.count("the drift probe repeated") == 4
    assert "nothing would change" in recorded.done("plan")


@pytest.mark.drawn("the site again")
def test_what_is_remembered_holds_no_secret_and_is_what_ansible_asks_again(recorded):
    directory = ClusterDirectory(recorded.cluster)
    before = {name: load_record(directory, name) for name in ("gpu01", REGISTRY)}
    secrets = [path.read_text().strip() for path in directory.secrets.iterdir() if path.stat().st_size]
    for path in (directory.state / "probe").glob("*.json"):
        assert path.stat().st_mode & 0o777 == 0o600
        assert [secret for secret in secrets if secret in path.read_text()] == []
    done = recorded.clusterctl("apply", "--yes", "--json", "--full", "--limit", f"gpu01,{REGISTRY}")
    assert done.returncode == 0, done.stderr
    assert "probed" not in lines(done)[-1]
    assert [line for line in lines(done) if line["type"] == "wave_started"]
    for name, record in before.items():
        again = load_record(directory, name)
        assert record is not None
        assert again is not None
        asked = [
            {
                (c.task, c.identity)
                for c in one.calls
                # What the controller is asked for the registry belongs to an apply that it is part of.
                if c.module != "node_preflight" and (name == REGISTRY or c.at != CONTROLLER)
            }
            for one in (record, again)
        ]
        assert asked[0] == asked[1]


@pytest.mark.drawn("the site again")
def test_no_drift_is_overlooked_and_the_next_apply_mends_all_of_it(fixed):
    assert set(inspect(fixed, (NODE, REGISTRY)).quiet) == {NODE, REGISTRY}
    missed = []
    for host, command, task in DRIFTS:
        fixed.ssh(host, f"sudo {command}")
        seen = inspect(fixed, (host,)).differing.get(host, ())
        if not [one for one in seen if task in one]:
            missed.append((command, seen))
    assert missed == []
    done = fixed.clusterctl("apply", "--yes", "--json", "--limit", f"{NODE},{REGISTRY},gpu02")
    assert done.returncode == 0, done.stderr
    summary = lines(done)[-1]
    assert summary["probed"] == ["gpu02"], "a host that did not drift is not taken along"
    assert all(summary["hosts"][name]["changed"] for name in (NODE, REGISTRY))
    assert set(inspect(fixed, (NODE, REGISTRY)).quiet) == {NODE, REGISTRY}


@pytest.mark.drawn("the site again")
def test_another_setting_takes_every_host_the_whole_road(recorded):
    settings = recorded.cluster / "group_vars/all.yml"
    before = settings.read_text(encoding="utf-8")
    settings.write_text(before + "site_no_proxy: nowhere.invalid\n", encoding="utf-8")
    try:
        done = recorded.clusterctl("plan", "--json", "--limit", NODE)
    finally:
        settings.write_text(before, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert [line for line in lines(done) if line["type"] == "wave_started"]


@pytest.mark.drawn("the site again")
def test_a_node_that_computes_is_left_alone_although_nothing_has_changed(recorded):
    hold = "exec 3</dev/nvidia0; exec sleep 900"
    recorded.ssh(NODE, f"sudo systemd-run --unit=job sh -c '{hold}'")
    try:
        done = recorded.clusterctl("apply", "--yes", "--json")
    finally:
        recorded.ssh(NODE, "sudo systemctl stop job")
    assert done.returncode == 3, done.stderr
    assert f"{NODE}: skipped, busy: " in done.stderr
    assert lines(done)[-1]["probed"] == ["gpu01", "gpu02", REGISTRY]
