"""The inputs that decide what an apply asks: a change of any of them voids the records."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Bare

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.drift import inputs
from clusterctl.rollout.drift.call_log import CallLog
from clusterctl.rollout.drift.inputs import digest_inputs, digest_with_secrets, find_obstacles
from clusterctl.rollout.drift.probe import DriftProbe
from clusterctl.rollout.drift.records import load_record

from .drift_stage import two_hosts


@pytest.fixture
def inventory(tmp_path):
    return two_hosts(tmp_path)


def test_a_setting_of_any_host_a_flag_a_lock_and_a_secret_decide(inventory):
    first = digest_inputs(inventory, {})
    assert first == digest_inputs(inventory, {})
    other = replace(inventory.hosts[1], variables={"nvidia_driver_branch": "570"})
    assert digest_inputs(replace(inventory, hosts=(inventory.hosts[0], other)), {}) != first
    assert digest_inputs(replace(inventory, hosts=inventory.hosts[:1]), {}) != first
    assert digest_inputs(inventory, {"nvidia_driver_reboot": True}) != first
    (inventory.directory.root / "clusterctl.lock").write_text("driver: 580\n")
    assert digest_inputs(inventory, {}) != first
    before = digest_with_secrets(first, inventory.directory)
    (inventory.directory.secrets / "registry-pull.password").write_text("x")
    assert digest_with_secrets(first, inventory.directory) != before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("site_http_proxy", "{{ lookup('env', 'http_proxy') }}"),
        ("cluster_name", ["{{ now() }}"]),
        ("site_no_proxy", "{{ '/etc/site' is exists }}"),
        ("site_no_proxy", "{{ '%Y' | strftime }}"),
        ("ansible_connection", "local"),
        ("ansible_become_method", "su"),
        ("ansible_become_password", "x"),
        ("registry_controller_dir", "/srv/keys"),
    ],
)
def test_a_host_whose_settings_no_digest_covers_is_not_recorded(inventory, name, value):
    assert find_obstacles(inventory.hosts, inventory) == {}
    odd = replace(inventory.hosts[0], variables={name: value})
    found = find_obstacles((odd,), replace(inventory, hosts=(odd, inventory.hosts[1])))
    assert name in found["gpu01"]


@pytest.fixture
def content(tmp_path, monkeypatch):
    """A content root of a few files, read anew each time."""
    root = tmp_path / "content"
    for path in CONTENT_FILES:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("before")
    monkeypatch.setattr(inputs, "content_root", lambda: root)
    monkeypatch.setattr(inputs, "code_version", inputs.code_version.__wrapped__)
    return root


CONTENT_FILES = [
    "ansible.cfg",
    "playbooks/site.yml",
    "playbooks/group_vars/all",
    "roles/x/tasks/main.yml",
    "roles/x/templates/unit.service",
    "roles/harbor/files/harbor-compose",
    "roles/x/files/key.asc",
    "plugins/modules/m.py",
    "plugins/filter/f.py",
]


@pytest.mark.parametrize("path", CONTENT_FILES)
def test_every_file_that_a_role_may_read_decides(inventory, content, path):
    first = digest_inputs(inventory, {})
    assert digest_inputs(inventory, {}) == first
    (content / path).write_text("after")
    assert digest_inputs(inventory, {}) != first


def test_byte_code_decides_nothing(inventory, content):
    first = digest_inputs(inventory, {})
    (content / "plugins/modules/__pycache__").mkdir()
    (content / "plugins/modules/__pycache__/m.pyc").write_text("x")
    assert digest_inputs(inventory, {}) == first


@pytest.mark.parametrize("package", ["clusterctl", "ansible-core", "jinja2"])
def test_the_versions_of_the_programs_decide(inventory, content, monkeypatch, package):
    first = digest_inputs(inventory, {})
    version = inputs.version
    monkeypatch.setattr(inputs, "version", lambda name: "9" if name == package else version(name))
    assert digest_inputs(inventory, {}) != first


def test_the_order_of_hosts_decides(inventory):
    """``groups['registry'] | first`` is another host then."""
    turned = replace(inventory, hosts=inventory.hosts[::-1])
    assert digest_inputs(turned, {}) != digest_inputs(inventory, {})


def test_the_order_in_a_group_decides(inventory):
    def ordered(*names):
        hosts = tuple(replace(host, context={"groups": {"x": names}}) for host in inventory.hosts)
        return digest_inputs(replace(inventory, hosts=hosts), {})

    assert ordered("gpu01", "gpu02") == ordered("gpu01", "gpu02") != ordered("gpu02", "gpu01")


@pytest.mark.parametrize(
    "name", ["hosts.yml", "group_vars/all.yml", "group_vars/gpu_nodes/x", "host_vars/a.yml"]
)
def test_the_order_of_keys_in_settings_decides(inventory, name):
    """Templates write a mapping in the operator's order, which Ansible's own listing does not show."""
    path = inventory.directory.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("harbor_storage_options: {a: 1, b: 2}\n")
    first = digest_inputs(inventory, {})
    path.write_text("harbor_storage_options: {b: 2, a: 1}\n")
    assert digest_inputs(inventory, {}) != first


def test_settings_that_name_their_own_directory_decide_by_where_it_is(inventory, tmp_path):
    elsewhere = replace(inventory, directory=ClusterDirectory(tmp_path / "elsewhere"))
    assert digest_inputs(elsewhere, {}) != digest_inputs(inventory, {})


def test_a_setting_of_another_host_that_no_digest_covers_counts_too(inventory):
    """The registry's address in /etc/hosts of a node is a setting of the registry's host."""
    registry = Host(
        "reg", "reg", 22, "ops", ("registry",), {"ansible_host": "{{ lookup('env', 'REGISTRY') }}"}
    )
    whole = replace(inventory, hosts=(*inventory.hosts, registry))
    said = "reg: ansible_host may have another value each time"
    assert find_obstacles(inventory.hosts, whole) == {"gpu01": said, "gpu02": said}


@pytest.mark.parametrize("how", ["other", "broken"])
def test_a_host_is_not_recorded_if_settings_are_edited_during_the_apply(inventory, tmp_path, how):
    """Some waves went by the old, some by the new: put back, they would pass for what was applied."""
    directory, calls = inventory.directory, tmp_path / "calls.jsonl"
    calls.touch()
    listing = {"gpu_nodes": {"hosts": ["gpu01"]}, "_meta": {"hostvars": {"gpu01": {"a": how}}}}
    session = Bare(directory=directory, extra_vars={}, run=Bare(id="r", path=lambda _name: calls), calls=None)
    probe = DriftProbe(
        session,
        Bare(directory=directory, inventory=inventory),
        None,
        digest_inputs(inventory, {}),
        True,
        False,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DriftProbe, "logging_session", Bare(calls=calls))
        patch.setattr(CallLog, "is_complete", lambda *_: True)
        patch.setattr(
            "clusterctl.cluster.inventory._listing", lambda _d: listing if how == "other" else _unreadable()
        )
        said = probe.record({"gpu01": 1})
    assert said == {"gpu01": "the settings were changed during the apply"}
    assert load_record(directory, "gpu01") is None


def _unreadable():
    raise ClusterctlError("no", code="inventory.unreadable")
