"""Whose disk is asked for room before images go to a registry: the one that they will lie on, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from clustercheck.launch.transport import Completed
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Inventory, load
from clusterctl.commands.images import bringing
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import registries
from clusterctl.registry.images.declared import cluster_setting, declared_images
from clusterctl.registry.images.mirror import MirrorPlan
from clusterctl.registry.images.recipe import declared_recipes
from clusterctl.registry.images.registries import Destination, source_endpoint, writable
from clusterctl.registry.oci.reference import is_address, parse


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


def asks_source(found: Inventory) -> str:
    """The address at which a source is asked."""
    return source_endpoint(found, parse("reg.lan/a/b:1")).host


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


@pytest.mark.parametrize(
    ("more", "asks"),
    [
        ({"images": "{{ 5 }}"}, declared_images),
        ({"images": [{"source": "reg.lan/a/b:1", "platforms": "{{ 5 }}"}]}, declared_images),
        *(
            ({"image_builds": [{"name": "x", "base": "b", "target": "a/b:1", key: made}]}, declared_recipes)
            for key, made in (
                ("uid", "{{ 'abc' }}"), ("requirements", "{{ 5 }}"), ("labels", "{{ [1] }}"),
                ("nccl_tests", "{{ 5 }}"), ("packages", "{{ 5 }}"),
            )
        ),
        ({"images_source_addresses": "{{ [1] }}"}, asks_source),
        ({"images_source_addresses": "{{ 'x' }}"}, asks_source),
        ({"images_source_addresses": {"reg.lan": "{{ [1] }}"}}, asks_source),
        ({"images_source_addresses": {"reg.lan": "a..b"}}, asks_source),
        ({"images_source_addresses": {"reg.lan": "bob:correct-horse@10.0.0.9:5000"}}, asks_source),
        (
            {"images_bundle_signers": "{{ 5 }}"},
            lambda found: cluster_setting(found, "images_bundle_signers", "images.bundle-signer"),
        ),
        *(
            ({"site_https_proxy": proxy}, asks_source)
            for proxy in ("http://[zz]", "http://[::1", "http://a..b:1", "http://x:99999999", "http://")
        ),
    ],
    ids=lambda each: str(each) if isinstance(each, dict) else each.__name__,
)  # fmt: skip
def test_a_value_of_another_kind_is_refused_also_where_a_template_makes_it(
    tmp_path: Path, more: dict[str, Any], asks: Callable[[Inventory], object]
) -> None:
    with pytest.raises(ClusterctlError) as refused:
        asks(inventory(tmp_path, **more))
    assert refused.value.code in ("settings.type", "settings.value")
    assert "gpu01" in (refused.value.where or "")


def test_templates_of_the_right_kind_are_taken(tmp_path: Path) -> None:
    found = inventory(
        tmp_path,
        images=[{"source": "{{ 'reg.lan' }}/a/b:1", "platforms": "{{ ['all'] }}"}],
        images_source_addresses="{{ {'reg.lan': '10.0.0.9:5000'} }}",
    )
    (image,) = declared_images(found)
    assert (image.source.host, image.platforms) == ("reg.lan", ())
    assert asks_source(found) == "10.0.0.9:5000"


@pytest.mark.parametrize("kind", ["harbor", "embedded"])
@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("fd00::10", "[fd00::10]:"),
        ("[fd00::10]", "[fd00::10]:"),
        ("192.0.2.2", "192.0.2.2:"),
        ("r.lan", "r.lan:"),
    ],
)
def test_a_registry_is_asked_at_its_address_of_either_kind(
    tmp_path: Path, kind: str, address: str, asked: str
) -> None:
    found = registries.own_endpoint(inventory(tmp_path, registry_kind=kind, registry_address=address))
    assert found.host.startswith(asked)
    assert is_address(f"https://{found.host}")
