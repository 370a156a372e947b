"""Where registries keep their data: nowhere that another account made, may write or can exchange."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.modules import (
    harbor_installer,
    harbor_preflight,
    registry_data_directory,
)
from tests.support.played_module import PlayedModule, result_of

pytestmark = pytest.mark.needs("root")  # whose directories are to be
USER, SERVICE = 4711, 4712


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory in which everybody makes his own."""
    place = tmp_path / "data"
    place.mkdir()
    place.chmod(0o1777)
    return place


def test_what_a_link_of_roots_leads_to_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srv").symlink_to(tmp_path / "disk")
    assert provided(tmp_path / "srv/registry", monkeypatch, check_mode=True) == {"changed": True}
    assert provided(tmp_path / "srv/registry", monkeypatch) == {"changed": True}
    assert provided(tmp_path / "srv/registry", monkeypatch) == {"changed": False}
    assert (tmp_path / "disk/registry").is_dir()


def made_by(owner: int, directory: Path, mode: int = 0o755) -> Path:
    """A directory that this account made, with those above it."""
    new = [directory, *(above for above in directory.parents if not above.exists())]
    directory.mkdir(parents=True)
    directory.chmod(mode)
    for one in new:
        os.chown(one, owner, owner)
    return directory


def provided(path: Path, monkeypatch: pytest.MonkeyPatch, *, check_mode: bool = False) -> dict[str, Any]:
    module = PlayedModule({"path": str(path), "owner": "service"}, check_mode=check_mode)
    monkeypatch.setattr(registry_data_directory, "AnsibleModule", lambda *_, **__: module)
    monkeypatch.setattr(registry_data_directory, "account", lambda _: SERVICE)
    return result_of(registry_data_directory.main)


def test_what_is_missing_is_made_once(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = shared / "a/registry"
    assert provided(place, monkeypatch, check_mode=True) == {"changed": True}
    assert not (shared / "a").exists()
    assert provided(place, monkeypatch) == {"changed": True}
    assert (place.stat().st_uid, place.stat().st_mode & 0o777) == (0, 0o700)
    os.chown(place, SERVICE, SERVICE)  # as its unit does
    made_by(SERVICE, place / "docker")
    assert provided(place, monkeypatch) == {"changed": False}


@pytest.mark.parametrize(
    ("path", "made", "said"),
    [
        ("registry", (USER, 0o755), "data/registry belongs to user 4711"),
        ("registry", (SERVICE, 0o777), "data/registry may be written by others than root"),
        ("of-a-user/registry", (USER, 0o755), "data/of-a-user belongs to user 4711"),
        ("of-the-service/registry", (SERVICE, 0o755), "data/of-the-service belongs to user 4712"),
    ],
)
def test_what_another_made_is_refused(
    shared: Path, monkeypatch: pytest.MonkeyPatch, path: str, made: tuple[int, int], said: str
) -> None:
    owner, mode = made
    made_by(owner, shared / path, mode)
    for check_mode in (True, False):
        refused = provided(shared / path, monkeypatch, check_mode=check_mode)
        assert said in refused["msg"] and refused["code"] == "registry.data-directory"


BLOBS = "docker/registry/v2/blobs"


@pytest.mark.parametrize("left", ["docker", "docker/registry", f"{BLOBS}/sha256"])
def test_what_another_left_in_it_is_refused(shared: Path, monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    place = shared / "registry"
    made_by(USER, place / left)
    for above in [place, *(place / left).relative_to(place).parents]:
        os.chown(place / above, SERVICE, SERVICE)
    refused = provided(place, monkeypatch)
    assert f"registry/{left} may be written by another account" in refused["msg"]
    assert f"chown -R service: {place}" in refused["msg"]


def test_what_others_may_write_in_it_is_refused(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_by(SERVICE, shared / "registry" / BLOBS, 0o777)
    assert f"registry/{BLOBS} may be" in provided(shared / "registry", monkeypatch)["msg"]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_the_service_comes_to_it_whatever_roots_umask_is(
    shared: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    before = os.umask(umask)
    try:
        provided(shared / "a/b/registry", monkeypatch)
    finally:
        os.umask(before)
    assert [place.stat().st_mode & 0o777 for place in (shared / "a", shared / "a/b")] == [0o755, 0o755]


def test_harbor_is_not_taken_from_where_all_may_write(shared: Path) -> None:
    assert "data may be written by others" in harbor_preflight.exchangeable(shared)[0]


@pytest.mark.parametrize("made", ["harbor/releases/v2.15.2/harbor", "harbor", "images"])
def test_harbor_runs_nothing_and_keeps_nothing_where_another_may_write(
    shared: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    made_by(USER, shared / made)
    asked = {"directory": str(shared / "harbor"), "data_dir": str(shared / "images"), "version": "v2.15.2"}
    looked = PlayedModule(
        {**asked, "ports": {}, "min_free_gb": 0, "upgrade": False, "restoring": False}, check_mode=True
    )
    monkeypatch.setattr(harbor_preflight, "AnsibleModule", lambda *_, **__: looked)
    refused = result_of(harbor_preflight.main)
    assert refused["code"] == "harbor.refused" and "belongs to user 4711" in refused["msg"]


def test_no_installer_is_unpacked_where_another_may_write(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was made between the look and the step."""
    made_by(USER, shared / "harbor")
    params = dict.fromkeys(("url", "signature", "key", "http_proxy", "https_proxy", "no_proxy"), "")
    module = PlayedModule(
        {
            **params, "archive": str(shared / "h.tgz"), "sha256": "00", "version": "v2.15.2",
            "directory": str(shared / "harbor"), "images_by_tag": False,
        }
    )  # fmt: skip
    monkeypatch.setattr(harbor_installer, "AnsibleModule", lambda *_, **__: module)
    refused = result_of(harbor_installer.main)
    assert refused["code"] == "harbor.installer" and "belongs to user 4711" in refused["msg"]
    assert not list((shared / "harbor").iterdir())
