"""Files of settings that have no end, or that nobody writes to: refused before Ansible opens them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterctl.cluster import inventory
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.opened import opened
from clusterctl.cluster.settings import yaml_nodes
from clusterctl.errors import ClusterctlError

from .cluster_directories import cluster, found, only

FILES = (
    "hosts.yml",
    "group_vars/all.yml",
    "group_vars/all/more.yml",
    "host_vars/gpu01.yml",
    "host_vars/gpu01",
)


def a_fifo_elsewhere(path: Path) -> None:
    os.mkfifo(path.parent / ".elsewhere")
    path.symlink_to(".elsewhere")


def huge(path: Path) -> None:
    path.write_text("---\n")
    os.truncate(path, 1 << 40)


@pytest.fixture
def no_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(_directory: ClusterDirectory) -> None:
        raise AssertionError("Ansible would read that file")

    monkeypatch.setattr(inventory, "_listing", started)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("make", [os.mkfifo, a_fifo_elsewhere, huge])
def test_a_file_without_an_end_is_refused_before_ansible_reads_it(
    tmp_path: Path, no_ansible: None, name: str, make: Callable[[Path], None]
) -> None:
    directory = cluster(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    inside_a_directory = path.parent.name == "all"
    if inside_a_directory and make is not huge:
        assert found(directory) == [], "Ansible does not read it either"
        return
    with pytest.raises(ClusterctlError) as caught:
        opened(directory.root)
    assert caught.value.exit_code == 2
    if path != directory.hosts_file or make is huge:
        assert (caught.value.code, caught.value.where) == ("settings.syntax", str(path))
        because = "at most 16000000 are read" if make is huge else "is not a regular file"
        assert because in caught.value.what
    else:
        assert caught.value.code == "cluster.not-found"


def test_a_device_is_not_trusted(tmp_path: Path, no_ansible: None) -> None:
    directory = cluster(tmp_path)
    directory.group_vars.mkdir()
    (directory.group_vars / "all.yml").symlink_to("/dev/zero")
    with pytest.raises(ClusterctlError, match="/dev/zero, which is world-writable"):
        opened(directory.root)


def test_files_behind_a_link_to_a_directory_are_checked_as_ansible_reads_them(tmp_path: Path) -> None:
    directory = cluster(tmp_path / "site", group_vars__all__a="site_a: 1\n")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "b.yml").write_text("no_such_setting: 1\n")
    (directory.group_vars / "all" / "linked").symlink_to(tmp_path / "shared")
    file, line, sentence = only(directory)
    assert (file, line) == ("group_vars/all/linked/b.yml", 1)
    assert "unknown setting no_such_setting" in sentence


@pytest.mark.parametrize("target", [".", "..", "../..", "/"])
def test_links_that_lead_back_are_refused(tmp_path: Path, target: str) -> None:
    directory = cluster(tmp_path, group_vars__all__a="site_a: 1\n")
    (directory.group_vars / "all" / "again").symlink_to(target)
    file, _line, sentence = only(directory)
    assert file == "group_vars/all"
    assert "lead back" in sentence


@pytest.mark.parametrize("opening", ["[", '{"a":', "\n - ", "\n ? "])
def test_nesting_without_end_is_refused(tmp_path: Path, opening: str) -> None:
    text = "site_a: " + opening + opening.lstrip("\n ") * 500_000
    assert "nested more than 64 deep" in only(cluster(tmp_path, group_vars__all=text))[2]


def test_more_values_than_any_inventory_has_are_refused(tmp_path: Path) -> None:
    many = "site_a: [" + "a," * 600_000 + "]\n"
    assert "holds more than 500000 values" in only(cluster(tmp_path, group_vars__all=many))[2]


def test_a_template_that_is_longer_than_any_is_refused(tmp_path: Path) -> None:
    long = "cluster_name: '" + "{{ 1 }}" * 20_000 + "'\n"
    assert "more than 65536 characters" in only(cluster(tmp_path, group_vars__all=long))[2]


def test_a_file_behind_many_links_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, read, files = cluster(tmp_path), yaml_nodes.read, []
    monkeypatch.setattr(yaml_nodes, "read", lambda file: files.append(file.name) or read(file))
    (tmp_path / "group_vars/registry").mkdir(parents=True)
    for number in range(50):
        path = tmp_path / f"group_vars/registry/b{number:02}.yml"
        path.symlink_to("b00.yml") if number else path.write_text("nvidia_driver_brnach: 580\n")
    assert "nvidia_driver_brnach" in only(directory)[2]
    assert [name for name in files if name.startswith("b")] == ["b00.yml"]


@pytest.mark.parametrize("limit", ["MAX_ALL_BYTES", "MAX_ALL_VALUES"])
def test_files_that_have_too_much_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    directory = cluster(tmp_path)
    most = {"MAX_ALL_BYTES": 2_000_000, "MAX_ALL_VALUES": 2_000}[limit]
    monkeypatch.setattr(sys.modules["clusterctl.cluster.settings.check"], limit, most)
    (tmp_path / "group_vars/registry").mkdir(parents=True)
    for number in range(5):
        size = 2_000_000 // 4 if limit == "MAX_ALL_BYTES" else 0
        text = "".join(f"site_{number}_{one}: 1\n" for one in range(300)) + f"# {'x' * size}\n"
        (tmp_path / f"group_vars/registry/b{number}.yml").write_text(text)
    name, _, what = only(directory)
    assert name.endswith("b3.yml")
    assert "the files up to this one have more than" in what


def test_of_thousands_of_problems_the_first_are_named(tmp_path: Path) -> None:
    unknown = "".join(f"hardware_gpu_x{n}: 1\n" for n in range(5000))
    hosts = "".join(f"g-{n}: {{}}\n" for n in range(5000))
    assert len(found(cluster(tmp_path / "a", group_vars__all=unknown))) == 200
    assert len(found(cluster(tmp_path / "b", hosts=hosts))) == 200
