"""A node's files: what a module keeps of the one that it replaces is for the same eyes as that one."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_service
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import keep_copy
from ansible_collections.clusterctl.cluster.plugins.modules import docker_daemon_config


def put_docker(path: Path) -> None:
    docker_daemon_config.write(path, "{}")


def put_containerd(path: Path) -> None:
    containerd = SimpleNamespace(path=path)
    module = SimpleNamespace(check_mode=False)
    containerd_service.put_configuration(module, containerd, "x", "y", {"files": [], "diff": []})


@pytest.mark.parametrize("put", [keep_copy, put_docker, put_containerd])
def test_others_cannot_read_a_copy_while_it_is_written(put: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text("secret")
    path.chmod(0o600)
    modes = set()
    sys.setprofile(lambda *_: modes.update(stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()))
    try:
        put(path)
    finally:
        sys.setprofile(None)
    assert modes == {0o600}
    (copy,) = tmp_path.glob("daemon.json.*~")
    assert copy.read_text() == "secret"


def test_a_copy_has_mode_and_owner_of_the_file_and_ansibles_form_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_text("theirs")
    path.chmod(0o640)
    copy = Path(keep_copy(path))
    assert re.fullmatch(r"ca\.crt\.\d+\.\d{4}-\d\d-\d\d@\d\d:\d\d:\d\d~", copy.name)
    assert (copy.read_text(), stat.S_IMODE(copy.stat().st_mode)) == ("theirs", 0o640)
    assert (copy.stat().st_uid, copy.stat().st_gid) == (path.stat().st_uid, path.stat().st_gid)
