"""Mirrors in containerd's configuration, with containerd itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_config, containerd_service
from tests.support.mirrors_declared import needs_containerd
from tests.unit.plugins.modules.test_registry_mirrors import DEBIANS, run


@needs_containerd
@pytest.mark.parametrize("text", [DEBIANS, ""])
def test_containerd_itself_takes_the_line(text: str, tmp_path: Path) -> None:
    said = subprocess.run(["containerd", "--version"], capture_output=True, text=True, check=True).stdout
    version = containerd_config.format_version(text) if text else containerd_config.default_version(said)
    config = tmp_path / "config.toml"
    config.write_text(containerd_config.with_config_path(text, version, "/trees"), encoding="utf-8")
    dumped = subprocess.run(
        ["containerd", "--config", str(config), "config", "dump"], capture_output=True, text=True, check=True
    ).stdout
    assert containerd_config.registry_trees(dumped) == ["/trees"]


@needs_containerd
def test_containerd_is_given_a_tree_once_it_has_taken_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(DEBIANS, encoding="utf-8")
    told = run(tmp_path, capsys, check=True, engines=["containerd"])
    assert config.read_text(encoding="utf-8") == DEBIANS
    did = run(tmp_path, capsys, engines=["containerd"])
    assert did["files"] == told["files"] == [
        str(config), str(tmp_path / "containerd/harbor.lan/hosts.toml"),
        str(tmp_path / "containerd/docker.io/hosts.toml"),
    ]  # fmt: skip
    assert list(tmp_path.glob("config.toml.*~")), "what was there is kept next to it"
    assert not run(tmp_path, capsys, engines=["containerd"])["changed"]
    # A tree of the operator's own is used, and his line stays.
    theirs = config.read_text(encoding="utf-8").replace(
        str(tmp_path / "containerd"), str(tmp_path / "theirs")
    )
    config.write_text(theirs, encoding="utf-8")
    moved = run(tmp_path, capsys, engines=["containerd"])
    assert config.read_text(encoding="utf-8") == theirs
    assert (tmp_path / "theirs/docker.io/hosts.toml").is_file()
    assert str(tmp_path / "containerd/docker.io/hosts.toml") in moved["files"]
    assert not (tmp_path / "containerd/docker.io").exists()


@needs_containerd
@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("version = 2\n[plugins\n", "containerd does not take"),
        ('version = 2\n[plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]\n',
         "has registry.mirrors, and containerd accepts no config_path with it"),
        ('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  registry = {config_path = ""}\n',
         "does not take"),
    ],
)  # fmt: skip
def test_a_configuration_that_one_line_does_not_mend_is_left_alone(
    text: str, because: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text, encoding="utf-8")
    refused = run(tmp_path, capsys, engines=["containerd"])
    assert refused["failed"]
    assert because in refused["msg"]
    assert config.read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir() if "clusterctl" in path.name] == []


@needs_containerd
def test_the_containerd_of_a_kubelet_is_neither_changed_nor_restarted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees that it reads already are filled: it reads hosts.toml at each pull."""
    config = tmp_path / "config.toml"
    config.write_text(DEBIANS, encoding="utf-8")
    for check in (True, False):
        refused = run(tmp_path, capsys, check=check, engines=["containerd"], kubelet=True)
        assert refused["failed"]
        assert (
            "the kubelet of this host uses containerd: it was neither changed nor restarted" in refused["msg"]
        )
        line = f'config_path = "{tmp_path}/containerd" below [plugins."io.containerd.grpc.v1.cri".registry]'
        assert line in refused["clusterctl"]["remedy"]
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]
    assert config.read_text(encoding="utf-8") == DEBIANS

    theirs = containerd_config.with_config_path(DEBIANS, 2, str(tmp_path / "theirs"))
    config.write_text(theirs, encoding="utf-8")
    monkeypatch.setattr(containerd_service, "main_pid", lambda _module, _unit: 4711)
    monkeypatch.setattr(containerd_service, "started_at", lambda _pid: 0.0)
    did = run(tmp_path, capsys, engines=["containerd"], kubelet=True)
    assert (tmp_path / "theirs/docker.io/hosts.toml").is_file()
    assert config.read_text(encoding="utf-8") == theirs
    assert (did["changed"], did["restarted"]) == (True, False)
    assert "restart it with the means of that cluster" in str(did["warnings"])
    assert not run(tmp_path, capsys, engines=["containerd"], kubelet=True)["changed"]
