"""Mirrors on a node: which files are written, what goes and what stays, and containerd's one line."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_config
from ansible_collections.clusterctl.cluster.plugins.modules import registry_mirrors as module
from tests.support.called_module import called
from tests.support.mirrors_declared import CA, HUB


def options(tmp_path: Path, **given: Any) -> dict[str, Any]:
    return {
        "address": "harbor.lan", "ca": CA, "mirrors": [HUB], "fail_closed": False, "engines": ["docker"],
        "docker_reads_hosts_toml": True, "credentials": "", "docker_certs": str(tmp_path / "docker"),
        "registries_conf": str(tmp_path / "registries.conf"), "containerd_tree": str(tmp_path / "containerd"),
        **given,
    }  # fmt: skip


def names(files: list[Any], tmp_path: Path) -> list[str]:
    return [str((file.path if hasattr(file, "path") else file).relative_to(tmp_path)) for file in files]


def test_each_engine_gets_the_files_that_it_reads(tmp_path: Path) -> None:
    tree = [str(tmp_path / "containerd")]
    everything = ["docker", "containerd", "containers"]
    assert names(module.wanted_files(options(tmp_path), []), tmp_path) == ["docker/docker.io/hosts.toml"]
    old = options(tmp_path, docker_reads_hosts_toml=False)
    assert module.wanted_files(old, []) == []
    closed = options(tmp_path, engines=everything, docker_reads_hosts_toml=False, fail_closed=True)
    assert names(module.wanted_files(closed, tree), tmp_path) == [
        "containerd/harbor.lan/hosts.toml", "containerd/docker.io/hosts.toml",
        "containerd/_default/hosts.toml", "registries.conf",
    ]  # fmt: skip


def test_what_is_no_longer_declared_goes_and_what_others_wrote_stays(tmp_path: Path) -> None:
    for file in module.wanted_files(options(tmp_path, engines=["docker", "containers"]), []):
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(file.content, encoding="utf-8")
    theirs = tmp_path / "docker/quay.io/hosts.toml"
    theirs.parent.mkdir()
    theirs.write_text('server = "https://theirs"\n', encoding="utf-8")
    less = options(tmp_path, mirrors=[])
    stale = module.stale_files(less, [], module.wanted_files(less, []))
    assert names(stale, tmp_path) == ["docker/docker.io/hosts.toml", "registries.conf"]


def test_a_file_with_a_secret_that_others_can_read_is_not_as_it_should_be(tmp_path: Path) -> None:
    wanted = module.MirrorFile(tmp_path / "hosts.toml", 'authorization = "Basic x"\n')
    wanted.path.write_text(wanted.content, encoding="utf-8")
    wanted.path.chmod(0o644)
    assert not wanted.is_there()
    wanted.path.chmod(0o600)
    assert wanted.is_there()


DEBIANS = """version = 2

[plugins]
  # theirs
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
"""
EMPTY_PATH = """version = 3
[plugins.'io.containerd.cri.v1.images'.registry]
   config_path = ''  # none

[plugins.'io.containerd.cri.v1.images'.pinned_images]
   sandbox = 'pause'
"""


@pytest.mark.parametrize(
    "text", [DEBIANS, EMPTY_PATH, "", 'version = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\n']
)
def test_one_line_is_set_in_containerds_options_and_the_rest_stays(text: str) -> None:
    version = containerd_config.format_version(text) if text else 3
    after = containerd_config.with_config_path(text, version, "/etc/containerd/certs.d")
    before, read = tomllib.loads(text), tomllib.loads(after)
    section = read["plugins"][containerd_config.PLUGINS[version]]["registry"]
    assert section.pop("config_path") == "/etc/containerd/certs.d"
    assert all(line in after.splitlines() for line in text.splitlines() if "config_path" not in line)
    assert containerd_config.registry_trees(after) == ["/etc/containerd/certs.d"]
    assert containerd_config.with_config_path(after, version, "/etc/containerd/certs.d") == after
    if "cni" in text:
        cri = "io.containerd.grpc.v1.cri"
        assert read["plugins"][cri]["cni"] == before["plugins"][cri]["cni"]


def test_the_old_form_of_mirrors_is_in_the_way_and_empty_tables_are_not() -> None:
    cri = 'plugins."io.containerd.grpc.v1.cri".registry'
    assert containerd_config.in_the_way(f"[{cri}.mirrors]\n[{cri}.configs]\n[{cri}.auths]\n") == []
    assert containerd_config.in_the_way(f'[{cri}.mirrors."docker.io"]\n') == ["registry.mirrors"]
    assert containerd_config.in_the_way(f'[{cri}.configs."h:1".auth]\n') == []
    assert containerd_config.in_the_way(f'[{cri}.configs."h:1".tls]\n') == ["registry.configs.tls"]
    with pytest.raises(ValueError, match="config migrate"):
        containerd_config.with_config_path("root = '/x'\n", 1, "/x")


def test_a_secret_reaches_the_disk_as_roots_alone(tmp_path: Path) -> None:
    wanted = module.MirrorFile(tmp_path / "t/docker.io/hosts.toml", 'x\nauthorization = "Basic x"\n')
    module.replace_file(wanted.path, wanted.content, wanted.mode)
    assert stat.S_IMODE(wanted.path.stat().st_mode) == 0o600


def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, check: bool = False, **given: Any
) -> dict[str, Any]:
    """The module as Ansible calls it, on directories of our own."""
    arguments = {
        **options(tmp_path), "record": str(tmp_path / "record"), "daemon_json": str(tmp_path / "daemon.json"),
        "containerd_config": str(tmp_path / "config.toml"), **given,
    }  # fmt: skip
    return called(module, arguments, tmp_path, capsys, check=check)


def test_check_mode_says_what_the_run_does_and_a_second_run_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = ["docker", "containers"]
    told = run(tmp_path, capsys, check=True, engines=engines)
    assert told["changed"]
    assert not (tmp_path / "registries.conf").exists()
    did = run(tmp_path, capsys, engines=engines)
    assert did["files"] == told["files"]
    assert not run(tmp_path, capsys, engines=engines)["changed"]
    gone = run(tmp_path, capsys, engines=engines, mirrors=[])
    assert gone["files"] == did["files"]
    assert list((tmp_path / "docker").iterdir()) == []
    assert not run(tmp_path, capsys, engines=engines, mirrors=[])["changed"]


def test_dockers_own_list_follows_what_is_declared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {"docker_reads_hosts_toml": False, "docker_version": "20.10"}
    plain = {"upstream": "docker.io", "url": "https://registry01:5000"}
    did = run(tmp_path, capsys, mirrors=[plain], **old)
    assert (did["registry_mirrors"], did["former"]) == (["https://registry01:5000"], [])
    (tmp_path / "daemon.json").write_text(
        '{"registry-mirrors": ["https://registry01:5000"]}', encoding="utf-8"
    )
    later = run(tmp_path, capsys, mirrors=[], **old)
    assert (later["registry_mirrors"], later["former"]) == ([], ["https://registry01:5000"])
    (tmp_path / "daemon.json").write_text("{}", encoding="utf-8")
    assert run(tmp_path, capsys, mirrors=[], **old)["former"] == []
    refused = run(tmp_path, capsys, mirrors=[HUB], fail_closed=True, **old)
    assert refused["failed"]
    assert "Docker 20.10 cannot use these mirrors" in refused["msg"]
