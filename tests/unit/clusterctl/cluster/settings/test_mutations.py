"""Whatever stands in the files of a cluster directory: sentences with places, and never a traceback."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.support.examples import examples

from clusterctl.cluster import settings
from clusterctl.main import run

from .cluster_directories import HOSTS, cluster

SOURCE = (
    HOSTS + "      vars: {ansible_port: 22, site_x: &x {a: [1, 2]}, site_y: *x}\n",
    'cluster_name: a\nhardware_gpu_count: "{{ 8 }}"\nansible_become: yes\n'
    "site_x: |\n  text\nsite_l: [a, {b: c}]\n",
)
PIECES = st.sampled_from(
    [
        ":",
        "- ",
        "\t",
        "{{",
        "}}",
        "{%",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a ",
        "!vault ",
        "!!int ",
        "<<: ",
        "'",
        '"',
        "#",
        "|",
        ">",
        "---\n",
        "...\n",
        "%YAML 9\n",
        "\n",
        "  ",
        "\x00",
        "\u2028",
        "\ud7ff",
        "? ",
        "~",
        "@",
        "`",
        "é",
    ]
)


@st.composite
def mutated(draw: st.DrawFn) -> list[bytes]:
    """Good files with a few pieces put in, cut out, or replaced; now and then no text at all."""
    made = []
    for source in SOURCE:
        text = source
        for _ in range(draw(st.integers(0, 4))):
            start = draw(st.integers(0, len(text)))
            end = draw(st.integers(start, min(len(text), start + 12)))
            text = text[:start] + draw(PIECES) + text[end:]
        made.append(draw(st.one_of(st.just(text.encode()), st.just(text.encode()), st.binary(max_size=40))))
    return made


@examples(1500)
@given(files=mutated())
@example(files=[b"a: &a {<<: *a}\n", b"<<: [*x]\n"])
@example(files=[b"all: &a {children: {gpu_nodes: *a}}\n", b"<<: 1\n"])
@example(files=[b"gpu_nodes: {hosts: {? {a: b} : c}}\n", b"!!map []\n"])
def test_no_file_whatever_is_a_traceback(tmp_path: Path, files: list[bytes]) -> None:
    said_in_one_place_each(tmp_path, files)


@pytest.mark.campaign
@hypothesis_settings(max_examples=5000)
@given(files=mutated())
def test_no_file_of_thousands_is_a_traceback(tmp_path: Path, files: list[bytes]) -> None:
    said_in_one_place_each(tmp_path, files)


def said_in_one_place_each(tmp_path: Path, files: list[bytes]) -> None:
    """Whatever stands in the files, each problem has a sentence and a place in one, and apply none."""
    directory = cluster(tmp_path, hosts=files[0], group_vars__all=files[1])
    problems = settings.check(directory)
    if problems:
        there = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
        out, messages = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(messages):
            code = run(["-C", str(tmp_path), "apply", "--yes", "--json"])
        assert (code, out.getvalue()) == (2, "")
        assert messages.getvalue().count("  code:  ") == 1
        assert "Traceback" not in messages.getvalue()
        assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == there
    for problem in problems:
        assert problem.what
        assert problem.where.startswith(str(tmp_path))
        lines = problem.file.read_bytes().decode("utf-8", "replace").splitlines()
        assert 0 <= problem.line <= len(lines) + 2
