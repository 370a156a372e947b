"""By what an apply is decided: when what is remembered may be believed. No host is reached."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Bare

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.probe import records
from clusterctl.rollout.probe.calls import CannotAskError
from clusterctl.rollout.probe.decided import inputs, require_clear, with_secrets
from clusterctl.rollout.probe.drift import DriftProbe
from clusterctl.rollout.probe.steady import is_steady
from clusterctl.rollout.probe.written import Written

from .probe_stage import two_hosts


@pytest.fixture
def inventory(tmp_path):
    return two_hosts(tmp_path)


def test_a_setting_of_any_host_a_flag_a_lock_and_a_secret_decide(inventory):
    first = inputs(inventory, {})
    assert first == inputs(inventory, {})
    other = replace(inventory.hosts[1], variables={"nvidia_driver_branch": "570"})
    assert inputs(replace(inventory, hosts=(inventory.hosts[0], other)), {}) != first
    assert inputs(replace(inventory, hosts=inventory.hosts[:1]), {}) != first
    assert inputs(inventory, {"nvidia_driver_reboot": True}) != first
    (inventory.directory.root / "clusterctl.lock").write_text("driver: 580\n")
    assert inputs(inventory, {}) != first
    before = with_secrets(first, inventory.directory)
    (inventory.directory.secrets / "registry-pull.password").write_text("x")
    assert with_secrets(first, inventory.directory) != before


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
def test_a_host_whose_settings_no_digest_covers_is_not_remembered(inventory, name, value):
    require_clear(inventory.hosts[0], inventory)
    with pytest.raises(CannotAskError, match=name):
        require_clear(replace(inventory.hosts[0], variables={name: value}), inventory)


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
def test_a_setting_that_is_not_known_to_be_steady_is_not(value):
    assert not is_steady(value, SETTINGS)


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
def test_a_setting_that_speaks_of_other_settings_alone_is_steady(value):
    assert is_steady(value, SETTINGS)


def test_settings_that_name_their_own_directory_decide_by_where_it_is(inventory, tmp_path):
    elsewhere = replace(inventory, directory=ClusterDirectory(tmp_path / "elsewhere"))
    assert inputs(elsewhere, {}) != inputs(inventory, {})


def test_a_setting_of_another_host_that_no_digest_covers_counts_too(inventory):
    """The registry's address in /etc/hosts of a node is a setting of the registry's host."""
    registry = Host(
        "reg", "reg", 22, "ops", ("registry",), {"ansible_host": "{{ lookup('env', 'REGISTRY') }}"}
    )
    whole = replace(inventory, hosts=(*inventory.hosts, registry))
    with pytest.raises(CannotAskError, match="ansible_host of reg may be another"):
        require_clear(inventory.hosts[0], whole)


@pytest.mark.parametrize("how", ["other", "broken"])
def test_settings_that_are_edited_while_apply_is_at_work_are_not_remembered(inventory, tmp_path, how):
    """Some waves went by the old, some by the new: put back, they would pass for what was applied."""
    directory, calls = inventory.directory, tmp_path / "calls.jsonl"
    calls.touch()
    listing = {"gpu_nodes": {"hosts": ["gpu01"]}, "_meta": {"hostvars": {"gpu01": {"a": how}}}}
    session = Bare(directory=directory, extra_vars={}, run=Bare(id="r", path=lambda _name: calls), calls=None)
    looks = DriftProbe(
        session, Bare(directory=directory, inventory=inventory), None, inputs(inventory, {}), True, False
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DriftProbe, "told", Bare(calls=calls))
        patch.setattr(Written, "is_whole", lambda *_: True)
        patch.setattr(
            "clusterctl.cluster.inventory._listing", lambda _d: listing if how == "other" else _unreadable()
        )
        said = looks.settle({"gpu01": 1})
    assert said == {"gpu01": "the settings were changed while it was at work"}
    assert records.load(directory, "gpu01") is None


def _unreadable():
    raise ClusterctlError("no", code="inventory.unreadable")
