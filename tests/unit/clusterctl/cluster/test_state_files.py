"""The lock on the state directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from clusterctl.cluster import state_files
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.errors import ClusterctlError


def test_a_lock_that_another_process_keeps_is_an_error_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "LOCK_LIMIT_S", 0.1)
    directory = ClusterDirectory(tmp_path)
    directory.ensure_state()
    descriptor = os.open(directory.state, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(ClusterctlError) as refused, state_files.locked(directory):
        pytest.fail("it was locked by another")
    assert (refused.value.code, refused.value.where) == ("cluster.state-locked", str(directory.state))
    os.close(descriptor)
    with state_files.locked(directory):
        pass
