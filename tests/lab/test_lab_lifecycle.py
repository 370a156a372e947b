"""The lab itself, for real: servers that boot, differ, break on demand, and leave nothing behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .conftest import RunningLab, bring_up, json_lines, run_clusterctl

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def small_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """One node and a registry host, next to the lab of the other tests: to be broken freely."""
    yield from bring_up(tmp_path_factory.mktemp("clone") / ".lab", "--nodes", "1")


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def hosts(lab: RunningLab) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json_lines(lab.lab("status", "--json", check=False))}


def test_all_hosts_run_and_each_is_itself(lab: RunningLab) -> None:
    assert {name: row["state"] for name, row in hosts(lab).items()} == dict.fromkeys(
        ("gpu01", "gpu02", "gpu03", "registry01", "depot"), "running"
    )
    seen = [
        lab.ssh(
            node,
            "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id /etc/ssh/ssh_host_ed25519_key.pub;"
            " sudo id -un; systemctl is-system-running",
        ).splitlines()
        for node in ("gpu01", "gpu02", "gpu03", "registry01")
    ]
    assert [lines[0] for lines in seen] == ["gpu01", "gpu02", "gpu03", "registry01"]
    for own in (1, 2, 3):
        assert len({lines[own] for lines in seen}) == 4, seen
    assert {(lines[4], lines[5]) for lines in seen} == {("root", "running")}


def test_a_second_up_changes_nothing(lab: RunningLab) -> None:
    suffix = json.loads((lab.directory / "state.json").read_text())["suffix"]
    asked = (
        "ps",
        "--no-trunc",
        "--format",
        "{{.ID}} {{.Names}}",
        "--filter",
        f"label=clusterlab.lab={suffix}",
    )
    before = docker(*asked)
    lab.lab("up", "--nodes", "3")
    assert lab.lab("ssh", "gpu02", "hostname").stdout == "gpu02\n"
    after = docker(*asked)
    assert set(before.splitlines()) == set(after.splitlines())


def test_the_depot_serves_packages_and_images_that_nodes_trust(lab: RunningLab) -> None:
    settings = yaml.safe_load((lab.cluster / "group_vars" / "all.yml").read_text())
    said = lab.ssh("gpu01", "sudo apt-get update && apt-cache policy docker.io")
    assert "http://depot/distribution" in said
    tags = "https://depot:5000/v2/paddlepaddle/paddle/manifests/3.3.1"
    accept = "application/vnd.docker.distribution.manifest.v2+json"
    program = (
        f"import urllib.request as u; r = u.urlopen(u.Request('{tags}', headers={{'Accept': '{accept}'}}));"
        " print(r.headers['Docker-Content-Digest'])"
    )
    assert lab.ssh("gpu01", f'python3 -c "{program}"') == settings["training_image_digest"]


def test_a_node_cannot_change_the_machine_under_it(lab: RunningLab) -> None:
    swappiness = Path("/proc/sys/vm/swappiness").read_text()
    lab.ssh("gpu01", "echo 7 | sudo tee /proc/sys/vm/swappiness")
    assert lab.ssh("gpu01", "cat /proc/sys/vm/swappiness") == "7"
    assert Path("/proc/sys/vm/swappiness").read_text() == swappiness
    assert "Operation not permitted" in lab.ssh("gpu01", "sudo date -s 2001-01-01 2>&1", check=False)
    assert time.time() > 1_700_000_000


def test_a_host_of_another_inventory_is_refused(lab: RunningLab, tmp_path: Path) -> None:
    foreign = {"all": {"children": {"gpu_nodes": {"hosts": {"gpu01": {"ansible_host": "192.0.2.7"}}}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(foreign))
    done = run_clusterctl(
        "-C",
        str(tmp_path),
        "lab",
        "fault",
        "inject",
        "gpu01",
        "node-down",
        "--dir",
        str(lab.directory),
    )
    assert done.returncode == 2
    assert "not a host that this machine's lab made" in done.stderr
    assert "192.0.2.7" in done.stderr
    assert hosts(lab)["gpu01"]["state"] == "running"


@pytest.mark.drawn("bare nodes")
def test_a_slow_link_is_slow_and_whole_again_when_cleared(small_lab: RunningLab) -> None:
    small_lab.inject("gpu01", "slow-link")
    assert "tbf c1ab: root" in small_lab.ssh("gpu01", "/usr/sbin/tc qdisc show dev eth0")
    assert "rate 100Mbit" in small_lab.ssh("gpu01", "/usr/sbin/tc qdisc show dev eth0")
    listed = json_lines(small_lab.lab("fault", "list", "--json"))
    assert [(one["node"], one["kind"]) for one in listed if one["type"] == "fault"] == [
        ("gpu01", "slow-link")
    ]
    again = small_lab.lab("fault", "inject", "gpu01", "slow-link", check=False)
    assert again.returncode == 2
    assert "in place on gpu01 already" in again.stderr
    small_lab.clear_faults()
    assert "tbf" not in small_lab.ssh("gpu01", "/usr/sbin/tc qdisc show dev eth0")


@pytest.mark.drawn("bare nodes")
def test_a_node_that_is_down_stays_down_until_it_is_cleared(small_lab: RunningLab) -> None:
    small_lab.inject("gpu01", "node-down")
    done = small_lab.lab("status", check=False)
    assert done.returncode == 1
    assert hosts(small_lab)["gpu01"]["state"] == "stopped"
    said = small_lab.lab("up", "--nodes", "1").stderr
    assert "gpu01: stays down" in said
    assert hosts(small_lab)["gpu01"]["state"] == "stopped"
    small_lab.clear_faults()
    assert small_lab.ssh("gpu01", "hostname") == "gpu01"


@pytest.mark.drawn("bare nodes")
def test_a_reboot_is_a_reboot_and_the_disk_stays(small_lab: RunningLab) -> None:
    before = small_lab.ssh("gpu01", "cat /proc/sys/kernel/random/boot_id")
    small_lab.ssh(
        "gpu01", "echo 192.0.2.9 elsewhere | sudo tee -a /etc/hosts && sudo touch /var/lib/docker/kept"
    )
    small_lab.ssh("gpu01", "sudo systemctl reboot", check=False)
    deadline = time.monotonic() + 60
    while (after := small_lab.ssh("gpu01", "cat /proc/sys/kernel/random/boot_id", check=False)) in (
        "",
        before,
    ):
        assert time.monotonic() < deadline, "the node did not come back"
        time.sleep(0.5)
    assert len(after) == len(before)
    assert "elsewhere" in small_lab.ssh("gpu01", "cat /etc/hosts")
    assert small_lab.ssh("gpu01", "sudo ls /var/lib/docker/kept") == "/var/lib/docker/kept"


@pytest.mark.drawn("bare nodes")
def test_a_host_that_is_missing_is_made_again_and_pinned_again(small_lab: RunningLab) -> None:
    key = "cat /etc/ssh/ssh_host_ed25519_key.pub"
    before = small_lab.ssh("gpu01", key)
    docker("rm", "--force", small_lab.container("gpu01"))
    assert hosts(small_lab)["gpu01"]["state"] == "missing"
    small_lab.lab("up", "--nodes", "1")
    assert small_lab.ssh("gpu01", key) != before, "a host made again is another host"


@pytest.mark.drawn("bare nodes")
def test_two_labs_do_not_meet(lab: RunningLab, small_lab: RunningLab) -> None:
    one, other = (json.loads((each.directory / "state.json").read_text()) for each in (lab, small_lab))
    assert one["suffix"] != other["suffix"]
    assert one["subnet"] != other["subnet"]
    assert small_lab.ssh("gpu01", "getent hosts gpu02", check=False) == ""
    assert small_lab.ssh("gpu01", "getent hosts registry01").split()[0] != hosts(lab)["registry01"]["address"]


@pytest.mark.drawn("bare nodes")
def test_a_copied_lab_is_refused_and_never_takes_down_the_original(
    small_lab: RunningLab, tmp_path: Path
) -> None:
    copy = tmp_path / ".lab"
    copy.mkdir()
    shutil.copy(small_lab.directory / "state.json", copy)
    for arguments, code in ((["status"], 2), (["fault", "clear"], 2), (["down"], 3)):
        done = run_clusterctl("lab", *arguments, "--dir", str(copy))
        assert done.returncode == code, done.stderr
        assert str(small_lab.directory) in done.stderr
    assert (copy / "state.json").exists()
    assert {row["state"] for row in hosts(small_lab).values()} == {"running"}


@pytest.mark.drawn("bare nodes")
def test_simulated_devices_say_so_before_there_is_a_driver(small_lab: RunningLab) -> None:
    labels = small_lab.ssh(
        "gpu01", "sort -u /sys/bus/pci/devices/*/label; test -e /sys/module/nvidia || echo bare"
    )
    assert labels.splitlines() == ["Simulated by clusterlab", "bare"]


@pytest.mark.drawn("bare nodes")
def test_a_lab_cannot_become_another(small_lab: RunningLab) -> None:
    done = small_lab.lab("up", "--nodes", "1", "--os", "debian13", check=False)
    assert done.returncode == 2
    assert "clusterctl lab down" in done.stderr


@pytest.mark.drawn("bare nodes")
def test_down_leaves_nothing_even_without_the_state_file(small_lab: RunningLab) -> None:
    """Last in this file: it ends the small lab."""
    suffix = json.loads((small_lab.directory / "state.json").read_text())["suffix"]
    label = f"label=clusterlab.lab={suffix}"
    assert docker("ps", "--all", "--quiet", "--filter", label)
    shutil.rmtree(small_lab.directory / "cluster")
    (small_lab.directory / "state.json").unlink()
    done = small_lab.lab("down")
    assert "nothing of the lab" in done.stderr
    for kind in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
        assert docker(*kind, "--quiet", "--filter", label) == ""
    assert not small_lab.directory.exists()
