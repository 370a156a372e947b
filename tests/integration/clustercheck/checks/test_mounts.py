"""Declared mounts, as root touches them for a user."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from tests.unit.clustercheck.checks.test_mounts import touch


@pytest.mark.needs("root")
def test_root_writes_as_the_user(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    for path in (*tmp_path.parents, tmp_path):
        if path.stat().st_uid == os.getuid() and path.is_relative_to("/tmp/pytest-of-root"):
            path.chmod(0o755)
    assert touch(inside, "nobody")["stderr"] == "Permission denied\n"
    os.chown(inside, pwd.getpwnam("nobody").pw_uid, -1)
    assert touch(inside, "nobody")["rc"] == 0
