"""Five first racks, each from a node as its operator has it, through all that its driver does.

Plan, apply, apply again, a newer version, another branch and back: what is foretold is what is done, and what
the operator had there stays.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from . import rack_states, site_proxy
from .conftest import KEEP_VARIABLE, REPOSITORY, bring_up, json_lines, must_be_good
from .on_node import Apply, until
from .rack import FIRST, LOCKS, NODE, PARTS, Rack
from .validating import powered_off

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

RackMaker = Callable[..., Rack]
DIRECTORY = REPOSITORY / ".lab-test" / "rack"
KEYRINGS = "/etc/apt/keyrings"
RUNS = "systemctl is-active --quiet"
# Some package of the driver is unpacked, and not configured yet.
HALF_INSTALLED = "dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' | grep -q '^i[^i].*nvidia'"
HWE_RUNS = f"uname -r | grep -q ^6.14 && {RUNS} display-manager && {RUNS} ssh"
# Whoever reads the package lists after a boot, until an apply has met its lock.
APT_DAILY = """
import fcntl, pathlib, time
stream = open('/var/lib/apt/lists/lock', 'w')
fcntl.lockf(stream, fcntl.LOCK_EX)
said = pathlib.Path('/run/apt-daily')
said.write_text('reads')
def updates(process):
    try:
        words = (process / 'cmdline').read_bytes().split(bytes(1))
    except OSError:
        return False
    # Not what looks at a view of its own, or only asks where the lists are.
    return words[0] == b'apt-get' and b'update' in words and not {b'-c', b'--print-uris'} & set(words)
while not any(map(updates, pathlib.Path('/proc').glob('[0-9]*'))):
    time.sleep(0.01)  # no event shows another's process
time.sleep(2)  # nor that it asked for the lock, which it tries once
said.write_text('met')
"""


@pytest.fixture
def make_rack() -> Iterator[RackMaker]:
    """Brings up a lab of one node for a rack; it is taken down afterwards."""
    running = []

    def make(system: str, hardware: str = "hgx-a100-80gb") -> Rack:
        options = ("--nodes", "1", "--os", system, "--hardware", hardware)
        running.append(bring_up(DIRECTORY, *options, keep=KEEP_VARIABLE in os.environ))
        return Rack(next(running[-1]), system)

    yield make
    for lab in running:
        lab.close()


@pytest.mark.drawn("first racks")
def test_a_hgx_with_docker_ce_ofed_and_monitoring(make_rack: RackMaker, tmp_path: Path) -> None:
    rack = make_rack("ubuntu2204")
    install_site_a(rack, tmp_path)
    rack.declare(
        nvidia_driver_existing="adopt",
        container_runtime_daemon_options={"max-concurrent-downloads": 4},
    )
    said = rack.walk()
    assert "dkms 3.3.0-1 replaces dkms 2.8.7-2ubuntu2.2" in said
    assert "mlnx-ofed-kernel-dkms" in said
    found = "\n".join(rack.found)
    for words in (
        "info Docker: Docker CE is installed",
        "info OFED: installed",
        "held by container dcgm-exporter",
    ):
        assert words in found
    assert json.loads(rack.shell("cat /etc/docker/daemon.json"))["max-concurrent-downloads"] == 4


def install_site_a(rack: Rack, directory: Path) -> None:
    """A site that ran: Docker's own engine, OFED, Ubuntu's driver, NVIDIA's toolkit, monitoring."""
    packages = next((rack.lab.directory / "packages").glob("[0-9a-f]*"))
    keys = {
        "docker": rack_states.docker_ce(packages / "distribution", directory / "docker"),
        "doca": rack_states.ofed(directory / "doca"),
        "nvidia-container-toolkit": (packages / "libnvidia-container/gpgkey").read_bytes(),
    }
    for name in ("docker", "doca"):
        rack.copy(directory / name, f"/srv/{name}")
    rack.copy(rack_states.exporter_image(directory), "/root/exporter.tar")
    rack.write({f"{KEYRINGS}/{name}.asc": key.decode() for name, key in keys.items()})
    toolkit = "http://depot/libnvidia-container/stable/deb/$(ARCH) /"
    rack.write({
        "/etc/apt/sources.list.d/docker.list":
            f"deb [arch=amd64 signed-by={KEYRINGS}/docker.asc] file:/srv/docker ./\n",
        "/etc/apt/sources.list.d/doca.list": f"deb [signed-by={KEYRINGS}/doca.asc] file:/srv/doca ./\n",
        "/etc/apt/sources.list.d/nvidia-container-toolkit.list":
            f"deb [signed-by={KEYRINGS}/nvidia-container-toolkit.asc] {toolkit}\n",
        "/etc/systemd/system/docker.service.d/override.conf":
            "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd -H fd:// "
            "--containerd=/run/containerd/containerd.sock --default-ulimit nofile=16384:16384 "
            "--log-opt max-size=100m\n",
        "/etc/docker/daemon.json": json.dumps({"insecure-registries": ["old.site:5000"]}),
        "/etc/modules-load.d/nvidia-peermem.conf": "nvidia-peermem\n",
    })  # fmt: skip
    release, image = rack.shell("uname -r"), rack_states.EXPORTER_IMAGE
    pin = "/etc/apt/preferences.d/for-once"
    rack.write({pin: f"Package: *nvidia*580*\nPin: version {FIRST}-*\nPin-Priority: 1001\n"})
    modules = f"linux-modules-nvidia-580-server-open-{{{release},generic}}=5.15.0-204.214"
    rack.shell(
        "export DEBIAN_FRONTEND=noninteractive; apt-get -q update && bash -c 'apt-get -qy "
        f"--no-install-recommends install linux-headers-{release} mlnx-ofed-kernel-dkms docker-ce {modules} "
        "nvidia-headless-no-dkms-580-server-open nvidia-utils-580-server nvidia-fabricmanager-580 "
        f"nvidia-container-toolkit{{,-base}}=1.18.1-1' && apt-mark hold mlnx-ofed-kernel-dkms && rm {pin}"
    )
    rack.shell("modprobe mlx5_core && modprobe nvidia && modprobe nvidia_uvm && modprobe nvidia-peermem")
    # The kernel's list of RDMA adapters, which OFED's modules make.
    rack.shell(
        "mkdir -p /run/rdma/upper/infiniband/mlx5_0 /run/rdma/work && mount -t overlay rdma "
        "-o lowerdir=/sys/class,upperdir=/run/rdma/upper,workdir=/run/rdma/work /sys/class"
    )
    rack.shell(
        "systemctl enable --now nvidia-fabricmanager && systemctl restart nvidia-cdi-refresh && "
        "nvidia-ctk runtime configure && systemctl restart docker && "
        f"docker import -c 'CMD [\"/usr/bin/dcgm-exporter\"]' /root/exporter.tar {image} && "
        f"docker run -d --restart unless-stopped --gpus all --name dcgm-exporter {image}"
    )
    rack.keep(
        "cd /etc && sha256sum apt/sources.list apt/sources.list.d/[dn]*.list apt/keyrings/[dn]*.asc "
        "systemd/system/docker.service.d/override.conf modules-load.d/nvidia-peermem.conf",
        "dpkg-query -W docker-ce docker-ce-cli containerd.io mlnx-ofed-kernel-dkms mlnx-ofed-kernel-utils",
        "apt-mark showhold | grep ofed",
        "dkms status mlnx-ofed-kernel; sha256sum /lib/modules/*/updates/dkms/mlx5_core.ko",
        "lsmod | grep -o -e ^nvidia_peermem -e ^mlx5_core | sort",
        "docker inspect -f '{{.Id}} {{.State.Running}}' dcgm-exporter",
        "systemctl show docker -p MainPID -p ExecStart --value | grep -o -e '^[0-9]*' -e 'argv.*; ig'",
        """python3 -c 'import json; d = json.load(open("/etc/docker/daemon.json"));"""
        """ print(d["insecure-registries"], d["runtimes"]["nvidia"])'""",
    )


@pytest.mark.drawn("first racks")
def test_b_fresh_behind_a_proxy_while_apt_daily_runs(make_rack: RackMaker) -> None:
    rack = make_rack("ubuntu2404")
    install_site_b(rack)
    with site_proxy.site_proxy(rack.lab), apt_daily(rack):
        rack.walk()
        asked = site_proxy.servers_asked(rack.lab)
    assert {"archive.ubuntu.invalid", "developer.nvidia.invalid", "nvidia.github.invalid"} <= asked
    assert "depot:5000" in asked, "the image comes through the proxy to the registry's host"
    assert "registry01:5000" not in asked, "and from there to the nodes past it"


def install_site_b(rack: Rack) -> None:
    """A fresh Ubuntu, whose sources, as all others, are reached through the site's proxy."""
    said = (
        ". /etc/os-release; echo $ID $VERSION_ID $VERSION_CODENAME; uname -r; cat /etc/dpkg/origins/default"
    )
    assert rack.shell(said).splitlines()[:3] == [
        "ubuntu 24.04 noble", "6.8.0-151-generic", "Vendor: Ubuntu",
    ]  # fmt: skip
    rack.write({
        "/etc/apt/sources.list": "# See /etc/apt/sources.list.d/ubuntu.sources.\n",
        "/etc/apt/sources.list.d/ubuntu.sources":
            "Types: deb\nURIs: http://archive.ubuntu.invalid/distribution\nSuites: ./\n"
            f"Signed-By: {KEYRINGS}/depot.asc\n",
    })  # fmt: skip
    rack.declare(
        "all",
        site_http_proxy=site_proxy.URL,
        site_https_proxy=site_proxy.URL,
        nvidia_driver_repository_url="http://developer.nvidia.invalid/cuda/repos",
        nvidia_container_toolkit_repository_url="http://nvidia.github.invalid/libnvidia-container/stable/deb",
    )
    rack.keep(
        "cat /etc/apt/sources.list /etc/apt/sources.list.d/ubuntu.sources",
        "ls /etc/apt/apt.conf.d | grep -v clusterctl",
    )


@contextmanager
def apt_daily(rack: Rack) -> Iterator[None]:
    """Another program reads the package lists when the first apply wants to, and was met by it."""
    rack.shell(f'systemd-run --quiet --unit=apt-daily-update python3 -c "{APT_DAILY}"')
    until(rack.lab, "[ -e /run/apt-daily ]", host=NODE)
    yield
    assert rack.shell("cat /run/apt-daily") == "met"


@pytest.mark.drawn("first racks")
def test_c_rocky_with_selinux_and_firewalld(make_rack: RackMaker) -> None:
    rack = make_rack("rocky9")
    install_site_c(rack)
    rack.declare(container_runtime_firewalld_sources=["10.0.0.0/24"])
    rack.walk()
    assert {"info SELinux: enforcing", "warning firewall: firewalld refuses by default"} <= rack.found
    assert "trusted 10.0.0.0/24" in rack.shell(f"cat {rack_states.FIREWALLD_SOURCES}")


def install_site_c(rack: Rack) -> None:
    """SELinux enforces and firewalld runs, both played; a site's own options of dnf, and a lock."""
    rack.write({
        "/etc/selinux/config": "SELINUX=enforcing\nSELINUXTYPE=targeted\n",
        "/etc/systemd/system/firewalld.service": rack_states.FIREWALLD_UNIT,
        "/usr/bin/firewall-cmd": rack_states.FIREWALL_CMD,
        rack_states.FIREWALLD_SOURCES: "trusted 192.0.2.0/24\n",
        "/etc/dnf/dnf.conf": "[main]\ngpgcheck=1\nbest=True\nmax_parallel_downloads=2\n",
        LOCKS: "bash-0:5.1.8-9.el9.*\n",
    })  # fmt: skip
    rack.shell("chmod 0755 /usr/bin/firewall-cmd && systemctl enable --now firewalld")
    # The kernel's own word on SELinux, beside the groups of processes.
    rack.shell(
        "mkdir /run/cgroups && mount --rbind /sys/fs/cgroup /run/cgroups && "
        "mount -t tmpfs selinux /sys/fs && mkdir /sys/fs/cgroup /sys/fs/selinux && "
        "mount --rbind /run/cgroups /sys/fs/cgroup && "
        "echo 1 >/sys/fs/selinux/enforce"
    )
    rack.keep(
        "cat /etc/selinux/config /sys/fs/selinux/enforce /etc/dnf/dnf.conf /etc/yum.repos.d/rocky.repo",
        f"grep ^bash {LOCKS}; grep 192.0.2 {rack_states.FIREWALLD_SOURCES}",
        "systemctl is-active firewalld; rpm -q bash kernel-core",
    )


@pytest.mark.drawn("first racks")
def test_d_debian_with_main_only(make_rack: RackMaker) -> None:
    rack = make_rack("debian12")
    rack.keep("sha256sum /etc/apt/sources.list; ls /etc/apt/apt.conf.d", "cat /etc/debian_version")
    rack.declare(nvidia_driver_source="distribution", nvidia_driver_branch="535", nvidia_driver_version="")
    rack.refused("are contrib and non-free among its components?")
    rack.declare(nvidia_driver_source="cuda")
    rack.walk()


@pytest.mark.drawn("first racks")
def test_e_workstation_with_secure_boot_and_a_display(make_rack: RackMaker) -> None:
    rack = make_rack("ubuntu2404", "a100-pcie-40gb")
    install_site_e(rack)
    settings: dict[str, Any] = {"hardware_gpu_count": 1, "nvidia_driver_version": FIRST}
    rack.declare(**settings, nvidia_driver_source="cuda")
    rack.refused("(nvidia_driver_source: distribution), or")
    rack.declare(nvidia_driver_source="distribution")
    rack.walk()
    assert "info Secure Boot: enabled, modules signed by Ubuntu" in rack.found
    until(rack.lab, "ls -l /proc/$(pgrep -x Xorg)/fd | grep -q /dev/nvidia0", host=NODE)
    assert rack.shell("dpkg-query -W -f '${db:Status-Abbrev}' dkms", check=False) == ""


def install_site_e(rack: Rack) -> None:
    """One GPU, the newer kernel line, a firmware that loads signed modules only, and a display."""
    file = rack.lab.directory / "nodes" / NODE / "hardware.json"
    hardware = json.loads(file.read_text())
    file.write_text(json.dumps(hardware | {"gpus": hardware["gpus"][:1], "hcas": []}))
    rack.write({
        "/etc/systemd/system/firmware.service": rack_states.SECURE_BOOT_UNIT,
        "/etc/systemd/system/gdm.service": rack_states.DISPLAY,
        "/usr/bin/mokutil": rack_states.MOKUTIL,
        "/etc/X11/xorg.conf.d/10-site.conf": 'Section "Device"\nEndSection\n',
    })  # fmt: skip
    rack.shell(
        "chmod 0755 /usr/bin/mokutil && mkdir -p /usr/lib/xorg && cp /usr/bin/sleep /usr/lib/xorg/Xorg && "
        "systemctl enable firmware gdm && apt-get -q update && "
        "apt-get -qy install linux-generic-hwe-24.04 linux-image-generic-hwe-24.04"
    )
    rack.shell("systemctl reboot", check=False)
    until(rack.lab, HWE_RUNS, host=NODE)
    rack.keep(
        "uname -r; dpkg-query -W linux-image-generic-hwe-24.04 linux-generic-hwe-24.04",
        "systemctl is-active display-manager",
        "cat /etc/X11/xorg.conf.d/10-site.conf /etc/apt/sources.list",
        "od -An -tx1 /sys/firmware/efi/efivars/SecureBoot-*",
    )


@pytest.mark.slow
@pytest.mark.parametrize("system", ["ubuntu2204", "ubuntu2404"])
@pytest.mark.parametrize("source", ["cuda", "distribution"])
def test_a_killed_apply_is_completed_by_the_next(make_rack: RackMaker, system: str, source: str) -> None:
    """The controller dies, and at the same moment the node loses its power in the middle of dpkg."""
    rack = make_rack(system)
    rack.declare(nvidia_driver_source=source)
    with Apply(rack.lab, "apply", "--yes", "--json", *PARTS) as first:
        until(rack.lab, HALF_INSTALLED, host=NODE)
        with powered_off(rack.lab, NODE):
            first.kill(signal.SIGKILL)
    assert "nvidia" in rack.shell("dpkg --audit")
    applied = rack.lab.clusterctl("apply", "--yes", "--json", *PARTS)
    must_be_good(applied)
    assert "was interrupted" in applied.stderr
    rack.holds(FIRST)
    assert rack.shell("dpkg --audit") == ""
    planned = rack.lab.clusterctl("plan", "--json", *PARTS)
    assert [line for line in json_lines(planned) if line["type"] == "change"] == []
