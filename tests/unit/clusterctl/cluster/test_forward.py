"""A forwarded port whose ssh ends at once."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from clusterctl.cluster import ssh_failures
from clusterctl.cluster.forward import forwarded
from clusterctl.errors import ClusterctlError


class EndedSsh:
    """A transport whose ssh says why it ends, and leaves a process behind that keeps its output open."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def socket_path(self, name: str) -> Path:
        return self._place / name

    def forwarding(self, _node: str, _name: str, _port: int) -> subprocess.Popen[bytes]:
        # Longer than the test waits, and then it ends by itself.
        script = "sleep 40 & echo ssh: connect to host: Connection refused >&2; exit 255"
        return subprocess.Popen(["sh", "-c", script], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)

    reason = staticmethod(ssh_failures.reason)


def test_what_ssh_left_running_is_not_waited_for(tmp_path: Path) -> None:
    transport, refused = EndedSsh(tmp_path), []

    def ask() -> None:
        try:
            with forwarded(transport, "gpu01", 5000):  # type: ignore[arg-type]
                pass
        except ClusterctlError as error:
            refused.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(30)
    has_ended = not asking.is_alive()
    asking.join(30)
    assert has_ended
    assert [error.code for error in refused] == ["images.no-way"]
    assert "its SSH port refuses connections" in refused[0].what
