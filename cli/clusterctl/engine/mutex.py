"""One operator at a time changes a cluster directory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator

from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.quarantine import operator
from clusterctl.cluster.state_form import open_plain
from clusterctl.errors import ClusterctlError
from clusterctl.runs.store import now


@contextlib.contextmanager
def held(cluster: ClusterDirectory, what: str) -> Iterator[None]:
    """Hold the cluster directory while doing ``what``. The kernel lets go when we die, however we die.

    Raises ClusterctlError (``engine.held``, exit 2) that says who holds it, doing what, where, since when.
    """
    cluster.ensure_state()
    with state_access():
        descriptor = open_plain(cluster.mutex, os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _refusal(cluster, os.pread(descriptor, 4096, 0)) from None
        holder = {
            "what": what,
            "who": operator(),
            "where": os.uname().nodename,
            "pid": os.getpid(),
            "since": now(),
        }
        _note(descriptor, (json.dumps(holder) + "\n").encode())
        try:
            yield
        finally:
            _note(descriptor, b"")
    finally:
        os.close(descriptor)


def _note(descriptor: int, holder: bytes) -> None:
    """Say who holds it, as far as a full disk takes that: the lock is the kernel's."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder, 0)


def _refusal(cluster: ClusterDirectory, content: bytes) -> ClusterctlError:
    try:
        holder = json.loads(content)
        output = "{who} on {where} has been running {what} on this cluster since {since}".format(**holder)
        hint = "Wait until it has finished: process {pid} on {where}.".format(**holder)
    except (ValueError, KeyError, TypeError, RecursionError):
        output, hint = "another process has just started to change this cluster", "Try again in a moment."
    return ClusterctlError(output, code="engine.held", where=str(cluster.mutex), hint=hint)
