"""Mirrors: one model, and the files of every engine."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import registry_mirrors
from ansible_collections.clusterctl.cluster.plugins.modules import docker_daemon_config
from ansible_collections.clusterctl.cluster.plugins.modules import registry_mirrors as module
from tests.support.mirrors_declared import CA, HUB, model


def toml_of(*declared: dict[str, Any], fail_closed: bool = False, **credentials: str) -> dict[str, Any]:
    mirrors = model(*declared, fail_closed=fail_closed)["docker.io"]
    return tomllib.loads(registry_mirrors.hosts_toml("docker.io", mirrors, CA, credentials))


def test_a_mirror_with_a_path_stands_behind_v2_and_the_upstream_is_the_last_resort() -> None:
    read = toml_of(HUB)
    assert read["server"] == "https://registry-1.docker.io"
    assert read["host"] == {
        "https://harbor.lan/v2/dockerhub": {
            "capabilities": ["pull", "resolve"], "ca": CA, "override_path": True,
        }
    }  # fmt: skip


@pytest.mark.parametrize("how", [{"fallback": False}, {}])
def test_fail_closed_leaves_nobody_to_ask_but_the_mirror(how: dict[str, Any]) -> None:
    read = toml_of({**HUB, **how}, fail_closed=not how)
    asked = {"capabilities": ["pull", "resolve"], "ca": CA, "override_path": True}
    mirror = "https://harbor.lan/v2/dockerhub"
    assert read == {"server": mirror, **asked, "host": {mirror: asked}}


def test_several_mirrors_keep_their_order_and_one_that_is_closed_closes_all() -> None:
    second = {"upstream": "docker.io", "url": "http://cache:5000", "fallback": False}
    text = registry_mirrors.hosts_toml("docker.io", model(HUB, second)["docker.io"], CA, {})
    assert list(tomllib.loads(text)["host"]) == ["https://harbor.lan/v2/dockerhub", "http://cache:5000"]
    assert tomllib.loads(text)["server"] == "http://cache:5000"
    assert "docker.io" not in text


def test_credentials_go_to_their_own_host_alone_into_a_file_of_roots_alone() -> None:
    other = {"upstream": "docker.io", "url": "https://elsewhere/hub"}
    text = registry_mirrors.hosts_toml(
        "docker.io", model(HUB, other)["docker.io"], CA, {"harbor.lan": "Basic c2VjcmV0"}
    )
    read = tomllib.loads(text)["host"]
    assert read["https://harbor.lan/v2/dockerhub"]["header"] == {"authorization": "Basic c2VjcmV0"}
    assert "header" not in read["https://elsewhere/v2/hub"]
    assert "c2VjcmV0" not in registry_mirrors.without_secrets(text)
    by_port = registry_mirrors.hosts_toml(
        "docker.io", model(HUB, other)["docker.io"], CA, {"harbor.lan:443": "Basic c2VjcmV0"}
    )
    assert by_port == text
    assert module.MirrorFile(Path("/x/hosts.toml"), text).mode == 0o600
    assert module.MirrorFile(Path("/x/hosts.toml"), "server\n").mode == 0o644


@pytest.mark.parametrize(
    "url", ["http://harbor.lan/hub", "http://harbor.lan:443/hub", "http://harbor.lan:80"]
)
@pytest.mark.parametrize("name", ["harbor.lan", "harbor.lan:80", "harbor.lan:443"])
def test_no_mirror_without_tls_is_given_credentials(url: str, name: str) -> None:
    plain = {"upstream": "docker.io", "url": url, "fallback": False}
    text = registry_mirrors.hosts_toml("docker.io", model(plain)["docker.io"], CA, {name: "Basic c2VjcmV0"})
    assert "authorization" not in text


def test_registries_conf_rewrites_where_the_upstream_must_not_be_asked() -> None:
    open_ended = tomllib.loads(registry_mirrors.registries_conf(model(HUB)))["registry"]
    assert open_ended == [
        {"prefix": "docker.io", "location": "docker.io", "mirror": [{"location": "harbor.lan/dockerhub"}]}
    ]
    closed = tomllib.loads(registry_mirrors.registries_conf(model(HUB, fail_closed=True)))["registry"]
    assert closed == [{"prefix": "docker.io", "location": "harbor.lan/dockerhub"}]


def test_what_dockers_own_list_of_mirrors_cannot_do_is_said() -> None:
    plain = {"upstream": "docker.io", "url": "https://registry01:5000/"}
    assert registry_mirrors.unusable_by_daemon(model(plain)) == []
    assert registry_mirrors.daemon_mirrors(model(plain)) == ["https://registry01:5000"]
    assert "no path" in registry_mirrors.unusable_by_daemon(model(HUB))[0]
    assert "always asks docker.io" in registry_mirrors.unusable_by_daemon(model(plain, fail_closed=True))[0]
    quay = {"upstream": "quay.io", "url": "https://registry01:5000"}
    assert "only docker.io" in registry_mirrors.unusable_by_daemon(model(quay))[0]


@pytest.mark.parametrize(
    ("one", "because"),
    [
        ({"upstream": "docker.io", "url": "registry01:5000"}, "not an address"),
        ({"upstream": "docker.io", "url": "https://user:word@registry01"}, "not an address"),
        ({"upstream": "docker.io", "url": 'https://x"]\nserver="y'}, "not an address"),
        ({"upstream": "https://docker.io", "url": "https://registry01"}, "not an upstream"),
    ],
)
def test_a_mirror_that_no_engine_could_use_is_refused(one: dict[str, Any], because: str) -> None:
    with pytest.raises(ValueError, match=because):
        model(one)


def test_a_mirror_of_ours_leaves_daemon_json_and_an_operators_stays() -> None:
    ours, theirs = "https://registry01:5000", "https://theirs"
    daemon = f'{{"registry-mirrors": ["{ours}/", "{theirs}"]}}'
    assert module.former_mirrors(f'["{ours}"]', daemon, []) == [ours]
    assert module.former_mirrors(f'["{ours}"]', daemon, [ours]) == []
    assert module.former_mirrors("", daemon, []) == []
    gone = {"registry-mirrors": [ours]}
    both = {"registry-mirrors": [ours + "/", theirs], "debug": True}
    assert docker_daemon_config.without_items(both, gone) == {"registry-mirrors": [theirs], "debug": True}
    # Named and empty: a daemon that is reloaded keeps what the file does not name.
    assert docker_daemon_config.without_items({"registry-mirrors": [ours]}, gone) == {"registry-mirrors": []}
    shown = {"RegistryConfig": {"Mirrors": [f"{ours}/", theirs]}}
    assert docker_daemon_config.unmet({}, shown, gone)["reload"] == [f"registry-mirrors without {ours}"]
    assert docker_daemon_config.unmet({}, {"RegistryConfig": {"Mirrors": [theirs]}}, gone)["reload"] == []
    assert docker_daemon_config.without_items({"registry-mirrors": []}, {"registry-mirrors": []}) == {
        "registry-mirrors": []
    }
