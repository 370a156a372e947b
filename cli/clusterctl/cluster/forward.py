"""A Unix socket here that leads to an HTTP port of a node's own loopback interface, while it is wanted."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from clustercheck.launch.transport import NodeUnreachableError
from clusterctl.cluster.ssh import LOGIN_S, OpenSshTransport
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError

# Between two looks at a line that is being laid, and before a lost one is laid again.
LOOK_S = 0.05
AGAIN_S = 2.0
END_S = 5.0
MAX_SAID_BYTES = 1 << 16


@contextlib.contextmanager
def forwarded(transport: OpenSshTransport, node: str, port: int) -> Iterator[Path]:
    """The socket. A line that is lost is laid again; who asks meanwhile is refused, and may ask again.

    Raises ClusterctlError (``images.no-way``) where it cannot be laid.
    """
    ended = threading.Event()
    line = _Line(transport, node, port)
    line.start()
    watch = threading.Thread(target=line.keep, args=(ended,), daemon=True)
    watch.start()
    try:
        yield line.socket
    finally:
        ended.set()
        line.end()
        watch.join(LOGIN_S)
        # It may have been started again meanwhile.
        line.end()


class _Line:
    def __init__(self, transport: OpenSshTransport, node: str, port: int) -> None:
        self._transport = transport
        self._node = node
        self._port = port
        self._name = f"port-{port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = transport.socket_path(self._name)

    def start(self) -> None:
        """Start it, and wait until it stands."""
        try:
            process = self._process = self._transport.forwarding(self._node, self._name, self._port)
        except NodeUnreachableError as error:
            raise self._refusal(error.because) from None
        deadline = time.monotonic() + LOGIN_S
        while not self.socket.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
                answer = _said(process.stderr) if process.stderr else ""
                raise self._refusal(self._transport.reason(answer, self._node))
            if time.monotonic() > deadline:
                self.end()
                raise self._refusal(f"no login within {LOGIN_S:.0f} s")
        if not self._answers():
            self.end()
            raise self._refusal("it closes at once: sshd forbids forwarding, or nothing listens there")

    def _answers(self) -> bool:
        """Whether an HTTP server is at its end: ssh takes a connection before it knows."""
        with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
            line.settimeout(LOGIN_S)
            line.connect(str(self.socket))
            line.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return bool(line.recv(1))
        return False

    def keep(self, ended: threading.Event) -> None:
        """Lay it again each time that it is lost, until the end."""
        while not ended.is_set():
            if self._process is not None:
                self._process.wait()
            if not ended.wait(AGAIN_S):
                with contextlib.suppress(ClusterctlError):
                    self.start()

    def end(self) -> None:
        """Take it away."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _refusal(self, because: str) -> ClusterctlError:
        return ClusterctlError(
            f"there is no way to port {self._port} of {self._node}: {because}",
            code="images.no-way",
            where=self._node,
            hint="Images go there through SSH. See that the registry runs (clusterctl apply --only registry) "
            "and that sshd allows TCP forwarding.",
            exit_code=EXIT_CLUSTER_BAD,
        )


def _said(errors: IO[bytes]) -> str:
    """What a program that has ended wrote; what it left running may keep the pipe open."""
    os.set_blocking(errors.fileno(), False)
    try:
        return os.read(errors.fileno(), MAX_SAID_BYTES).decode(errors="replace")
    except BlockingIOError:
        return ""
