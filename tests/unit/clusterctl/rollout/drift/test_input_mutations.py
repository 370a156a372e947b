"""A thousand changed inputs: no host is ever reported as unchanged; with the old inputs all are again."""

from __future__ import annotations

import copy
import random
from types import SimpleNamespace as Bare

import pytest
from tests.support.drift_answers import read_recorded
from tests.support.json_changes import mutated, places

from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import from_listing
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.drift.calls import CONTROLLER
from clusterctl.rollout.drift.inputs import digest_inputs, digest_with_secrets
from clusterctl.rollout.drift.probe import DriftProbe
from clusterctl.rollout.drift.records import DriftRecord, save_record

RECORDED = read_recorded()
SEED, TIMES = 20261123, 1500
SETTINGS = {
    "ansible_user": "ops",
    "ansible_ssh_common_args": "-o UserKnownHostsFile={{ inventory_dir }}/.clusterctl/known_hosts",
    "cluster_name": "lab",
    "container_runtime_daemon_options": {"log-opts": {"max-size": "10m"}, "live-restore": True},
    "nvidia_driver_branch": "580",
    "nvidia_driver_reboot": False,
    "registry_client_ca_file": "{{ inventory_dir }}/site.pem",
    "registry_client_mirrors": [{"upstream": "docker.io", "url": "https://registry01:5000/hub"}],
    "site_no_proxy": "{{ groups['all'] | map('extract', hostvars, 'ansible_host') | join(',') }}",
    "training_image": {"name": "library/paddle", "tag": "3.0", "pull": None},
}
LISTING = {
    "_meta": {
        "hostvars": {
            "gpu01": {**SETTINGS, "ansible_host": "10.0.0.11", "hardware_gpu_count": 8},
            "gpu02": {**SETTINGS, "ansible_host": "10.0.0.12", "hardware_gpu_count": 8},
            "registry01": {**SETTINGS, "ansible_host": "10.0.0.9", "registry_port": 5000},
        }
    },
    "all": {"children": ["gpu_nodes", "registry", "ungrouped"]},
    "gpu_nodes": {"hosts": ["gpu01", "gpu02"]},
    "registry": {"hosts": ["registry01"]},
}
FILES = {
    "hosts.yml": "all: {}\n",
    "group_vars/all.yml": "cluster_name: lab\n",
    "host_vars/gpu01.yml": "hardware_gpu_count: 8\n",
    "clusterctl.lock": "driver: 580\n",
    "site.pem": "an authority\n",
    ".clusterctl/ca/ca.crt": "our authority\n",
    ".clusterctl/secrets/registry-push.htpasswd": "push:x\n",
}
EXTRA = {"nvidia_driver_reboot": True, "training_image_digest": "sha256:0"}


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A cluster directory in which two hosts are recorded, and are as they were."""
    answers = {host: one.answers[""] for host, one in RECORDED.items()}
    controller = {
        key: one for recorded in RECORDED.values() for key, one in recorded.answers[CONTROLLER].items()
    }
    monkeypatch.setattr(DriftProbe, "_replay", lambda *_: (controller, answers))
    monkeypatch.setattr("clusterctl.rollout.drift.probe.note", lambda *_: None)
    directory = ClusterDirectory(tmp_path)
    directory.ensure_state()
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    inputs = digest_with_secrets(digest_inputs(from_listing(directory, LISTING), EXTRA), directory)
    for host, one in RECORDED.items():
        save_record(directory, DriftRecord(host, "run", inputs, one.record.calls, one.record.answers))
    return directory


def quiet(directory, listing=LISTING, extra=EXTRA):
    """The hosts that are reported as unchanged; none if such an inventory is refused."""
    try:
        inventory = from_listing(directory, listing)
    except ClusterctlError:
        return set()
    chosen = Bare(directory=directory, inventory=inventory, names=tuple(RECORDED), hosts=inventory.hosts)
    session = Bare(directory=directory, extra_vars=extra)
    probe = DriftProbe(session, chosen, Passwords(), digest_inputs(inventory, extra), True, False)
    return set(probe.inspect().quiet)


def test_with_the_same_inputs_every_host_is_unchanged(directory):
    assert quiet(directory) == set(RECORDED)
    assert quiet(directory, copy.deepcopy(LISTING)) == set(RECORDED)


def test_a_changed_setting_of_any_host_is_never_quiet(directory):
    chosen, missed = random.Random(SEED), []  # noqa: S311 - a choice that can be repeated
    everywhere = [("_meta", *place) for place in places(LISTING["_meta"]) if len(place) > 2]
    for _ in range(TIMES):
        place = chosen.choice(everywhere)
        if quiet(directory, mutated(LISTING, place, chosen)):
            missed.append(place)
    assert missed == []
    assert quiet(directory) == set(RECORDED)


def test_a_setting_that_is_new_gone_or_of_another_host_is_never_quiet(directory):
    for host in LISTING["_meta"]["hostvars"]:
        for name, value in SETTINGS.items():
            other = copy.deepcopy(LISTING)
            other["_meta"]["hostvars"][host].pop(name)
            assert not quiet(directory, other), (host, name)
            other["_meta"]["hostvars"][host][f"{name}_x"] = value
            assert not quiet(directory, other), (host, name)


@pytest.mark.parametrize(
    "groups",
    [
        {"gpu_nodes": {"hosts": ["gpu02", "gpu01"]}},
        {"gpu_nodes": {"hosts": ["gpu01"]}},
        {"registry": {"hosts": ["registry01", "gpu02"]}},
        {"login": {"hosts": ["gpu02"]}},
        {"all": {"children": ["registry", "gpu_nodes", "ungrouped"]}},
    ],
    ids=["order", "one-less", "one-more", "new-group", "order-of-groups"],
)
def test_other_groups_are_never_quiet(directory, groups):
    assert not quiet(directory, {**LISTING, **groups})


@pytest.mark.parametrize(
    "extra", [{}, {**EXTRA, "x": 1}, {**EXTRA, "nvidia_driver_reboot": False}, {"x": EXTRA}]
)
def test_other_flags_are_never_quiet(directory, extra):
    assert not quiet(directory, extra=extra)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_edited_or_gone_is_never_quiet(directory, name):
    path = directory.root / name
    for text in ("x", "", FILES[name] + " ", FILES[name].upper()):
        path.write_text(text)
        assert not quiet(directory), text
    path.unlink()
    assert not quiet(directory)
    path.write_text(FILES[name])
    assert quiet(directory) == set(RECORDED)


@pytest.mark.parametrize(
    "name", ["group_vars/gpu_nodes/x.yml", "host_vars/gpu02", ".clusterctl/secrets/robots/x"]
)
def test_a_new_file_is_never_quiet(directory, name):
    path = directory.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x: 1\n")
    assert not quiet(directory)
