"""containerd's configuration: what of it leaves the node."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_config, containerd_service

AUTH = '''version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "pause"

  [plugins."io.containerd.grpc.v1.cri".registry.configs."nvcr.io".auth]
    password = "S3cret"'''


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_diff_has_the_lines_alone_that_change(end: str, tmp_path: Path) -> None:
    """An operator's passwords for registries stand next to them."""
    before = AUTH + end
    after = containerd_config.with_config_path(before, 2, "/etc/containerd/certs.d")
    after = after.replace('"pause"', '"https://u:p@pause"')
    result: dict[str, Any] = {"files": [], "diff": []}
    containerd = SimpleNamespace(path=tmp_path / "config.toml")
    containerd_service.put_configuration(SimpleNamespace(check_mode=True), containerd, before, after, result)
    (diff,) = result["diff"]
    assert diff["before"] == '  sandbox_image = "pause"\n'
    assert diff["after"].startswith('  sandbox_image = "https://***@pause"\n')
    assert 'config_path = "/etc/containerd/certs.d"' in diff["after"]
    assert "S3cret" not in str(result)


def test_all_of_a_new_file_is_shown() -> None:
    assert containerd_service.changed_lines("", "version = 2\n") == ("", "version = 2\n")
