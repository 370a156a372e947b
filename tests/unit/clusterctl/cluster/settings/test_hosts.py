"""hosts.yml and the files next to it: groups, addresses, ranges, and what Ansible would never read."""
# ruff: noqa: E501 - tables of cases are read a case a line

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.cluster.settings.hosts import expand

from .cluster_directories import HOSTS, cluster, found


@pytest.mark.parametrize(
    ("hosts", "line", "said"),
    [
        ("", 0, "no host is declared | Name the servers below gpu_nodes"),
        ("all:\n", 0, "no host is declared"),
        (HOSTS.replace("gpu_nodes", "gpu_node"), 3, "the group gpu_node is not one that clusterctl knows | Did you mean gpu_nodes?"),
        (HOSTS.replace("gpu_nodes", "gpu-nodes"), 3, "'gpu-nodes' is not a valid group name"),
        (HOSTS.replace("  registry:", "  racks:"), 9, "the host registry01 is in no group that clusterctl knows"),
        (HOSTS.replace("          ansible_host: 10.0.0.1\n", ""), 5, "the host gpu01 of the group gpu_nodes has no address"),
        (HOSTS.replace("10.0.0.9", "10.0.0.1"), 10, "the hosts gpu01 and registry01 have the same address 10.0.0.1"),
        (HOSTS.replace("      hosts:\n        gpu01", "      host:\n        gpu01"), 4, "the group gpu_nodes knows no 'host' | Did you mean hosts?"),
        (HOSTS.replace("gpu01:", "gpu 01:"), 5, "'gpu 01' is not a valid host name"),
        (HOSTS.replace("gpu01:", "-oX:"), 5, "'-oX' is not a valid host name"),
        (HOSTS.replace("gpu01:", "localhost:"), 5, "'localhost' is not a valid host name | Letters"),
        (HOSTS.replace("gpu01:", "127.0.0.[1:3]:"), 5, "'127.0.0.1' is not a valid host name"),
        (HOSTS.replace("gpu01:", "all:"), 5, "'all' is not a valid host name"),
        (HOSTS.replace("gpu01:", "gpu_nodes:"), 5, "'gpu_nodes' is not a valid host name"),
        (HOSTS.replace("registry01:", "racks:").replace("all:", "racks: {}\nall:"), 10, "racks is the name of a host and of a group"),
        (HOSTS.replace("gpu_nodes", "_meta"), 3, "'_meta' is not a valid group name"),
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


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("gpu[01:03]", ["gpu01", "gpu02", "gpu03"]),
        ("r[a:b]n[1:2]x", ["ran1x", "ran2x", "rbn1x", "rbn2x"]),
        ("gpu[0:4:2]", ["gpu0", "gpu2", "gpu4"]),
        ("gpu", ["gpu"]),
        ("gpu[3:1]", []),
        ("gpu[1:a]", []),
        ("gpu[1:99999999]", []),
        ("gpu" + "[a:z]" * 40, []),
    ],
)
def test_a_range_stands_for_its_hosts(pattern: str, expected: list[str]) -> None:
    assert expand(pattern) == expected


def test_ranges_that_make_more_hosts_than_any_cluster_has_are_refused_at_once(tmp_path: Path) -> None:
    ranges = "".join(f"    gpu[0:{9000 - n}]: {{ansible_host: 10.0.0.1}}\n" for n in range(2000))
    problems = found(cluster(tmp_path, hosts=f"gpu_nodes:\n  hosts:\n{ranges}"))
    assert [line for _, line, said in problems if "more than 100000 times" in said] == [14]


@pytest.mark.parametrize(
    "name",
    [
        "gpu[1:3:" + "9" * 5000 + "]",
        "gpu[" + "0" * 5000 + ":02]",
        "g[0:9999][" + "0" * 250 + "1:1]",
        "g" * 300,
    ],
    ids=["step", "first", "multiplied", "name"],
)
def test_a_name_longer_than_that_of_a_host_is_refused_unexpanded(tmp_path: Path, name: str) -> None:
    assert expand(name) == []
    problems = found(cluster(tmp_path, hosts=f"gpu_nodes:\n  hosts:\n    ? '{name}'\n    : {{}}\n"))
    assert any("more than 253 characters" in said for _, _, said in problems)
