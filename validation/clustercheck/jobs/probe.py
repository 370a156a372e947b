"""Collects raw evidence on one node and prints it as one line of JSON; judges nothing.

Run as root:  python3 - '{"image": "...", "gpu_arguments": ["--gpus", "all"]}'  < probe.py

Options (one JSON object as first argument, all optional):
  image          training image by digest; without it the container part says why it did not run
  gpu_arguments  what `docker run` needs to hand GPUs to a container
  parts          names of parts to collect; default: all of PARTS (below)
  ended_runs     ids of validations that are known to be over: what they left does not make a node busy
  limit_s        limit of each command in seconds, default 30; the container part gets twice that

Every command has its own time limit and is abandoned, not awaited, when it cannot be killed: a process
stuck in the driver must not take the probe with it. Standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence  # noqa: UP035 - nodes may run Python 3.8

FORMAT = 1
NOBODY = re.compile("Cannot connect to the Docker daemon|No such object|Invalid node name")
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-smi", "dcgm")
DEFAULT_LIMIT_S = 30.0
KEEP_BYTES = 8 * 1024 * 1024
KEEP_LOG_LINES = 500
GPU_LINES = re.compile(r"S?Xid \(|NVRM: API mismatch|fallen off the bus")

Record = Dict[str, Any]  # noqa: UP006


def read(path: str) -> Optional[str]:  # noqa: UP045
    """The text of a small file without its last newline, or None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            return stream.read(KEEP_BYTES).strip()
    except OSError:
        return None


def listing(path: str) -> List[str]:  # noqa: UP006
    """The names in a directory, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208
    except OSError:
        return []


def whole(text: Optional[str]) -> Optional[int]:  # noqa: UP045
    """The whole number that a text is, or None."""
    try:
        return int(text or "")
    except ValueError:
        return None


def command(argv: Sequence[str], limit_s: float) -> Record:
    """Run one program to its end or its limit; what it said, and how it ended. Never raises."""
    record: Record = {
        "argv": list(argv),
        "rc": None,
        "stdout": "",
        "stderr": "",
        "timed_out": False,
        "missing": False,
    }
    began = time.monotonic()
    # Files, not pipes: a grandchild that keeps a pipe open would keep us waiting for its end.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env=dict(os.environ, LC_ALL="C", LANG="C"),
            )
        except OSError as error:
            record.update(missing=isinstance(error, FileNotFoundError), stderr=str(error))
            return record
        try:
            record["rc"] = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            record["timed_out"] = True
            kill(process)
        for name, stream in (("stdout", out), ("stderr", err)):
            stream.seek(0)
            record[name] = stream.read(KEEP_BYTES).decode("utf-8", "replace")
    record["duration_s"] = round(time.monotonic() - began, 3)
    return record


def kill(process: Any) -> None:
    """End a process and its children; do not wait for one that the kernel holds."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=1.0)
    except (OSError, subprocess.TimeoutExpired):
        return


def host() -> Record:
    """Who this is and what it runs."""
    release = {}
    for line in (read("/etc/os-release") or "").splitlines():
        key, _, value = line.partition("=")
        release[key] = value.strip('"')
    return {
        "hostname": socket.gethostname(),
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "os": {key: release.get(key, "") for key in ("ID", "VERSION_ID", "PRETTY_NAME")},
        "uptime_s": float((read("/proc/uptime") or "0").split()[0]),
        "cpus": os.cpu_count(),
        "product": read("/sys/class/dmi/id/product_name"),
        "bios": read("/sys/class/dmi/id/bios_version"),
    }


def pci() -> List[Record]:  # noqa: UP006
    """NVIDIA's and network devices on the PCI bus, from sysfs, in order of address."""
    root = "/sys/bus/pci/devices"
    devices = []
    for address in listing(root):
        at = f"{root}/{address}/"
        vendor, kind = read(at + "vendor") or "", read(at + "class") or ""
        if vendor != "0x10de" and not kind.startswith("0x02"):
            continue
        try:
            driver = os.path.basename(os.readlink(at + "driver"))  # noqa: PTH115, PTH119
        except OSError:
            driver = ""
        devices.append(
            {
                "address": address,
                "vendor": vendor,
                "class": kind,
                "device": read(at + "device") or "",
                "link_speed": read(at + "current_link_speed"),
                "link_width": read(at + "current_link_width"),
                "max_link_speed": read(at + "max_link_speed"),
                "max_link_width": read(at + "max_link_width"),
                "numa_node": read(at + "numa_node"),
                "driver": driver,
            }
        )
    return devices


def unit(name: str, limit_s: float) -> Record:
    """The state of a systemd unit."""
    shown = command(
        ["systemctl", "show", name, "--property=LoadState,ActiveState,SubState,Result,UnitFileState"], limit_s
    )
    record: Record = {"rc": shown["rc"], "timed_out": shown["timed_out"]}
    for line in shown["stdout"].splitlines():
        key, _, value = line.partition("=")
        record[key] = value
    return record


def container_gpus(options: Record, limit_s: float) -> Record:
    """Which GPUs a container of the training image sees."""
    image = options.get("image")
    if not image:
        return {"skipped": "no training image was named"}
    name = f"clusterctl-probe-{os.getpid()}-{int(time.time())}"
    found = command(["docker", "image", "inspect", "--format", "{{.Id}}", image], limit_s)
    if found["rc"] != 0:
        why = "the training image is not on this node"
        if found["missing"] or found["timed_out"]:
            why = "docker is not installed" if found["missing"] else "docker did not answer"
        return dict(found, skipped=why)
    ran = command(
        [
            "docker",
            "run",
            "--rm",
            "--name",
            name,
            "--network",
            "none",
            "--label",
            "clusterctl.probe=1",
            *options.get("gpu_arguments", ["--gpus", "all"]),
            "--entrypoint",
            "nvidia-smi",
            image,
            "-L",
        ],
        limit_s * 2,
    )
    if ran["timed_out"]:
        command(["docker", "rm", "--force", name], 10.0)
    return ran


def kernel_log(limit_s: float) -> Record:
    """What the kernel said of GPUs since boot, with times; the journal first, else the ring buffer."""
    for source, argv in (
        ("journal", ["journalctl", "-k", "-b", "--output=short-iso-precise", "--no-pager", "--quiet"]),
        ("dmesg", ["dmesg", "--time-format", "iso"]),
    ):
        ran = command(argv, limit_s)
        lines = ran["stdout"].splitlines()
        if ran["rc"] == 0 and lines:
            said = [line[:600] for line in lines if GPU_LINES.search(line)]
            return {
                "source": source,
                "rc": 0,
                "lines": len(lines),
                "first": lines[0][:60],
                "kept": said[-KEEP_LOG_LINES:],
                "dropped": max(0, len(said) - KEEP_LOG_LINES),
            }
    because = ran["stderr"][:400] or "no lines"
    return {"source": "", "rc": ran["rc"], "lines": 0, "kept": [], "because": because}


def nics() -> List[Record]:  # noqa: UP006
    """Network interfaces but the loopback: speed in Mb/s as the driver says it, or None."""
    default = set()
    for line in (read("/proc/net/route") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == "00000000" and fields[7] == "00000000":
            default.add(fields[0])
    addresses = addresses_by_interface()
    found = []
    for name in listing("/sys/class/net"):
        at = f"/sys/class/net/{name}/"
        if name == "lo" or not os.path.isdir(at):  # noqa: PTH112
            continue
        speed = whole(read(at + "speed"))
        found.append(
            {
                "name": name,
                "speed_mbps": speed if speed and speed > 0 else None,
                "state": read(at + "operstate"),
                "mtu": whole(read(at + "mtu")),
                "mac": read(at + "address"),
                "addresses": addresses.get(name, []),
                "default_route": name in default,
                "physical": any(os.path.exists(at + part) for part in ("device", "bonding")),  # noqa: PTH110
            }
        )
    return found


def addresses_by_interface() -> Dict[str, List[str]]:  # noqa: UP006
    """Addresses with prefix length of each interface, as `ip` shows them."""
    shown = command(["ip", "-json", "address"], 10.0)
    try:
        return {
            link["ifname"]: ["{}/{}".format(a["local"], a["prefixlen"]) for a in link.get("addr_info", [])]
            for link in json.loads(shown["stdout"])
            if "ifname" in link
        }
    except (ValueError, KeyError, TypeError):
        return {}


def rdma() -> List[Record]:  # noqa: UP006
    """InfiniBand and RoCE ports."""
    root = "/sys/class/infiniband"
    return [
        {
            "device": device,
            "port": port,
            "state": read(f"{root}/{device}/ports/{port}/state"),
            "rate": read(f"{root}/{device}/ports/{port}/rate"),
            "link_layer": read(f"{root}/{device}/ports/{port}/link_layer"),
        }
        for device in listing(root)
        for port in listing(f"{root}/{device}/ports")
    ]


def memory() -> Record:
    """Memory in KiB, and the size of /dev/shm in bytes."""
    sizes: Record = {}
    for line in (read("/proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key in ("MemTotal", "MemAvailable", "SwapTotal", "HugePages_Total"):
            sizes[key] = whole(value.split()[0])
    try:
        shared = os.statvfs("/dev/shm")  # noqa: S108
        sizes["shm_bytes"] = shared.f_frsize * shared.f_blocks
    except OSError:
        sizes["shm_bytes"] = None
    return sizes


def clock(limit_s: float) -> Record:
    """The node's clock, seconds since 1970 in UTC, and whether something keeps it right."""
    shown = command(["timedatectl", "show", "--property=NTPSynchronized", "--value"], min(limit_s, 5.0))
    said = shown["stdout"].strip()
    return {"time": time.time(), "synchronised": {"yes": True, "no": False}.get(said)}


def busy(limit_s: float, ended_runs: Sequence[str] = ()) -> Record:
    """Who uses this node now: compute processes, containers that were given GPUs, Slurm's jobs."""
    limit_s = min(limit_s, 15.0)
    reasons, unknown = [], []
    apps = command(["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"], limit_s)
    processes = [line for line in apps["stdout"].splitlines() if re.match(r"\s*\d+\s*,", line)]
    if apps["timed_out"]:
        unknown.append("nvidia-smi did not answer")
    elif apps["rc"] != 0:  # none is installed, or no driver is loaded: then who holds a device tells
        processes = holders()
    if processes:
        reasons.append("{} compute process(es): {}".format(len(processes), "; ".join(processes[:3])))
    template = (
        "{{.Name}}\t{{json .HostConfig.DeviceRequests}}\t{{.HostConfig.Runtime}}"
        "\t{{json .HostConfig.Devices}}\t{{json .Config.Labels}}"
    )
    listed = command(["docker", "ps", "--quiet", "--no-trunc"], limit_s)
    names = listed["stdout"].split() if listed["rc"] == 0 else []
    shown = command(["docker", "inspect", "--format", template, *names], limit_s) if names else listed
    lines = shown["stdout"].splitlines() if names else []
    containers = [line.split("\t")[0].lstrip("/") for line in lines if has_gpus(line)]
    if containers:
        reasons.append("container(s) with GPUs: {}".format(", ".join(containers[:5])))
    reasons += [run for run in (live_run(line, ended_runs) for line in lines) if run]
    # A daemon that is not there runs nothing; a container may end after it was listed.
    failed = [each for each in (listed, shown) if has_failed(each) and not NOBODY.search(each["stderr"])]
    if failed:
        unknown.append("docker " + how_failed(failed[0]))
    queue = command(
        [
            "squeue",
            "--noheader",
            "--nodelist",
            socket.gethostname().split(".")[0],
            "--states=RUNNING,COMPLETING",
            "--format=%i",
        ],
        limit_s,
    )
    jobs = queue["stdout"].split() if queue["rc"] == 0 else []
    if jobs:
        reasons.append("Slurm job(s): {}".format(", ".join(jobs[:5])))
    if has_failed(queue) and not NOBODY.search(queue["stderr"]):
        unknown.append("squeue " + how_failed(queue))
    return {
        "reasons": reasons,
        "unknown": unknown,
        "processes": processes,
        "containers": containers,
        "slurm_jobs": jobs,
    }


def has_failed(record: Record) -> bool:
    """Whether a program that is here did not tell what it was asked."""
    return not record["missing"] and record["rc"] != 0


def how_failed(record: Record) -> str:
    """Why a program did not tell, in a few words."""
    if record["timed_out"]:
        return "did not answer"
    said = [line.strip() for line in record["stderr"].splitlines() if line.strip()]
    return "failed: {}".format(said[-1][:200] if said else "exit code {}".format(record["rc"]))


def holders() -> List[str]:  # noqa: UP006
    """Processes that hold a GPU's device file, as `pid, name`, without the driver's own daemons."""
    found = []
    for pid in listing("/proc"):
        if not pid.isdigit():
            continue
        for number in listing(f"/proc/{pid}/fd"):
            try:
                device = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115
            except OSError:
                continue
            name = read(f"/proc/{pid}/comm") or ""
            if re.match(r"/dev/nvidia[0-9]+$", device) and not name.startswith(DAEMONS):
                found.append(f"{pid}, {name}")
                break
    return found


def live_run(line: str, ended_runs: Sequence[str] = ()) -> str:
    """Whose validation a container is of, while its time is not over, from one line of `docker inspect`."""
    try:
        labels = json.loads([*line.split("\t"), "", "", "", ""][4] or "{}") or {}
        until = float(labels.get("clusterctl.until") or 0)
    except (ValueError, AttributeError):
        return ""
    owner = labels.get("clusterctl.run")
    if not owner or owner in ended_runs or until <= time.time():
        return ""
    return "clusterctl run {} of {}".format(owner, labels.get("clusterctl.by") or "another")


def has_gpus(line: str) -> bool:
    """Whether one line of `docker inspect` is of a container that was given GPUs by someone else."""
    name, requests, runtime, devices, labels = [*line.split("\t"), "", "", "", "", ""][:5]
    if not name or "clusterctl." in labels:
        return False
    return "gpu" in requests or runtime == "nvidia" or "/dev/nvidia" in devices


def collect(options: Record) -> Record:
    """All asked-for parts, side by side. A part that raises says so in its place."""
    limit_s = float(options.get("limit_s") or DEFAULT_LIMIT_S)
    parts: Dict[str, Callable[[], Any]] = {  # noqa: UP006
        "host": host,
        "nvidia_smi": lambda: command(["nvidia-smi", "-q", "-x"], limit_s),
        "topology": lambda: command(["nvidia-smi", "topo", "-m"], limit_s),
        "nvlink": lambda: command(["nvidia-smi", "nvlink", "-s"], limit_s),
        "pci": pci,
        "module": lambda: {
            "proc": read("/proc/driver/nvidia/version"),
            "version": read("/sys/module/nvidia/version"),
        },
        "fabric_manager": lambda: {
            "unit": unit("nvidia-fabricmanager.service", limit_s),
            "version": command(["nv-fabricmanager", "--version"], limit_s),
        },
        "toolkit": lambda: command(["nvidia-ctk", "--version"], limit_s),
        "docker": lambda: command(["docker", "info", "--format", "{{json .}}"], limit_s),
        "container_gpus": lambda: container_gpus(options, limit_s),
        "kernel_log": lambda: kernel_log(limit_s),
        "nics": nics,
        "rdma": rdma,
        "memory": memory,
        "clock": lambda: clock(limit_s),
        "busy": lambda: busy(limit_s, options.get("ended_runs") or ()),
    }
    wanted = [name for name in parts if name in (options.get("parts") or parts)]
    evidence: Record = {"probe": FORMAT, "errors": {}}

    def one(name: str) -> None:
        try:
            evidence[name] = parts[name]()
        except Exception as error:  # noqa: BLE001 - one part must not take the others with it
            evidence["errors"][name] = f"{type(error).__name__}: {error}"

    began = time.monotonic()
    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.1, began + limit_s * 4 - time.monotonic()))
    for name, thread in zip(wanted, threads):  # noqa: B905 - Python 3.8
        if thread.is_alive():
            evidence["errors"][name] = f"not done within {limit_s * 4:g} s"
    return dict(evidence, duration_s=round(time.monotonic() - began, 3))


def main(arguments: Sequence[str]) -> None:
    """Print the evidence, whatever happens."""
    try:
        options = json.loads(arguments[0]) if arguments else {}
        evidence = collect(options if isinstance(options, dict) else {})
    except Exception as error:  # noqa: BLE001 - the caller gets a record, not a traceback
        evidence = {"probe": FORMAT, "errors": {"probe": f"{type(error).__name__}: {error}"}}
    sys.stdout.write(json.dumps(evidence) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a thread that waits for a stuck process would keep the interpreter alive


if __name__ == "__main__":
    main(sys.argv[1:])
