"""Inventories with slips of every kind: one clean message and exit code 2, or its hosts; nothing touched."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import event, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.support.examples import examples

from clusterctl.cluster import inventory
from clusterctl.main import run

SOURCE: dict[str, Any] = {
    "all": {
        "vars": {"ansible_user": "ops", "ansible_port": 22},
        "children": {
            "gpu_nodes": {
                "hosts": {
                    "gpu[01:03]": {"ansible_host": "{{ inventory_hostname }}.lan", "hardware_gpu_count": 8},
                    "gpu10": {"ansible_host": "10.0.0.10"},
                },
                "vars": {"site_rack": "r1"},
            },
            "registry": {"hosts": {"registry01": {"ansible_host": "10.0.0.9"}}},
        },
    }
}
GOOD_WORDS = st.sampled_from(
    ["gpu20", "gpu[5:6]", "login", "hosts", "vars", "children", "ansible_host", "site_x"]
)
BAD_WORDS = st.sampled_from(
    [
        "",
        "a b",
        "-x",
        "gpu[",
        "gpu[2:1]",
        "{{",
        "{% if %}",
        "{{ x }}",
        "{{ lookup('pipe', 'id') }}",
        "é",
        "a" * 300,
    ]
)
WORDS = st.one_of(GOOD_WORDS, GOOD_WORDS, BAD_WORDS)
GOOD_VALUES = st.sampled_from(
    [
        None,
        {},
        "10.0.0.7",
        2222,
        "{{ groups.gpu_nodes | first }}",
        {"ansible_host": "10.0.0.7"},
        {"gpu21": None},
    ]
)
BAD_VALUES: st.SearchStrategy[Any] = st.one_of(
    WORDS, st.booleans(), st.integers(-(10**6), 10**6), st.floats(), st.dates(), st.lists(WORDS, max_size=2)
)
VALUES = st.one_of(GOOD_VALUES, GOOD_VALUES, BAD_VALUES, st.dictionaries(WORDS, BAD_VALUES, max_size=2))
SLIPS = st.sampled_from(
    ["\t", ":", "- ", "&a ", "*a", "<<: *a", "!vault |", "!!python/none ", "'", "#", "\x00", "\n---\n"]
)


def branches(tree: Any) -> list[dict[Any, Any]]:
    """Every mapping of a tree."""
    if not isinstance(tree, dict):
        return []
    return [tree, *(branch for value in tree.values() for branch in branches(value))]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good inventory with keys renamed, lost, given other values; now and then with a slip of the pen."""
    tree = json.loads(json.dumps(SOURCE))
    for _ in range(draw(st.integers(1, 2))):
        branch = draw(st.sampled_from(branches(tree)))
        key = draw(st.one_of(st.sampled_from(sorted(map(str, branch))), WORDS) if branch else WORDS)
        action = draw(st.sampled_from(["lose", "rename", "set", "set"]))
        before = branch.pop(key, None)
        if action == "rename":
            branch[draw(WORDS)] = before
        elif action == "set":
            branch[key] = copy.deepcopy(draw(VALUES))  # else one is put into itself
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    if draw(st.integers(0, 5)) == 5:
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(SLIPS) + text[at:]
    return text.encode()


@examples(100)
@given(text=mutated())
@example(text=b"")
@example(text=b"[]\n")
@example(text=b"all: {hosts: {gpu01: {ansible_host: '{{ groups }}'}}}\n")
@example(text=b"all: {hosts: {gpu01: {ansible_port: ['1']}}}\n")
@example(text=b"all: {hosts: {gpu01: {ansible_port: '{{ x }}'}}}\n")
@example(text=b"gpu_nodes: &a {children: {gpu_nodes: *a}}\n")
def test_no_inventory_is_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes) -> None:
    said_once_and_nothing_touched(tmp_path, capsys, text)


@pytest.mark.campaign
@hypothesis_settings(max_examples=3000)
@given(text=mutated())
def test_no_inventory_of_thousands_is_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes
) -> None:
    said_once_and_nothing_touched(tmp_path, capsys, text)


def said_once_and_nothing_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes) -> None:
    """Whatever stands in hosts.yml: its hosts, or exit code 2 and where to look."""
    hosts = tmp_path / "hosts.yml"
    hosts.write_bytes(text)
    inventory.forget_cached()
    code = run(["-C", str(tmp_path), "hosts", "list", "--json"])
    out, messages = capsys.readouterr()
    event(f"exit code {code}")
    assert "Traceback" not in messages
    assert "internal.bug" not in messages
    if code == 0:
        assert all(json.loads(line) for line in out.splitlines())
    else:
        assert (code, out) == (2, "")
        assert messages.count("  code:  ") == 1
        # A variable of a host may come from several files: then it is the host and the variable.
        assert re.search(r"where: (.*hosts\.yml|[^:\n]+: ansible_\w+$)", messages, re.MULTILINE)
    assert {path.name for path in tmp_path.rglob("*")} == {"hosts.yml"}
    assert hosts.read_bytes() == text
