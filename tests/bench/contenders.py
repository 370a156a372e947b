"""Who is measured: clusterctl, plain ansible-playbook at its defaults, pyinfra, on the same lab hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clusterctl.cluster import inventory
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.rollout.drift.records import load_record

from .labs import BenchLab
from .taken import Taken, taken_by

HERE = Path(__file__).parent
PYINFRA = "pyinfra==3.10"
LIMIT_S = 1500
REGISTRY = "registry01"
OF_LISTENERS = ("tls.key", "tls.crt", "ca.crt", "push.auth.json", "clusterctl-registry.htpasswd",
                "clusterctl-registry-push.htpasswd", "clusterctl-registry.yml",
                "clusterctl-registry-push.yml")  # fmt: skip
OF_REGISTRY = (
    *(f"/etc/clusterctl/registry/{name}" for name in OF_LISTENERS),
    "/etc/systemd/system/clusterctl-registry.service",
    "/etc/systemd/system/clusterctl-registry-push.service",
)
OF_NODES = (
    "/etc/modprobe.d/clusterctl-nouveau.conf",
    "/etc/apt/sources.list.d/clusterctl-cuda.sources",
    "/etc/apt/sources.list.d/clusterctl-container-toolkit.sources",
    "/etc/docker/daemon.json",
)


def timed(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    ends: Sequence[int] = (0,),
) -> tuple[Taken, subprocess.CompletedProcess[str]]:
    """Run a command to one of these ends; what it took, and what it printed. Raises RuntimeError."""
    taken, ended = taken_by(
        lambda: subprocess.run(
            list(command), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S, cwd=cwd,
            env={**os.environ, "NO_COLOR": "1", "CI": "1", **(environment or {})}, check=False,
        )
    )  # fmt: skip
    if ended.returncode not in ends:
        said = " ".join(Path(word).name for word in command)  # paths are this machine's alone
        raise RuntimeError(f"{said[:200]} ended with {ended.returncode}: {ended.stderr[-1500:]}")
    return taken, ended


def second_apply(lab: BenchLab) -> Taken:
    """clusterctl where nothing has changed; the drift probe must have inspected each host."""
    program = Path(sys.executable).with_name("clusterctl")
    taken, said = timed([str(program), "-C", str(lab.cluster), "apply", "--yes", "--json"])
    summary = json.loads(said.stdout.splitlines()[-1])
    if summary["changed"] or len(summary.get("probed", ())) != len(summary["hosts"]):
        raise RuntimeError(f"this was not a second apply: {summary}")
    return taken


def validation(lab: BenchLab) -> tuple[Taken, str]:
    """clusterctl validate; also how it was judged.

    All nodes of a lab compute on this machine's cores: many of them are slow, and it must say so. Nothing
    else may be wrong.
    """
    program = Path(sys.executable).with_name("clusterctl")
    command = [str(program), "-C", str(lab.cluster), "validate", "--json"]
    taken, said = timed(command, ends=(0, 1))
    document = json.loads(said.stdout.splitlines()[-1])
    failed = {result["check"] for result in document["results"] if result["verdict"] == "fail"}
    if not failed <= {"all-reduce-bandwidth", "pair-bandwidth"}:
        raise RuntimeError(f"this is not about speed: {sorted(failed)}")
    return taken, ", ".join([document["verdict"], *sorted(failed)])


def plain_ansible(lab: BenchLab, work: Path) -> Taken:
    """ansible-playbook at its defaults, with ordinary small tasks; it must change nothing."""
    (work / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    playbook, settings = HERE / "plain" / "site.yml", f"@{work}/variables.json"
    command = [sys.executable, "-m", "ansible", "playbook", "-i", str(lab.cluster / "hosts.yml")]
    taken, said = timed(
        [*command, "-e", settings, str(playbook)], cwd=work,
        environment={"ANSIBLE_CONFIG": str(work / "ansible.cfg"), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    recap = said.stdout[said.stdout.index("PLAY RECAP") :].splitlines()[1:]
    if any("changed=0" not in line for line in recap if ":" in line):
        raise RuntimeError(f"the playbook changes what is there already: {said.stdout[-3000:]}")
    return taken


def pyinfra(lab: BenchLab, work: Path) -> Taken:
    """pyinfra at its defaults with the same checks as operations and facts; it must change nothing."""
    command = [str(work / "pyinfra" / "bin" / "pyinfra"), "--yes", "--sudo"]
    taken, said = timed(
        [*command, str(work / "inventory.py"), str(HERE / "plain" / "checks.py")], cwd=work,
        environment={"BENCH_VARIABLES": str(work / "variables.json")},
    )  # fmt: skip
    total = re.search(r"^ *Grand total +(\d+) +- +- +(\d+) *$", said.stderr, re.M)  # its own words go there
    if total is None or total[1] != total[2]:
        raise RuntimeError(f"pyinfra changes what is there already: {said.stderr[-3000:]}")
    return taken


def prepare(lab: BenchLab, work: Path) -> None:
    """What the two others need: the files that clusterctl wrote as their sources, packages, an inventory."""
    files = work / "files"
    files.mkdir(parents=True, exist_ok=True)
    for host, paths in ((REGISTRY, OF_REGISTRY), ("gpu01", OF_NODES)):
        for path in paths:
            (files / Path(path).name).write_text(lab.ssh(host, f"sudo cat {path}"), encoding="utf-8")
    listing = lab.ssh("gpu01", "dpkg-query -W -f '${Status}|${Package}|${Version}\\n'").splitlines()
    held = {
        name: version
        for status, name, version in (line.split("|") for line in listing)
        if status.startswith("hold")
    }
    toolkit = {
        name: version for name, version in held.items() if "container" in name and name != "containerd"
    }
    driver = {name: v for name, v in held.items() if "nvidia" in name and name not in toolkit}
    directory = ClusterDirectory(lab.cluster)
    inventory.forget_cached()
    record = load_record(directory, "gpu01")
    pulled = next(call.args for call in record.calls if call.module == "container_image") if record else {}
    image = f"{pulled['repository']}@{pulled['digest']}"
    variables = {
        "bench_files": str(files),
        "bench_registry": REGISTRY,
        "bench_driver_names": sorted(driver),
        "bench_driver_version": inventory.load(directory).host("gpu01").value("nvidia_driver_version"),
        "bench_driver_packages": [f"{name}={version}" for name, version in sorted(driver.items())],
        "bench_toolkit_packages": [f"{name}={version}" for name, version in sorted(toolkit.items())],
        "bench_image": image,
        "bench_pushed": f"docker://127.0.0.1:501/{image.partition('/')[2]}",
        "bench_sources": _sources(record),
    }
    (work / "variables.json").write_text(json.dumps(variables, indent=1), encoding="utf-8")
    _inventory(lab, work / "inventory.py")


def install_pyinfra(work: Path) -> None:
    """pyinfra in a virtual environment of its own, pinned; kept for the next time."""
    if not (work / "pyinfra" / "bin" / "pyinfra").exists():
        timed([sys.executable, "-m", "venv", str(work / "pyinfra")])
        timed([str(work / "pyinfra" / "bin" / "pip"), "install", "--quiet", PYINFRA])


def _sources(record: Any) -> list[str]:
    looked = next(call.args for call in record.calls if call.module == "node_preflight")
    return list(looked["package_sources"])


def _inventory(lab: BenchLab, path: Path) -> None:
    hosts = inventory.load(ClusterDirectory(lab.cluster)).hosts
    connection = {
        "ssh_user": "ops",
        "ssh_key": str(lab.cluster / "ssh/id_ed25519"),
        "ssh_known_hosts_file": str(lab.cluster / ".clusterctl/known_hosts"),
        "ssh_strict_host_key_checking": "yes",
    }
    rows = [(host.name, {**connection, "ssh_hostname": host.address}) for host in hosts]
    path.write_text(f"hosts = {rows!r}\n", encoding="utf-8")
