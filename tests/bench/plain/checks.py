"""The same as site.yml, in pyinfra's own operations and facts: run by pyinfra, not imported."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pyinfra import host
from pyinfra.facts.files import File
from pyinfra.facts.hardware import Memory
from pyinfra.facts.server import Command, Mounts
from pyinfra.operations import apt, files, systemd

GIVEN = json.loads(Path(os.environ["BENCH_VARIABLES"]).read_text(encoding="utf-8"))
FILES = Path(GIVEN["bench_files"])
CREDENTIALS = ("tls.key", "tls.crt", "ca.crt", "push.auth.json", "clusterctl-registry.htpasswd",
               "clusterctl-registry-push.htpasswd")  # fmt: skip
SOURCES = "/etc/apt/sources.list.d"
REGISTRY = GIVEN["bench_registry"]


def put(name: str, goal: str, mode: str) -> None:
    """A file with this content and mode."""
    files.put(name=goal, src=str(FILES / name), dest=goal, mode=mode)


def ask(command: str) -> str:
    """What a command prints on the host."""
    return str(host.get_fact(Command, command) or "")


def require(holds: bool, otherwise: str) -> None:
    """Raise RuntimeError where something is not as it should be."""
    if not holds:
        raise RuntimeError(otherwise)


def python(code: str) -> None:
    """A few words of Python on the host; they raise where something is not as it should be."""
    ask(f'python3 -c "{code}"')


def running(unit: str) -> None:
    """A unit that runs now and after a boot."""
    systemd.service(name=unit, service=unit, running=True, enabled=True)


def registry() -> None:
    """What the first play of site.yml sees to."""
    other = ask("systemctl show --property ActiveState --value docker-registry.service")
    require(other == "inactive", "another registry runs")
    files.link(name="mask", path="/etc/systemd/system/docker-registry.service", target="/dev/null")
    apt.packages(name="packages", packages=["docker-registry", "skopeo", "ca-certificates"])
    files.directory(name="directory", path="/etc/clusterctl/registry", mode="755")
    for name in CREDENTIALS:
        put(name, f"/etc/clusterctl/registry/{name}", "600")
    for listener in ("clusterctl-registry", "clusterctl-registry-push"):
        put(f"{listener}.yml", f"/etc/clusterctl/registry/{listener}.yml", "644")
        put(f"{listener}.service", f"/etc/systemd/system/{listener}.service", "644")
        running(f"{listener}.service")
    trusted = "context=ssl.create_default_context(cafile='/etc/clusterctl/registry/ca.crt')"
    python(f"import urllib.request as u, ssl; u.urlopen('https://{REGISTRY}:5000/v2/', {trusted})")
    asked = "c = h.HTTPConnection('127.0.0.1', 501); c.request('GET', '/v2/'); print(c.getresponse().status)"
    require(ask(f'python3 -c "import http.client as h; {asked}"') == "401", "anybody may push")
    auth = "--tls-verify=false --authfile /etc/clusterctl/registry/push.auth.json"
    ask(f"skopeo inspect --raw {auth} {GIVEN['bench_pushed']}")


def node() -> None:
    """What the second play sees to."""
    host.get_fact(Memory)
    host.get_fact(Mounts)
    ask(f"getent hosts {REGISTRY}")
    for url in GIVEN["bench_sources"]:
        python(f"import urllib.request as u; u.urlopen(u.Request('{url}', method='HEAD'))")
    require(bool(ask("lspci -d 10de:")), "no GPUs")
    ask("nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader")
    put("clusterctl-cuda.sources", f"{SOURCES}/clusterctl-cuda.sources", "644")
    put("clusterctl-nouveau.conf", "/etc/modprobe.d/clusterctl-nouveau.conf", "644")
    apt.packages(name="driver", packages=GIVEN["bench_driver_packages"])
    held = ask("apt-mark showhold").split()
    require(set(GIVEN["bench_driver_names"]) <= set(held), "the driver is not held")
    require(ask("cat /sys/module/nvidia/version") == GIVEN["bench_driver_version"], "another driver runs")
    ask("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    running("nvidia-persistenced.service")
    running("nvidia-fabricmanager.service")
    require(
        ask("nv-fabricmanager --version").endswith(GIVEN["bench_driver_version"]), "another Fabric Manager"
    )
    modes = ask("nvidia-smi --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader")
    require("Enabled" not in modes, "MIG is on")
    apt.packages(name="docker", packages=["docker.io"])
    files.file(name="proxy", path="/etc/systemd/system/docker.service.d/clusterctl-proxy.conf", present=False)
    running("docker.service")
    put(
        "clusterctl-container-toolkit.sources",
        f"{SOURCES}/clusterctl-container-toolkit.sources",
        "644",
    )
    apt.packages(name="toolkit", packages=GIVEN["bench_toolkit_packages"])
    put("daemon.json", "/etc/docker/daemon.json", "644")
    require("nvidia" in ask("docker info --format '{{json .Runtimes}}'"), "Docker lacks NVIDIA's runtime")
    require(bool(host.get_fact(File, "/var/run/cdi/nvidia.yaml")), "there is no CDI specification")
    gpus = ask("nvidia-smi -L").count("GPU ")
    named = ask("grep -cE 'name: .?[0-9]+.?$' /var/run/cdi/nvidia.yaml")
    require(int(named) == gpus, "the CDI specification has other GPUs")
    files.directory(name="certs.d", path=f"/etc/docker/certs.d/{REGISTRY}:5000", mode="755")
    put("ca.crt", f"/etc/docker/certs.d/{REGISTRY}:5000/ca.crt", "644")
    there = ask(f"docker image inspect {GIVEN['bench_image']} >/dev/null && echo there")
    require(there == "there", "the image is not there")


(registry if host.name == REGISTRY else node)()
