"""Settings are checked as data: each wrong file has its line, its sentence and its hint; never a traceback."""
# ruff: noqa: E501 - tables of cases are read a case a line

from __future__ import annotations

import io
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from clusterctl.cluster import settings
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.settings import values, yaml_nodes
from clusterctl.cluster.settings.hosts import expand
from clusterctl.cluster.settings.options import Option, catalogue
from clusterctl.errors import ClusterctlError
from clusterctl.main import run

HOSTS = """\
all:
  children:
    gpu_nodes:
      hosts:
        gpu01:
          ansible_host: 10.0.0.1
    registry:
      hosts:
        registry01:
          ansible_host: 10.0.0.9
"""


def cluster(tmp_path: Path, **files: str | bytes) -> ClusterDirectory:
    """A cluster directory; file names are given with __ for / and without .yml."""
    for name, content in {"hosts": HOSTS, **files}.items():
        path = tmp_path / (name.replace("__", "/") + ".yml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return ClusterDirectory(tmp_path)


def found(directory: ClusterDirectory) -> list[tuple[str, int, str]]:
    """FILE, line, and the sentence with its hint."""
    problems = settings.check(directory)
    return [(str(p.file.relative_to(directory.root)), p.line, f"{p.what} | {p.hint}") for p in problems]


def only(directory: ClusterDirectory) -> tuple[str, int, str]:
    problems = found(directory)
    assert len(problems) == 1, problems
    return problems[0]


def test_the_example_is_valid(repository: Path) -> None:
    assert settings.check(ClusterDirectory(repository / "inventory/example")) == []


def test_every_default_that_the_example_shows_is_valid(repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository / "inventory/example", tmp_path, dirs_exist_ok=True)
    shown = 0
    for path in (tmp_path / "group_vars").glob("*.yml"):
        text, number = re.subn(r"(?m)^# ([a-z_]+:|  [a-z-]+: )", r"\1", path.read_text())
        path.write_text(text)
        shown += number
    assert shown > 15
    assert found(ClusterDirectory(tmp_path)) == []


def test_every_setting_is_known_and_a_good_directory_passes(tmp_path: Path) -> None:
    assert {"hardware_profile", "site_http_proxy", "cluster_name"} <= set(catalogue())
    directory = cluster(
        tmp_path,
        group_vars__all='ansible_user: ops\nsite_anything: [1, {a: b}]\nhardware_gpu_count: "{{ site_anything[0] }}"\n',
        group_vars__gpu_nodes__more="hardware_gpu_model: NVIDIA A100-SXM4-80GB\n",
        host_vars__gpu01="ansible_become_password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\n",
    )
    assert found(directory) == []
    settings.require_valid(directory)


@pytest.mark.parametrize(
    ("written", "line", "said"),
    [
        ("a_typo: 1\n", 1, "unknown setting a_typo | A variable of your own begins with site_."),
        (
            "\nhardware_gpu_cuont: 8\n",
            2,
            "unknown setting hardware_gpu_cuont | Did you mean hardware_gpu_count?",
        ),
        ("site_htp_proxy: x\n", 1, "unknown setting site_htp_proxy | Did you mean site_http_proxy?"),
        ("ansible_usr: x\n", 1, "unknown setting ansible_usr | Did you mean ansible_user?"),
        ("hardware_gpu_count: eight\n", 1, "hardware_gpu_count must be a whole number, not 'eight'"),
        ("hardware_gpu_count: 8.5\n", 1, "must be a whole number, not '8.5'"),
        ("hardware_gpu_count: true\n", 1, "must be a whole number, not 'true'"),
        ("hardware_gpu_count: 010\n", 1, "must be a whole number, not '010'"),
        ("hardware_gpu_count: [8]\n", 1, "must be a whole number, not a list"),
        ("hardware_gpu_count:\n", 1, "hardware_gpu_count has no value"),
        (
            "cluster_name: 580.10\n",
            1,
            "must be text, not '580.10' | YAML reads this as a number: put it in quotes",
        ),
        ("cluster_name: no\n", 1, "YAML reads this as true or false: put it in quotes"),
        ("cluster_name: 2026-01-01\n", 1, "YAML reads this as a date: put it in quotes"),
        ("cluster_name: {a: b}\n", 1, "cluster_name must be text, not a mapping"),
        ("cluster_name: a\ncluster_name: b\n", 2, "cluster_name is set twice: in line 1 too"),
        ("cluster_name: {{ x }}\n", 1, "a value that begins with {{ must be in quotes"),
        ('cluster_name: "{{ x "\n', 1, "the template of cluster_name cannot be read"),
        ("cluster_name: a: b\n", 1, "this is no YAML"),
        ("cluster_name:\n\tb: 1\n", 2, "there is a tab, where YAML wants spaces"),
        ("- a\n- b\n", 1, "this is no mapping"),
        ("just text\n", 1, "this is no mapping"),
        ("a: [\n", 2, "this is no YAML"),
        (
            "cluster_name: a\n---\ncluster_name: b\n",
            2,
            "a second document begins here | Remove the line `---`",
        ),
        ("cluster_name: !!python/object:os.system x\n", 1, "the tag tag:yaml.org,2002:python/object"),
        ("? [a, b]\n: 1\n", 1, "a list is no name of a setting"),
        ("580: 1\n", 1, "'580' is no name of a setting"),
        ("ansible_host: -oProxyCommand=id\n", 1, "ansible_host is no address: '-oProxyCommand=id'"),
        ("cluster_name: *nowhere\n", 1, "this is no YAML: found undefined alias 'nowhere'"),
        ("site_a: &a [*a]\n", 1, "its anchors and aliases unfold without end"),
        ("cluster_name: a\x00b\n", 1, "there is a character that YAML does not allow"),
        (b"cluster_name: \xff\n", 1, "this is not UTF-8 text"),
        (b"a: 1\nb: \xc3\n", 2, "this is not UTF-8 text"),
    ],
)
def test_what_is_wrong_has_its_line_and_its_sentence(
    tmp_path: Path, written: str | bytes, line: int, said: str
) -> None:
    file, at_line, sentence = only(cluster(tmp_path, group_vars__all=written))
    assert (file, at_line) == ("group_vars/all.yml", line)
    assert said in sentence


def test_aliases_that_unfold_to_a_billion_are_refused_at_once(tmp_path: Path) -> None:
    bomb = "site_a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"site_a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    assert "unfold without end" in only(cluster(tmp_path, group_vars__all=bomb))[2]


def test_nesting_that_is_too_deep_is_a_sentence(tmp_path: Path) -> None:
    assert "cannot be read as YAML" in only(cluster(tmp_path, group_vars__all="site_a: " + "[" * 5000))[2]


@pytest.mark.parametrize("written", ["", "---\n", "# only words\n", "\ufeffcluster_name: a\n"])
def test_empty_files_of_variables_are_good(tmp_path: Path, written: str) -> None:
    assert found(cluster(tmp_path, group_vars__all=written)) == []


def test_an_encrypted_file_is_believed(tmp_path: Path) -> None:
    directory = cluster(tmp_path, group_vars__all="$ANSIBLE_VAULT;1.1;AES256\n616263\n")
    assert found(directory) == []


@pytest.mark.parametrize(
    ("hosts", "line", "said"),
    [
        ("", 0, "no host is declared | Name the servers below gpu_nodes"),
        ("all:\n", 0, "no host is declared"),
        (HOSTS.replace("gpu_nodes", "gpu_node"), 3, "the group gpu_node is not one that clusterctl knows | Did you mean gpu_nodes?"),
        (HOSTS.replace("gpu_nodes", "gpu-nodes"), 3, "'gpu-nodes' is no name of a group"),
        (HOSTS.replace("  registry:", "  racks:"), 9, "the host registry01 is in no group that clusterctl knows"),
        (HOSTS.replace("          ansible_host: 10.0.0.1\n", ""), 5, "the host gpu01 of the group gpu_nodes has no address"),
        (HOSTS.replace("10.0.0.9", "10.0.0.1"), 10, "the hosts gpu01 and registry01 have the same address 10.0.0.1"),
        (HOSTS.replace("      hosts:\n        gpu01", "      host:\n        gpu01"), 4, "the group gpu_nodes knows no 'host' | Did you mean hosts?"),
        (HOSTS.replace("gpu01:", "gpu 01:"), 5, "'gpu 01' is no name of a host"),
        (HOSTS.replace("gpu01:", "-oX:"), 5, "'-oX' is no name of a host"),
        (HOSTS.replace("gpu01:", "'gpu[9:1]':"), 5, "the range in gpu[9:1] is empty"),
        (HOSTS.replace("gpu01:\n          ansible_host: 10.0.0.1", "gpu01: 10.0.0.1"), 5, "must have a mapping of variables"),
        (HOSTS + "        extra:\n          ansible_hots: 1\n          ansible_host: 10.0.0.8\n", 12, "unknown setting ansible_hots | Did you mean ansible_host?"),
        (HOSTS + "      vars:\n        ansible_port: ssh\n", 12, "ansible_port must be a whole number, not 'ssh'"),
        (HOSTS + "      children: [a]\n", 11, "children of the group registry must be a mapping"),
    ],
)  # fmt: skip
def test_hosts_file(tmp_path: Path, hosts: str, line: int, said: str) -> None:
    problems = found(cluster(tmp_path, hosts=hosts))
    assert any(at[:2] == ("hosts.yml", line) and said in at[2] for at in problems), problems


def test_an_address_may_stand_in_host_vars_or_come_from_a_template_of_the_group(tmp_path: Path) -> None:
    hosts = HOSTS.replace("          ansible_host: 10.0.0.1\n", "")
    assert found(cluster(tmp_path, hosts=hosts, host_vars__gpu01="ansible_host: 10.0.0.1\n")) == []
    ranged = HOSTS.replace("gpu01:", "gpu[01:08]:").replace("10.0.0.1\n", '"10.0.0.{{ 1 }}"\n')
    assert found(cluster(tmp_path, hosts=ranged, host_vars__gpu01="")) == []


def test_files_that_ansible_would_never_read_are_named(tmp_path: Path) -> None:
    directory = cluster(tmp_path, group_vars__gpunodes="a: 1\n", host_vars__gpu1="cluster_name: a\n")
    (tmp_path / "group_vars/gpu_nodes.yml.bak").write_text("nonsense: [")
    said = [sentence for _, _, sentence in found(directory)]
    assert any("there is no group gpunodes in hosts.yml | Did you mean gpu_nodes?" in s for s in said)
    assert any("there is no host gpu1 in hosts.yml | Did you mean gpu01?" in s for s in said)
    assert len(said) == 3  # the unknown setting `a` is the third


def test_secrets_are_not_repeated_in_messages(tmp_path: Path) -> None:
    option = Option("x_password", "int", secret=True)
    node = yaml_nodes.parse(Path("f"), "a: hunter2\n").root.value[0][1]
    (problem,) = values.check(Path("f"), option, node)
    assert "hunter2" not in problem.what + problem.hint


OPTION = Option(
    "r_things",
    "list",
    elements="dict",
    options={
        "name": Option("name", "str", required=True),
        "mode": Option("mode", "str", choices=("auto", "true", "false")),
        "size": Option("size", "bytes"),
        "share": Option("share", "float"),
    },
)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[{name: a, mode: true, size: 10M, share: .5}]", []),
        ("[{name: a, mode: 'false', share: 1e3}, '{{ more }}']", []),
        ("'{{ all_of_them }}'", []),
        ("!unsafe x", []),
        ("[{name: a, moed: auto}]", ["r_things[0] knows no 'moed'"]),
        ("[{name: a}, {mode: off}]", ["r_things[1] lacks name"]),
        ("[{name: a, mode: fast}]", ["r_things[0].mode must be one of auto, true, false; not 'fast'"]),
        ("[{name: a, size: much}]", ["r_things[0].size must be a size such as 512M, not 'much'"]),
        ("[{name: a, share: half}]", ["r_things[0].share must be a number, not 'half'"]),
        ("[a]", ["r_things[0] must be a mapping, not 'a'"]),
        ("{name: a}", ["r_things must be a list, not a mapping"]),
        ("a, b", ["r_things must be a list, not 'a, b'"]),
    ],
)
def test_nested_options(written: str, said: list[str]) -> None:
    node = yaml_nodes.parse(Path("f"), f"a: {written}\n").root.value[0][1]
    assert [problem.what for problem in values.check(Path("f"), OPTION, node)] == said


TEXTS = """8|'8'|8.0|580.10|-3|+3|010|0x10|1_000|1:30|true|'true'|yes|'yes'|no|on|y|n|1|0|'1'|abc|''|[]|[a]|[1, 2]|{}
{a: b}|2026-01-01|10M|'10MB'|10Mb|'1e3'|1e3|.5|auto|~|null|'a,b'|' 5 '|5.5""".replace("\n", "|").split("|")


@pytest.mark.parametrize("kind", ["str", "int", "float", "bool", "list", "dict", "path", "bytes", "bits"])
def test_nothing_passes_here_that_ansible_would_refuse(kind: str) -> None:
    validator = ArgumentSpecValidator({"a": {"type": kind}})
    passed = 0
    for word in TEXTS:
        text = f"a: {word}"
        node = yaml_nodes.parse(Path("f"), text).root.value[0][1]
        if not list(values.check(Path("f"), Option("a", kind), node)):
            passed += 1
            assert validator.validate(yaml.safe_load(text)).error_messages == [], text
    assert passed >= 2


def test_all_problems_come_at_once_with_exit_code_2(tmp_path: Path) -> None:
    directory = cluster(tmp_path, group_vars__all="cluster_nam: a\nhardware_gpu_count: x\n")
    with pytest.raises(ClusterctlError) as caught:
        settings.require_valid(directory)
    assert caught.value.exit_code == 2
    assert "2 problems" in caught.value.what
    assert "all.yml:1: unknown setting cluster_nam (Did you mean cluster_name?)" in caught.value.what
    assert "all.yml:2: hardware_gpu_count must be a whole number" in caught.value.what


@pytest.mark.parametrize(
    ("pattern", "hosts"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01:03]", ["gpu01", "gpu02", "gpu03"]),
        ("r[a:c]", ["ra", "rb", "rc"]),
        ("r[1:2]n[1:2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("g[0:9:4]", ["g0", "g4", "g8"]),
        ("g[1:999999999]", []),
        ("g[1:2:0]", []),
    ],
)
def test_ranges_of_hosts(pattern: str, hosts: list[str]) -> None:
    assert expand(pattern) == hosts


SOURCE = (
    HOSTS + "      vars: {ansible_port: 22, site_x: &x {a: [1, 2]}, site_y: *x}\n",
    'cluster_name: a\nhardware_gpu_count: "{{ 8 }}"\nansible_become: yes\nsite_x: |\n  text\nsite_l: [a, {b: c}]\n',
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


def mutations(count: int) -> hypothesis_settings:
    """How many files are made up."""
    unimportant = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return hypothesis_settings(max_examples=count, deadline=None, suppress_health_check=unimportant)


@mutations(1500)
@given(files=mutated())
@example(files=[b"a: &a {<<: *a}\n", b"<<: [*x]\n"])
@example(files=[b"all: &a {children: {gpu_nodes: *a}}\n", b"<<: 1\n"])
@example(files=[b"gpu_nodes: {hosts: {? {a: b} : c}}\n", b"!!map []\n"])
def test_no_file_whatever_is_a_traceback(tmp_path: Path, files: list[bytes]) -> None:
    said_in_one_place_each(tmp_path, files)


@pytest.mark.campaign
@mutations(5000)
@given(files=mutated())
def test_no_file_of_thousands_is_a_traceback(tmp_path: Path, files: list[bytes]) -> None:
    said_in_one_place_each(tmp_path, files)


def said_in_one_place_each(tmp_path: Path, files: list[bytes]) -> None:
    """Whatever stands in the files, each problem has a sentence and a place in one of them, and apply none."""
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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ansible_host_key_checking: false", "ansible_host_key_checking must not be false"),
        ("ansible_ssh_host_key_checking: no", "ansible_ssh_host_key_checking must not be false"),
        ("ansible_ssh_args: -o UserKnownHostsFile=/elsewhere", "ansible_ssh_args is set by clusterctl"),
    ],
)
def test_host_keys_cannot_be_left_unchecked(tmp_path: Path, line: str, said: str) -> None:
    file, number, sentence = only(cluster(tmp_path, group_vars__all=f"{line}\n"))
    assert (file, number) == ("group_vars/all.yml", 1)
    assert sentence.startswith(said)


def test_host_keys_may_be_checked_by_name(tmp_path: Path) -> None:
    assert found(cluster(tmp_path, group_vars__all="ansible_host_key_checking: true\n")) == []
