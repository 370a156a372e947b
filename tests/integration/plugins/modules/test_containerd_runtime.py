"""NVIDIA's runtime in containerd's configuration, with containerd itself."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_config
from ansible_collections.clusterctl.cluster.plugins.modules import containerd_runtime as module
from tests.support.called_module import called
from tests.support.mirrors_declared import needs_containerd
from tests.unit.plugins.modules.test_containerd_runtime import DOCKERS
from tests.unit.plugins.modules.test_registry_mirrors import DEBIANS

pytestmark = needs_containerd
BINARY = "/usr/bin/nvidia-container-runtime"


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], check: bool = False) -> dict[str, Any]:
    arguments = {"containerd_config": str(tmp_path / "config.toml")}
    return called(module, arguments, tmp_path, capsys, check=check)


@pytest.mark.parametrize("text", [DEBIANS, DOCKERS, ""])
def test_containerd_itself_takes_the_runtime_and_a_second_run_changes_nothing(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text, encoding="utf-8")
    planned = run(tmp_path, capsys, check=True)
    assert (planned["files"], config.read_text(encoding="utf-8")) == ([str(config)], text)
    assert run(tmp_path, capsys)["files"] == [str(config)]
    dumped = subprocess.run(
        ["containerd", "--config", str(config), "config", "dump"], capture_output=True, text=True, check=True
    ).stdout
    assert containerd_config.runtime_binary(dumped, "nvidia") == BINARY
    assert containerd_config.runtime_binary(dumped, "runc") == ""
    assert containerd_config.cdi_state(dumped) in ("true", "")
    assert bool(list(tmp_path.glob("config.toml.*~"))) is bool(text), "what was there is kept next to it"
    assert not run(tmp_path, capsys)["changed"]


def test_kubernetes_plugin_starts_with_the_runtime(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It refuses a file in which the default runtime, runc, is no longer among the runtimes."""
    config, address = tmp_path / "config.toml", tmp_path / "c.sock"
    config.write_text(
        f'version = 2\n[grpc]\n  address = "{address}"\n[ttrpc]\n  address = "{address}.ttrpc"\n',
        encoding="utf-8",
    )
    run(tmp_path, capsys)
    command = ["containerd", "--config", str(config), "--root", str(tmp_path / "root")]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified,
        (tmp_path / "log").open("wb") as log,
    ):
        notified.bind(str(tmp_path / "ready"))
        notified.settimeout(120)
        daemon = subprocess.Popen(
            [*command, "--state", str(tmp_path / "state")], stdout=log, stderr=log,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "ready")},
        )  # fmt: skip
        try:
            while b"READY=1" not in notified.recv(4096):
                pass
            list_plugins = ["ctr", "--address", str(address), "plugins", "ls"]
            shown = subprocess.run(list_plugins, capture_output=True, text=True, check=True)
        finally:
            daemon.terminate()
            daemon.wait(60)
    states = {words[1]: words[-1] for line in shown.stdout.splitlines() if len(words := line.split()) > 2}
    assert states["cri"] == "ok", (tmp_path / "log").read_text(encoding="utf-8")[-3000:]


def test_a_configuration_that_containerd_does_not_take_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("version = 2\n[plugins\n", encoding="utf-8")
    refused = run(tmp_path, capsys)
    assert refused["failed"] and "containerd does not take" in refused["msg"]
    assert config.read_text(encoding="utf-8") == "version = 2\n[plugins\n"
    assert [path.name for path in tmp_path.iterdir() if "clusterctl" in path.name] == []
