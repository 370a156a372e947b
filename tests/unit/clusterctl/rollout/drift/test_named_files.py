"""Files on the controller that settings name: their content decides what an apply asks."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace

import pytest

from clusterctl.rollout.drift import named_files
from clusterctl.rollout.drift.inputs import digest_inputs, find_obstacles

from .drift_stage import two_hosts

ONLY_ANSIBLE = "{{ site | regex_replace('a', '/b') }}"


@pytest.fixture
def inventory(tmp_path):
    return two_hosts(tmp_path)


def with_settings(inventory, **variables):
    hosts = tuple(
        replace(host, variables=variables, context={"inventory_dir": str(inventory.directory.root)})
        for host in inventory.hosts
    )
    return replace(inventory, hosts=hosts)


@pytest.mark.parametrize(
    "settings",
    [
        {"registry_client_ca_file": "DIRECTORY/site.pem"},
        {"registry_client_ca_file": "{{ inventory_dir }}/site.pem"},
        {"site_keys": "{{ inventory_dir }}", "harbor_certificate": "{{ site_keys ~ '/' ~ 'site.pem' }}"},
        {"registry_endpoints": [{"name": "x", "ca": {"file": "{{ inventory_dir }}/site.pem"}}]},
        {"harbor_certificate": {"__ansible_unsafe": "DIRECTORY/site.pem"}},
    ],
    ids=["literal", "template", "by-another", "nested", "unsafe"],
)
def test_the_content_of_a_file_that_a_setting_names_decides(inventory, settings):
    """Roles read it with ``lookup('file')``: the setting stays, and what hosts get is another."""
    root = str(inventory.directory.root)
    whole = with_settings(inventory, **json.loads(json.dumps(settings).replace("DIRECTORY", root)))
    path = inventory.directory.root / "site.pem"
    found = [digest_inputs(whole, {})]
    for text in ("one authority", "another one"):
        path.write_text(text)
        found.append(digest_inputs(whole, {}))
    assert len(set(found)) == 3
    path.write_text("one authority")
    assert digest_inputs(whole, {}) == found[1]
    assert find_obstacles(whole.hosts, whole) == {}


def test_a_large_file_decides_by_size_and_time(inventory):
    whole = with_settings(inventory, harbor_installer_path=str(inventory.directory.root / "large"))
    path = inventory.directory.root / "large"
    with path.open("wb") as stream:
        stream.truncate(32 << 20)
    first = digest_inputs(whole, {})
    assert digest_inputs(whole, {}) == first
    os.utime(path, (1, 1))
    assert digest_inputs(whole, {}) != first


def test_what_an_apply_itself_makes_is_no_setting(inventory):
    """Else the first apply would find its own work, and record nothing."""
    whole = with_settings(inventory, registry_client_ca_file="{{ inventory_dir }}/.clusterctl/ca/ca.crt")
    first = digest_inputs(whole, {})
    (inventory.directory.state / "ca").mkdir()
    (inventory.directory.state / "ca/ca.crt").write_text("made")
    assert digest_inputs(whole, {}) == first
    other = with_settings(inventory, site_file="{{ inventory_dir }}/.clusterctl/other")
    first = digest_inputs(other, {})
    (inventory.directory.state / "other").write_text("by hand")
    assert digest_inputs(other, {}) != first


def test_a_file_whose_name_only_ansible_knows_is_not_covered(inventory):
    whole = with_settings(
        inventory, site="a", registry_client_ca_file="{{ site | regex_replace('a', '/b') }}"
    )
    said = "registry_client_ca_file names a file that is known to Ansible only"
    assert find_obstacles(whole.hosts, whole)["gpu01"] == said
    harmless = with_settings(inventory, site="a", site_no_proxy="{{ site | regex_replace('a', 'b') }}")
    assert find_obstacles(harmless.hosts, harmless) == {}


def test_every_variable_that_a_role_reads_as_a_file_has_a_name_that_says_so(repository):
    """A template that only Ansible can evaluate is refused by the setting's name."""
    read = set()
    for path in (repository / "roles").rglob("*.yml"):
        read |= set(re.findall(r"lookup\('ansible.builtin.file', (\w+)\)", path.read_text(encoding="utf-8")))
    assert "registry_client_ca_file" in read
    assert {name for name in read if not named_files.NAMES_A_FILE.search(name)} == set()
