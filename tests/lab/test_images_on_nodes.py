"""Images on the nodes: pulls on a shaped link, mirrors in containerd, an apply that goes nowhere else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import RunningLab, json_lines
from .on_node import inside

pytestmark = pytest.mark.lab

NODE, OTHER, REGISTRY = "gpu03", "gpu02", "registry01"
ADDRESS = "registry01:5000"
LIMIT_MBPS = 100
RECEIVED = "/sys/class/net/eth0/statistics/rx_bytes"
# Layers, and no more manifests and handshakes.
SOME_BYTES = 2_000_000
# For documentation (RFC 5737): nobody has it.
NOBODY = "192.0.2.1"


@pytest.fixture(scope="module")
def images_lab(applied_lab: RunningLab) -> Iterator[RunningLab]:
    """The applied lab, applied again after the last of these tests: each makes what it starts from."""
    yield applied_lab
    applied_lab.done("apply", "--yes", "--only", "registry,images")


@pytest.fixture
def site(images_lab: RunningLab) -> Iterator[RunningLab]:
    """The lab; settings that a test adds go with it, and faults too."""
    folder = images_lab.cluster / "host_vars"
    yield images_lab
    for path in folder.glob("*.yml"):
        path.unlink()
    images_lab.clear_faults()


def declare(lab: RunningLab, **settings: Any) -> None:
    """Settings for every host of the lab."""
    folder = lab.cluster / "host_vars"
    folder.mkdir(exist_ok=True)
    for host in ("gpu01", OTHER, NODE, REGISTRY):
        (folder / f"{host}.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def without_image(lab: RunningLab, *nodes: str) -> None:
    for node in nodes:
        lab.ssh(node, "sudo docker image prune --all --force")


def digest_of(lab: RunningLab) -> str:
    """The training image's, as the lab's settings declare it."""
    settings = yaml.safe_load((lab.cluster / "group_vars/all.yml").read_text(encoding="utf-8"))
    return str(settings["training_image_digest"])


def holds_image(lab: RunningLab, node: str) -> bool:
    """Whether the node's own Docker shows the image under the declared digest."""
    reference = f"{ADDRESS}/library/paddle@{digest_of(lab)}"
    shown = lab.ssh(
        node, f"sudo docker image inspect --format '{{{{json .RepoDigests}}}}' {reference}", check=False
    )
    return reference in shown


def registry_log(lab: RunningLab, since: str) -> str:
    """What the registry was asked since then, by its own clock."""
    return lab.ssh(REGISTRY, f"sudo journalctl -u clusterctl-registry --since '{since}' -o cat")


def registry_clock(lab: RunningLab) -> str:
    return lab.ssh(REGISTRY, "date '+%Y-%m-%d %H:%M:%S'")


@contextmanager
def a_small_disk_for_downloads(lab: RunningLab, node: str) -> Iterator[None]:
    """Docker writes a layer as it comes to a directory of its own: a file system of 16 MB, for so long."""
    place = inside(lab, "docker info --format '{{.DockerRootDir}}'", host=node) + "/tmp"
    inside(lab, f"mkdir -p {place} && mount -t tmpfs -o size=16m,mode=0700 small-disk {place}", host=node)
    try:
        yield
    finally:
        inside(lab, f"umount --lazy {place}", host=node)


def received(lab: RunningLab, node: str) -> int:
    """Bytes that have come to a node since it started."""
    return int(lab.ssh(node, f"cat {RECEIVED}"))


@pytest.mark.quiet
@pytest.mark.drawn("packages and images")
def test_a_wave_of_pulls_is_foreseen_and_comes_near_the_shaped_link(site: RunningLab) -> None:
    declare(site, training_image_registry_link_mbps=LIMIT_MBPS)
    without_image(site, OTHER, NODE)
    site.inject(REGISTRY, "slow-link")
    planned = json_lines(site.clusterctl("plan", "--json", "--only", "images"))[-1]["pulls"]
    assert sorted(node["host"] for wave in planned for node in wave["nodes"]) == [OTHER, NODE]
    done = site.clusterctl("apply", "--yes", "--json", "--only", "images", "--canary", "0")
    assert done.returncode == 0, done.stderr
    (pull,) = json_lines(done)[-1]["pulls"]
    assert pull["limit_s"] == pytest.approx(sum(wave["limit_s"] for wave in planned), rel=0.01)
    assert f"{LIMIT_MBPS} Mbit/s for 2 nodes" in pull["limited_by"]
    assert 0.5 < pull["achieved"] <= 1.05
    assert f"{pull['achieved']:.0%} efficiency" in done.stderr


@pytest.mark.slow  # 165 s; the group has another stopped registry (test_failures)
def test_a_registry_that_dies_in_a_pull_is_said_and_the_next_apply_mends_it(site: RunningLab) -> None:
    without_image(site, OTHER, NODE)
    site.inject(REGISTRY, "slow-link")
    before = received(site, NODE)
    ended: list[subprocess.CompletedProcess[str]] = []
    running = threading.Thread(
        target=lambda: ended.append(site.clusterctl("apply", "--yes", "--only", "images", "--canary", "0"))
    )
    running.start()
    # A pattern that is not its own text: the shell that looks has it in its command line.
    begun = f"pgrep -f '[d]ocker.*pull' >/dev/null && [ $(cat {RECEIVED}) -gt {before + SOME_BYTES} ]"
    site.ssh(NODE, f"for turn in $(seq 300); do {begun} && exit 0; sleep 0.2; done; exit 1")
    site.inject(REGISTRY, "registry-down")
    running.join(600)
    assert ended, "the apply has not ended"
    assert ended[0].returncode == 1
    assert "could not be pulled" in ended[0].stderr
    assert "registry.unreachable" in ended[0].stderr
    assert not holds_image(site, NODE)
    site.clear_faults()
    assert site.clusterctl("apply", "--yes").returncode == 0
    assert holds_image(site, OTHER)
    assert holds_image(site, NODE)


@pytest.mark.drawn("packages and images")
def test_a_disk_that_fills_up_in_a_pull_is_said_and_the_next_apply_mends_it(site: RunningLab) -> None:
    without_image(site, OTHER, NODE)
    with a_small_disk_for_downloads(site, NODE):
        done = site.clusterctl("apply", "--yes", "--only", "images", "--canary", "0")
    assert done.returncode == 1
    assert "no space left on device" in done.stderr
    assert "is full: make room there; images are not removed unasked" in done.stderr
    assert "host.disk-full" in done.stderr
    assert holds_image(site, OTHER), "the pull of the node next to it was lost"
    assert not holds_image(site, NODE)
    site.done("apply", "--yes", "--only", "images")
    assert holds_image(site, NODE)


@pytest.mark.drawn("packages and images")
def test_a_node_without_room_is_refused_before_anything_moves(site: RunningLab) -> None:
    without_image(site, NODE)
    declare(site, training_image_room_factor=10**6)
    since = registry_clock(site)
    for words in (("plan",), ("apply", "--yes")):
        done = site.clusterctl(*words, "--only", "images", "--limit", NODE)
        assert done.returncode == 1, done.stderr
        assert "GB free, the image needs" in done.stderr
        assert "Nothing was pulled" in done.stderr
        assert "host.disk-full" in done.stderr
    assert "/v2/library/paddle/blobs/" not in registry_log(site, since)
    declare(site)
    site.done("apply", "--yes", "--only", "images", "--limit", NODE)
    assert holds_image(site, NODE)


@pytest.mark.drawn("packages and images")
def test_an_offline_apply_is_proved_and_a_contact_is_named(site: RunningLab) -> None:
    declare(site, site_offline_hosts=["depot"])
    without_image(site, NODE)
    done = site.clusterctl("apply", "--yes", "--json", "--offline", "--full", "--limit", f"{NODE},{REGISTRY}")
    assert done.returncode == 0, done.stderr
    proof = json_lines(done)[-1]["offline"]
    assert proof["proved"]
    registry = site.ssh(NODE, f"getent hosts {REGISTRY} | cut -d' ' -f1")
    assert registry in proof["hosts"][NODE]["inside"]
    assert site.ssh(NODE, "systemctl is-enabled clusterctl-offline 2>&1 | tail -1", check=False) != "enabled"
    assert site.ssh(NODE, "sudo ls /root/.clusterctl/offline 2>&1", check=False).endswith(
        "No such file or directory"
    )
    # Sent to a link address that nobody has: the SYN leaves, and nothing comes back, so that he can be found.
    site.ssh(NODE, f"sudo ip neigh replace {NOBODY} lladdr 02:00:00:00:00:01 dev eth0 && "
                   f"sudo ip route replace {NOBODY}/32 dev eth0")  # fmt: skip
    site.ssh(NODE, "sudo systemd-run -q --unit=chatty sh -c "
                   f"'while sleep 0.2; do timeout 1 bash -c \"</dev/tcp/{NOBODY}/9\"; done'")  # fmt: skip
    try:
        done = site.clusterctl(
            "apply", "--yes", "--json", "--offline", "--full", "--only", "registry", "--limit", NODE
        )
    finally:
        site.ssh(NODE, "sudo systemctl stop chatty", check=False)
        site.ssh(NODE, f"sudo ip route del {NOBODY}/32; sudo ip neigh del {NOBODY} dev eth0", check=False)
    assert done.returncode == 1
    (contact,) = json_lines(done)[-1]["offline"]["hosts"][NODE]["outside"]
    assert (contact["address"], contact["port"], contact["by"]) == (NOBODY, 9, "bash")
    assert contact["unit"] == "chatty.service"


@pytest.mark.drawn("packages and images")
def test_sources_elsewhere_are_refused_before_anything_is_changed(site: RunningLab) -> None:
    declare(site, site_offline_hosts=["depot"])
    file = "/etc/apt/sources.list.d/elsewhere.list"
    site.ssh(NODE, f"echo 'deb http://deb.example.invalid/debian x main' | sudo tee {file}")
    try:
        done = site.clusterctl("apply", "--yes", "--offline", "--full", "--only", "registry", "--limit", NODE)
    finally:
        site.ssh(NODE, f"sudo rm {file}")
    assert done.returncode == 2
    assert "deb.example.invalid" in done.stderr
    assert "offline.sources" in done.stderr


def played(lab: RunningLab, **variables: Any) -> subprocess.CompletedProcess[str]:
    """The trust in the registry applied to one node by plain Ansible."""
    playbook = Path(__file__).resolve().parents[2] / "playbooks/registry.yml"
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(lab.cluster / "hosts.yml"), "--limit", NODE,
         "-e", json.dumps(variables), str(playbook)],
        cwd=playbook.parents[1], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def role(lab: RunningLab, **variables: Any) -> tuple[int, str]:
    """The same where it goes well: how many tasks changed."""
    done = played(lab, **variables)
    assert done.returncode == 0, done.stdout[-3000:]
    found = re.search(rf"{NODE}\s+: ok=\d+\s+changed=(\d+)", done.stdout)
    return int(found[1]) if found else -1, done.stdout


@pytest.fixture
def containerd(site: RunningLab) -> Iterator[RunningLab]:
    """containerd's configuration as it was, afterwards: the role takes back mirrors, and no config_path."""
    file = "/etc/containerd/config.toml"
    site.ssh(NODE, f"sudo sh -c 'rm -f {file}.before; [ ! -e {file} ] || cp -a {file} {file}.before'")
    yield site
    back = f"rm -f {file}; [ ! -e {file}.before ] || mv {file}.before {file}; systemctl restart containerd"
    site.ssh(NODE, f"sudo sh -c '{back}'")


@pytest.mark.drawn("packages and images")
def test_containerd_pulls_through_its_mirror_and_the_registry_saw_it(containerd: RunningLab) -> None:
    site = containerd
    mirror = {"upstream": "docker.io", "url": f"https://{ADDRESS}", "fallback": False}
    wanted = {"registry_client_engines": ["containerd"], "registry_client_mirrors": [mirror]}
    assert role(site, **wanted)[0] > 0
    assert role(site, **wanted)[0] == 0
    dumped = site.ssh(NODE, "sudo containerd config dump")
    assert re.search(r"""config_path = ["']/etc/containerd/certs\.d["']""", dumped), dumped
    image = f"docker.io/library/paddle@{digest_of(site)}"
    since = registry_clock(site)
    site.ssh(NODE, f"sudo ctr content fetch --hosts-dir /etc/containerd/certs.d {image} >/dev/null")
    log = registry_log(site, since)
    assert "/v2/library/paddle/blobs/" in log
    assert "containerd/" in log
    nobody = "sudo ctr content fetch --hosts-dir /etc/containerd/certs.d docker.io/library/nobody:1 2>&1"
    assert "not found" in site.ssh(NODE, nobody, check=False)
    # What is declared no more goes; the engine keeps its directory of such files.
    assert role(site, registry_client_engines=["containerd"])[0] > 0
    assert "docker.io" not in site.ssh(NODE, "ls /etc/containerd/certs.d")


@pytest.fixture
def docker_mirrors(site: RunningLab) -> Iterator[RunningLab]:
    """Docker without mirrors, and without the image that came through one, afterwards."""
    without_image(site, NODE)
    yield site
    role(site)
    without_image(site, NODE)


@pytest.mark.drawn("packages and images")
def test_docker_pulls_through_its_mirror_and_the_registry_saw_it(docker_mirrors: RunningLab) -> None:
    """An engine that reads no hosts.toml, as Debian's: registry-mirrors, for docker.io alone."""
    site = docker_mirrors
    mirrors = "sudo docker info --format '{{json .RegistryConfig.Mirrors}}'"
    mirror = {"upstream": "docker.io", "url": f"https://{ADDRESS}"}
    # It cannot be kept from docker.io where the mirror lacks an image, and is not said to be.
    refused = played(site, registry_client_mirrors=[{**mirror, "fallback": False}])
    assert refused.returncode != 0
    assert "it always asks docker.io itself in the end" in " ".join(refused.stdout.split())
    assert ADDRESS not in site.ssh(NODE, mirrors)
    assert role(site, registry_client_mirrors=[mirror])[0] > 0
    assert role(site, registry_client_mirrors=[mirror])[0] == 0
    assert f"https://{ADDRESS}/" in site.ssh(NODE, mirrors)
    image = f"docker.io/library/paddle@{digest_of(site)}"
    since = registry_clock(site)
    site.ssh(NODE, f"sudo docker pull --quiet {image}")
    log = registry_log(site, since)
    assert "/v2/library/paddle/blobs/" in log
    assert re.search(r"\bdocker/\d", log), "it was somebody else who asked"
    shown = site.ssh(NODE, f"sudo docker image inspect --format '{{{{json .RepoDigests}}}}' {image}")
    assert f"paddle@{digest_of(site)}" in shown
    # What is declared no more goes from daemon.json, and from the running daemon.
    assert role(site)[0] > 0
    assert ADDRESS not in site.ssh(NODE, mirrors)
    assert ADDRESS not in site.ssh(NODE, "sudo cat /etc/docker/daemon.json")
