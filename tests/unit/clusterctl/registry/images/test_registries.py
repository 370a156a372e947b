"""Whose disk is asked for room before images go to a registry: the one that they will lie on, or none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from clustercheck.launch.transport import Completed
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Inventory, load
from clusterctl.commands.images import bringing
from clusterctl.registry.images import registries
from clusterctl.registry.images.mirror import MirrorPlan
from clusterctl.registry.images.registries import Destination, writable


def inventory(root: Path, *, with_host: bool = True, **more: object) -> Inventory:
    """A cluster whose registry is a Harbor, on a host of ours or of somebody's."""
    said = {"registry_kind": "harbor", "registry_hostname": "h.lan", "registry_address": "192.0.2.2", **more}
    (root / "group_vars").mkdir()
    (root / "group_vars/all.yml").write_text(yaml.safe_dump(said))
    hosts = {"gpu_nodes": {"hosts": {"gpu01": {"ansible_host": "192.0.2.1"}}}}
    if with_host:
        hosts["registry"] = {"hosts": {"registry01": {"ansible_host": "192.0.2.2"}}}
    (root / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": hosts}}))
    return load(ClusterDirectory(root))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories that were asked for room."""
    found: list[str] = []

    def free(_transport: object, _node: str, directory: str) -> int:
        found.append(directory)
        return 7

    monkeypatch.setattr(registries, "_free", free)
    return found


def test_a_harbor_on_its_own_disk_is_asked(tmp_path: Path, asked: list[str]) -> None:
    with writable(inventory(tmp_path, harbor_data_dir="/srv/harbor"), Passwords()) as destination:
        assert destination.free() == 7
    assert asked == ["/srv/harbor"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"harbor_storage_driver": "s3"}, "not on its host's disk (s3)"),
        ({"with_host": False}, "no host of it"),
        ({"to": "http://127.0.0.1:5000"}, "not the cluster's own"),
    ],
)
def test_where_nobody_can_look_that_is_said_and_no_disk_is_asked(
    more: dict, why: str, tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    to = more.pop("to", "")
    with writable(inventory(tmp_path, **more), Passwords(), to) as destination:
        bringing.require_room(MirrorPlan(), destination)
    assert asked == []
    said = " ".join(capsys.readouterr().err.split())
    assert "was not checked" in said
    assert why in said


def test_a_host_that_does_not_say_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    bringing.require_room(MirrorPlan(), Destination(None, "h.lan"))  # type: ignore[arg-type]
    assert "its host does not say" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("said", "free"),
    [("     Avail\n123456\n", 123456), ("Avail\n²\n", None), ("1" * 5000, None), ("", None), ("-1x\n", None)],
)
def test_what_a_host_says_of_its_disk_is_a_number_or_nothing(said: str, free: int | None) -> None:
    def run(*_words: object, **_limits: object) -> Completed:
        return Completed(0, said, "")

    assert registries._free(SimpleNamespace(run=run), "registry01", "/srv") == free  # type: ignore[arg-type]
