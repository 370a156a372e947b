"""containerd without Docker: installed and given GPUs as planned, and never behind a kubelet's back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import containerd_config

from . import rack_states
from .conftest import KEEP_VARIABLE, REPOSITORY, bring_up, json_lines, must_be_good
from .on_node import changes
from .rack import FIRST, NODE, PARTS, Rack

pytestmark = [pytest.mark.lab, pytest.mark.drawn("first racks"), pytest.mark.timeout(2400)]

ALONE = {"container_runtime_engine": "containerd", "training_image_enabled": False}
CONFIG = "/etc/containerd/config.toml"
BINARY = "/usr/bin/nvidia-container-runtime"
# A process of this name stands for a kubelet.
KUBELET = (
    "cp /usr/bin/sleep /usr/local/bin/kubelet && "
    "systemd-run --quiet --unit=kubelet /usr/local/bin/kubelet infinity"
)
HUB = {"upstream": "docker.io", "url": "https://registry01:5000", "fallback": True}
# The node's programs, without the driver's, as the root file system of containers.
ROOT = "/srv/root"
MAKE_ROOT = f"mkdir -p {ROOT} && cp -a /bin /sbin /lib* /usr {ROOT} && rm {ROOT}/usr/bin/nvidia-smi"
PID = "systemctl show containerd -p MainPID --value"


@pytest.fixture
def rack(request: pytest.FixtureRequest) -> Iterator[Rack]:
    """A lab of one bare node of the system that the test names."""
    options = ("--nodes", "1", "--os", request.param)
    for lab in bring_up(REPOSITORY / ".lab-test/containerd", *options, keep=KEEP_VARIABLE in os.environ):
        yield Rack(lab, request.param)


# Debian 12 has 1.6, which knows no CDI devices, and so have the lab's RPMs of Docker's; Debian 13 has 1.7.
@pytest.mark.parametrize(
    ("rack", "cdi"), [("debian12", ""), ("debian13", "true"), ("rocky9", "")], indirect=["rack"]
)
def test_the_containerd_of_a_system_gets_gpus_as_planned(rack: Rack, cdi: str) -> None:
    rack.declare(**ALONE)
    rack.step(FIRST)
    assert_nothing_changes(rack)
    assert rack.shell("command -v docker dockerd", check=False) == ""
    assert_containers_get_gpus(rack, version=2, cdi=cdi)
    assert_left_to_a_kubelet(rack)


@pytest.mark.parametrize("rack", ["debian12"], indirect=True)
def test_a_containerd_io_of_dockers_repository_gets_gpus_as_planned(rack: Rack, tmp_path: Path) -> None:
    """Version 2 reads another format; Docker's package switches Kubernetes' plugin off."""
    served = next((rack.lab.directory / "packages").glob("[0-9a-f]*"))
    fingerprint = rack_states.containerd_io(served / "distribution", tmp_path / "docker")
    shutil.copytree(tmp_path / "docker", served / "docker")
    rack.declare(
        **ALONE,
        container_runtime_packages=["containerd.io"],
        container_runtime_repository_url="http://depot/docker",
        container_runtime_repository_suite="./",
        container_runtime_repository_components=[],
        container_runtime_repository_key_fingerprints=[fingerprint],
    )
    rack.step(FIRST)
    assert_nothing_changes(rack)
    assert rack.shell("dpkg-query -W -f '${db:Status-Abbrev}${Version}' containerd.io").startswith("hi 2.")
    assert_containers_get_gpus(rack, version=3, cdi="true")
    assert_left_to_a_kubelet(rack)


def assert_nothing_changes(rack: Rack) -> None:
    """Another apply, of all its tasks, changes nothing."""
    again = rack.lab.clusterctl("apply", "--yes", "--json", "--full", *PARTS)
    must_be_good(again)
    assert changes(json_lines(again)) == set()


def assert_containers_get_gpus(rack: Rack, version: int, cdi: str) -> None:
    """By the runtime that is configured; CDI devices are given by Kubernetes alone, which is not there."""
    dumped = rack.shell("containerd config dump")
    assert containerd_config.format_version(rack.shell(f"cat {CONFIG}")) == version
    assert containerd_config.runtime_binary(dumped, "nvidia") == BINARY
    assert containerd_config.runtime_binary(dumped, "runc") == ""
    assert containerd_config.cdi_state(dumped) == cdi
    rack.shell(MAKE_ROOT)
    wanted = "--env PATH=/usr/bin --env NVIDIA_VISIBLE_DEVICES=0,3"
    listed = rack.shell(f"ctr run --rm --rootfs --runc-binary {BINARY} {wanted} {ROOT} gpus nvidia-smi -L")
    assert len([line for line in listed.splitlines() if line.startswith("GPU ")]) == 2


def assert_left_to_a_kubelet(rack: Rack) -> None:
    """Nothing is changed while a kubelet is there; without it, the restart leaves containers running."""
    rack.shell(f"ctr run --detach --rootfs {ROOT} job /usr/bin/sleep infinity")
    rack.shell(KUBELET)
    rack.declare(container_runtime_http_proxy="http://proxy.invalid:3128", container_runtime_no_proxy="depot")
    pid = rack.shell(PID)
    rack.refused("whose kubelet uses containerd")
    rack.declare(registry_client_mirrors=[HUB])
    configuration = rack.shell(f"cat {CONFIG}")
    mirrored = rack.lab.clusterctl("apply", "--yes", "--only", "registry", "--limit", NODE)
    assert mirrored.returncode == 1
    assert "the kubelet of this host uses containerd" in " ".join(mirrored.stderr.split())
    assert rack.shell(f"cat {CONFIG}") == configuration
    rack.declare(container_runtime_engine="docker")
    rack.refused("is a node of Kubernetes without Docker")
    assert rack.shell(PID) == pid
    rack.shell("systemctl stop kubelet")
    rack.declare(container_runtime_engine="containerd", registry_client_mirrors=[])
    rack.step(FIRST)
    assert rack.shell(PID) != pid
    assert "proxy.invalid" in rack.shell(f"tr '\\0' '\\n' </proc/$({PID})/environ")
    assert "RUNNING" in rack.shell("ctr task ls | grep '^job '")
    assert_nothing_changes(rack)
