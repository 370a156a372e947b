"""Which settings have the same value each time they are evaluated."""

from __future__ import annotations

import pytest

from clusterctl.rollout.drift.deterministic import is_deterministic

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
