"""Temporary directories are made where nobody else can put their own in the place of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from clusterctl.cluster.private_place import private_place
from clusterctl.errors import ClusterctlError


@pytest.mark.parametrize(("mode", "refused"), [(0o700, False), (0o1777, False), (0o777, True)])
def test_a_directory_that_all_write_and_that_is_not_sticky_is_refused(
    mode: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(mode)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    if refused:
        with pytest.raises(ClusterctlError) as found, private_place("x-"):
            pass
        assert found.value.code == "cluster.not-trusted"
        assert f"the directory {scratch}, in which it is, is world-writable" in found.value.what
        assert list(scratch.iterdir()) == []
    else:
        with private_place("x-") as place:
            assert place.parent == scratch
            assert place.stat().st_mode & 0o777 == 0o700
        assert not place.exists()
