"""The base of a build is the image that the settings declare, and not what a lock says instead."""

from __future__ import annotations

import json

import pytest
from tests.support.image_builds import BASE, NOTEBOOK

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.lock import Lock

BARE = {key: NOTEBOOK[key] for key in ("name", "base", "target")}


@pytest.fixture
def declared(listing):
    images = [{"name": BASE.name, "source": BASE.source, "target": f"{BASE.target}:1"}]
    for variables in listing["_meta"]["hostvars"].values():
        variables |= {"image_builds": [BARE], "images": images}


@pytest.mark.usefixtures("declared")
def test_the_declared_image_is_the_base(clusterctl, cluster, capsys):
    lock_file.write(cluster, Lock(images=(BASE.model_copy(update={"tag": "1"}),)))
    assert clusterctl("images", "build", "--check", "--json") == 0
    (build,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert f"/{BASE.target}@{BASE.digest}\n" in build["files"]["Dockerfile"]


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize(
    "other", [{"source": "docker.io/evil/other:1"}, {"target": "evil/other"}, {"tag": "2"}], ids=str
)
def test_another_image_of_that_name_is_not(clusterctl, cluster, other, capsys):
    lock_file.write(cluster, Lock(images=(BASE.model_copy(update={"tag": "1", **other}),)))
    assert clusterctl("images", "build", "--check") == 2
    assert "images.stale-lock" in capsys.readouterr().err


@pytest.mark.usefixtures("declared")
def test_a_line_of_a_lock_is_no_line_of_a_dockerfile(clusterctl, cluster, capsys):
    target = f"evil/x@{BASE.digest}\nRUN id\n#"
    lock_file.write(cluster, Lock(images=(BASE.model_copy(update={"tag": "1", "target": target}),)))
    assert clusterctl("images", "build", "--check") == 2
    told = capsys.readouterr()
    assert "images.lock-unreadable" in told.err
    assert "images.0.target" in told.err
    assert "RUN" not in told.out


def test_a_base_that_cannot_serve_stops_its_own_build_alone(clusterctl, cluster, listing, capsys):
    least = {"fits": "525.60.13", "newer": "580.65.06"}
    images = [{"name": name, "source": f"{BASE.source}-{name}", "target": f"base/{name}:1"} for name in least]
    builds = [{**BARE, "name": f"on-{name}", "base": name, "target": f"built/{name}:1"} for name in least]
    for variables in listing["_meta"]["hostvars"].values():
        variables |= {"image_builds": builds, "images": images, "nvidia_driver_branch": "570"}
    locked = [
        BASE.model_copy(
            update={
                "name": name,
                "source": f"{BASE.source}-{name}",
                "target": f"base/{name}",
                "tag": "1",
                "drivers": ((version, ""),),
            }
        )
        for name, version in least.items()
    ]
    lock_file.write(cluster, Lock(images=tuple(locked), driver="570"))
    assert clusterctl("images", "build", "--check", "--json") == 1
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["name"], one.get("code")) for one in shown] == [
        ("on-fits", None),
        ("on-newer", "images.driver"),
    ]
    assert clusterctl("images", "build", "--check", "on-newer") == 2
    assert "images.driver" in capsys.readouterr().err
