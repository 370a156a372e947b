"""Where Ansible keeps its SSH connections open between the playbooks of one command."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path


@cache
def connections_of(cluster: Path) -> Path:
    """A directory for the sockets of connections to this cluster's hosts, which goes with this process.

    Ansible names a connection by address, port and user: in a directory that all share, a command would go on
    with one to another cluster's host of that address, or with one whose key is no longer trusted.
    """
    # A socket's path may have 107 bytes; nobody else can enter this directory.
    made = tempfile.TemporaryDirectory(prefix="cctl-", dir="/tmp", ignore_cleanup_errors=True)
    atexit.register(made.cleanup)
    return Path(made.name)
