"""Starts Open MPI's daemons on the other nodes for the first one's mpirun, which runs without root and keys.

Shipped to the node with rank.py: stdlib only. On the first node the rank, which knows the keys, takes
commands from what mpirun calls in place of ssh (mpi_agent.py) and passes them on to the ranks that they are
for.
"""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clustercheck.jobs import meeting, mpi_agent, unprivileged
else:  # on a node they are single files, not a package
    meeting, mpi_agent, unprivileged = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("meeting", "mpi_agent", "unprivileged")
    )


class AgentServer:
    """Passes on what mpirun's agents ask for, ``most`` at a time, until it is closed."""

    def __init__(self, place: unprivileged.Workplace, pass_on: Callable[[str, str], int], most: int) -> None:
        """``pass_on`` has a host run a command and returns its exit code; it may raise MeetingError."""
        self._pass_on = pass_on
        self._free = threading.BoundedSemaphore(most)
        agent = place.path / Path(mpi_agent.__file__).name
        shutil.copyfile(mpi_agent.__file__, agent)
        agent.chmod(0o644)
        self.command = shlex.join([sys.executable, str(agent)])
        path = place.path / mpi_agent.SOCKET
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(0o600)
        os.chown(path, unprivileged.USER, unprivileged.USER)  # who may write there may connect
        self._listener.listen(128)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no more commands."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._free.acquire()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        line = meeting.Connection(connection)
        try:
            asked = line.receive(meeting.TICK_S)
            line.send(self._pass_on(str(asked["host"]), str(asked["command"])))
        except (meeting.MeetingError, OSError, TypeError, KeyError, ValueError) as error:
            print(f"no daemon of Open MPI was started: {error}", flush=True)
        finally:
            line.close()
            self._free.release()
