"""A forwarded port whose ssh ends at once."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from clusterctl.cluster import ssh_failures
from clusterctl.cluster.forward import forwarded
from clusterctl.errors import ClusterctlError


class EndedSsh:
    """A transport whose ssh says why it ends, and leaves a process behind that keeps its output open."""

    def __init__(self, place: Path) -> None:
        self._place = place

    @property
    def left(self) -> int:
        """The process that it left behind."""
        return int((self._place / "left").read_text())

    def socket_path(self, name: str) -> Path:
        return self._place / name

    def forwarding(self, _node: str, _name: str, _port: int) -> subprocess.Popen[bytes]:
        script = 'sleep 40 & echo $! > "$1"; echo ssh: connect to host: Connection refused >&2; exit 255'
        return subprocess.Popen(
            ["sh", "-c", script, "sh", str(self._place / "left")],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    reason = staticmethod(ssh_failures.reason)


def test_what_ssh_left_running_is_not_waited_for(tmp_path: Path) -> None:
    transport = EndedSsh(tmp_path)
    with (
        pytest.raises(ClusterctlError, match="its SSH port refuses connections") as refused,
        forwarded(transport, "gpu01", 5000),  # type: ignore[arg-type]
    ):
        pass
    assert refused.value.code == "images.no-way"
    os.kill(transport.left, signal.SIGTERM)  # it runs still
