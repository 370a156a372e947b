"""What plan and apply say of pulls in waves. Ansible is played by data."""

from __future__ import annotations

import json

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.lock import LockedBlob, LockedImage
from clusterctl.runs.store import RunStore

PULL = {"digest": "sha256:x", "layers": {"a": 117_500_000}, "link_mbps": 1000}


def test_plan_says_how_long_the_waves_of_pulls_take_at_the_least(clusterctl, ansible, capsys):
    ansible.pulls = dict.fromkeys(("gpu01", "gpu02", "gpu03"), PULL)
    assert clusterctl("plan") == 0
    said = capsys.readouterr().out
    assert "images, canary: gpu01 would pull 117.5 MB in 1 layer: minimum 1 s" in said
    assert (
        "gpu02, gpu03 would pull 117.5 MB in 1 layer each: minimum 2 s, limited by the registry's link"
        in said
    )
    assert clusterctl("plan", "--json", "--wave", "1") == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(one["wave"], one["limit_s"]) for one in summary["pulls"]] == [
        ("canary", 1.0), ("nodes 1", 1.0), ("nodes 2", 1.0),
    ]  # fmt: skip


def test_before_the_first_copy_the_lock_knows_what_is_to_be_pulled(clusterctl, cluster, ansible, capsys):
    digest = "sha256:" + "a" * 64
    layers = tuple(LockedBlob(digest="sha256:" + one * 64, size=58_750_000) for one in "bc")
    image = LockedImage(
        name="training", source="docker.io/x/y:1", target="library/y", digest=digest, manifest=digest,
        platforms=("linux/amd64",), config=LockedBlob(digest=digest, size=1), layers=layers,
    )  # fmt: skip
    lock_file.write(cluster, lock_file.Lock(images=(image,)))
    ansible.pulls = {"gpu01": {"digest": digest, "unknown": "404", "link_mbps": 1000}}
    assert clusterctl("plan") == 0
    assert "gpu01 would pull 117.5 MB in 2 layers: minimum 1 s" in capsys.readouterr().out


def test_a_run_keeps_what_its_pulls_reached_of_the_links(clusterctl, cluster, ansible, capsys):
    done = {**PULL, "seconds": 4.0, "download_s": 2.5}
    ansible.pulls = {"gpu02": done, "gpu03": {**done, "seconds": 5.0}}
    assert clusterctl("apply", "--yes", "--json") == 0
    streams = capsys.readouterr()
    (pull,) = json.loads(streams.out.splitlines()[-1])["pulls"]
    assert (pull["wave"], pull["limit_s"], pull["seconds"], pull["achieved"]) == ("nodes", 2.0, 5.0, 0.4)
    assert "pulled 117.5 MB in 5 s" in streams.err
    assert "40% efficiency" in streams.err
    kept = RunStore(cluster).get("last")
    assert kept.summary["pulls"] == [pull]


def test_waves_are_as_small_as_asked(clusterctl, ansible):
    assert clusterctl("apply", "--yes", "--wave", "1", "--canary", "0") == 0
    played = [request.hosts for request in ansible.requests if request.playbook == "site.yml"]
    assert [hosts for hosts in played if "registry01" not in hosts] == [("gpu01",), ("gpu02",), ("gpu03",)]
