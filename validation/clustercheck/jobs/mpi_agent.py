"""What Open MPI calls in place of ssh: ``python mpi_agent.py HOST COMMAND ...`` has a daemon started there.

It runs as a user that knows no key (unprivileged.py), from a directory of root's where that user can read.
The first node's rank, which listens beside it (mpi_daemons.py), passes the command on and answers with its
exit code.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

SOCKET = "agent"


def main(argv: Sequence[str]) -> int:
    """Ask for the command and wait until it has ended."""
    host, *command = argv
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(Path(__file__).absolute().with_name(SOCKET)))
        connection.sendall(json.dumps({"host": host, "command": " ".join(command)}).encode() + b"\n")
        with connection.makefile("rb") as answer:
            return int(answer.readline(64) or 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
