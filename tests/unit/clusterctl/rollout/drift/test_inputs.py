"""The inputs that decide what an apply asks: a change of any of them voids the records."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Bare

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.drift.call_log import CallLog
from clusterctl.rollout.drift.deterministic import is_deterministic
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


SETTINGS = frozenset(
    {"site_no_proxy", "site_http_proxy", "users", "ansible_host", "ansible_play_hosts", "vars"}
)


@pytest.mark.parametrize(
    "value",
    [
        "{{ '$SITE_PROXY' | expandvars }}",
        "{{ '~/x' | expanduser }}",
        "{% include '/etc/site' %}",
        "{% import '/etc/site' as site %}{{ site.x }}",
        "{% extends '/etc/site' %}",
        "{% macro m() %}x{% endmacro %}{{ m() }}",
        "{{ ansible_play_hosts | join(',') }}",
        "{{ ansible_limit }}",
        "{{ ansible_check_mode }}",
        "{{ ansible_facts.hostname }}",
        "{{ vars['ansible_facts'] }}",
        "{{ hostvars['gpu01'].ansible_facts.hostname }}",
        "{{ hostvars['gpu01']['ansible_' ~ 'limit'] }}",
        "{{ hostvars | dict2items }}",
        "{% set all = hostvars %}{{ all['gpu01'].ansible_limit }}",
        "{% for ansible_limit in [] %}{% endfor %}{{ ansible_limit }}",
        "{{ lookup('env', 'X') }}",
        "{{ ansible.builtin.lookup('env', 'X') }}",
        "{{ query('file', 'X') }}",
        "{{ now() }}",
        "{{ [1, 2] | random }}",
        "{{ ['x'] | map('expandvars') | list }}",
        "{{ ['x'] | map('ansible.builtin.realpath') | list }}",
        "{{ ['/x'] | select('exists') | list }}",
        "{{ [{'a': '/x'}] | selectattr('a', 'file') | list }}",
        "{{ groups['all'] | map('extract', hostvars, 'ansible_limit') | list }}",
        "{{ ['x'] | map(site_no_proxy) | list }}",
        "{{ ['x'] | map(*['expandvars']) | list }}",
        "{{ '/x' is ansible.builtin.exists }}",
        "{{ ''.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ a_default_of_a_role }}",
        "{{ unfinished",
        "#jinja2: variable_start_string:'[%'\n[% now() %]{{ 1 }}",
        {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n00"},
        ["x", {"a": "{{ now() }}"}],
    ],
)
def test_a_setting_that_is_not_known_to_be_deterministic_is_not(value):
    assert not is_deterministic(value, SETTINGS)


@pytest.mark.parametrize(
    "value",
    [
        "plain", 3, None, True, "a % b { c }",
        {"__ansible_unsafe": "{{ now() }}"},
        "-o UserKnownHostsFile={{ inventory_dir }}/.clusterctl/known_hosts",
        "{{ site_no_proxy }},{{ inventory_hostname }}",
        "{{ groups['all'] | map('extract', hostvars, 'ansible_host') | join(',') }}",
        "{{ inventory_hostname | extract(hostvars, 'site_no_proxy') }}",
        "{{ groups['gpu_nodes'] | difference([inventory_hostname]) | ansible.builtin.unique | sort }}",
        "{% for host in groups.all %}{{ host }}={{ hostvars[host]['ansible_host'] }}"
        "{% if not loop.last %},{% endif %}{% endfor %}",
        "{{ hostvars['gpu01'].users[0].name.upper() }}",
        "{{ users | selectattr('name', 'match', 'a.*') | map(attribute='name') | list }}",
        "{{ 'a' if 'gpu_nodes' in group_names else 'b' }}",
        "{{ site_http_proxy | default('') | regex_replace('x', 'y') }}",
        "{% set parts = site_no_proxy.split(',') %}{{ parts[0] ~ parts[1:] | length }}",
        [{"a": "{{ site_no_proxy is defined and site_no_proxy is not none }}"}],
    ],
)  # fmt: skip
def test_a_setting_of_other_settings_only_is_deterministic(value):
    assert is_deterministic(value, SETTINGS)


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
