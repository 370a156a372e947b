"""hosts.yml is changed by lines: what the operator wrote around them stays, byte for byte."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from clusterctl.cluster.hosts_file import group_names, with_host, without_host
from clusterctl.errors import ClusterctlError

COMMENTED = """\
---
# our cluster
all:
  vars: {site_rack: "7"}  # kept
  children:

    gpu_nodes:   # the fast ones
      hosts:
        gpu01:    # first
          ansible_host: 10.0.0.1   # by DHCP

        gpu02: {ansible_host: "10.0.0.2"}
        # the end of the row

    registry:
      hosts: {}
    login:
"""


def test_a_new_host_goes_behind_the_last_and_nothing_else_changes() -> None:
    changed = with_host(COMMENTED, "gpu_nodes", "gpu03", {"ansible_host": "10.0.0.3", "ansible_port": 2222})
    added = "        gpu03:\n          ansible_host: 10.0.0.3\n          ansible_port: 2222\n"
    assert changed == COMMENTED.replace("        # the end", added + "        # the end")
    assert without_host(changed, "gpu03") == COMMENTED


@pytest.mark.parametrize("group", ["registry", "login", "monitoring"])
def test_a_group_that_is_empty_or_missing_is_filled(group: str) -> None:
    changed = with_host(COMMENTED, group, "x1", {"ansible_host": "10.0.0.9"})
    assert yaml.safe_load(changed)["all"]["children"][group]["hosts"] == {"x1": {"ansible_host": "10.0.0.9"}}
    assert group in group_names(changed)
    for line in COMMENTED.splitlines():
        assert line.split("{")[0].rstrip() in changed


@pytest.mark.parametrize("text", ["", "---\n", "# words\n", "gpu_nodes:",
                                  "gpu_nodes:\n  hosts: ~\n", "gpu_nodes:\n  vars: {}\n"])  # fmt: skip
def test_files_with_nearly_nothing_in_them(text: str) -> None:
    changed = with_host(text, "gpu_nodes", "gpu01", {"ansible_host": "10.0.0.1"})
    assert yaml.safe_load(changed)["gpu_nodes"]["hosts"] == {"gpu01": {"ansible_host": "10.0.0.1"}}


def test_names_and_addresses_that_yaml_would_misread_are_quoted() -> None:
    changed = with_host("gpu_nodes:\n", "gpu_nodes", "1e3", {"ansible_host": "fe80::1", "ansible_user": "no"})
    assert yaml.safe_load(changed)["gpu_nodes"]["hosts"] == {
        "1e3": {"ansible_host": "fe80::1", "ansible_user": "no"}
    }


@pytest.mark.parametrize("name", ["0x_", "0b_", "2026-13-45", "0o_", "_", "12_", "1.5", "y", "null"])
def test_a_name_that_yaml_takes_for_no_text_is_quoted(name: str) -> None:
    changed = with_host("gpu_nodes:\n", "gpu_nodes", name, {"ansible_host": "10.0.0.2"})
    assert list(yaml.safe_load(changed)["gpu_nodes"]["hosts"]) == [name]


@pytest.mark.parametrize(
    ("text", "name", "code"),
    [
        (COMMENTED, "gpu01", "hosts-file.exists"),
        ("gpu_nodes:\n  hosts:\n    gpu[01:08]:\n", "gpu04", "hosts-file.exists"),
        (COMMENTED, "-oX", "hosts-file.name"),
        (COMMENTED, "a b", "hosts-file.name"),
        ("gpu_nodes: {hosts: {a: {ansible_host: b}}}\n", "gpu01", "hosts-file.form"),
        ("gpu_nodes: [\n", "gpu01", "settings.syntax"),
    ],
)
def test_what_cannot_be_added(text: str, name: str, code: str) -> None:
    with pytest.raises(ClusterctlError) as caught:
        with_host(text, "gpu_nodes", name, {"ansible_host": "10.0.0.3"})
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (COMMENTED, "hosts-file.unknown"),
        ("gpu_nodes:\n  hosts:\n    gpu[01:08]:\n", "hosts-file.form"),
        ("gpu_nodes: {hosts: {gpu04: {}, gpu05: {}}}\n", "hosts-file.form"),
        ("gpu_nodes:\n  hosts:\n    gpu04: &same\n      a: 1\n    gpu05: *same\n", "settings.syntax"),
    ],
)
def test_what_cannot_be_taken_out(text: str, code: str) -> None:
    with pytest.raises(ClusterctlError) as caught:
        without_host(text, "gpu04")
    assert caught.value.code == code


def test_a_host_leaves_every_group_it_is_in() -> None:
    text = COMMENTED.replace("    login:\n", "    login:\n      hosts:\n        gpu02:\n")
    changed = without_host(text, "gpu02")
    assert "gpu02" not in changed
    assert changed.count("#") == text.count("#")


names = st.from_regex(r"[a-z][a-z0-9-]{0,6}[a-z0-9]", fullmatch=True)


@examples(60)
@given(
    chosen=st.lists(
        st.tuples(names, st.sampled_from(["gpu_nodes", "registry", "monitoring"])), unique_by=lambda c: c[0]
    ),
    crlf=st.booleans(),
)
def test_adding_and_taking_out_hosts_ends_where_it_began(chosen: list[tuple[str, str]], crlf: bool) -> None:
    text = COMMENTED.replace("\n", "\r\n") if crlf else COMMENTED
    before = yaml.safe_load(text)
    for name, group in chosen:
        text = with_host(text, group, name, {"ansible_host": f"10.1.0.{len(name)}"})
        assert name in yaml.safe_load(text)["all"]["children"][group]["hosts"]
    for name, _ in chosen:
        text = without_host(text, name)
    after = yaml.safe_load(text)
    for data in (before, after):
        for group, content in list(data["all"]["children"].items()):
            if not (content or {}).get("hosts"):
                del data["all"]["children"][group]
    assert before == after
    assert text.count("#") == COMMENTED.count("#")
