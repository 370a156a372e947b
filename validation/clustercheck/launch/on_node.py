"""What the launcher does on one node, sent as text and run there by ``python3 -``: stdlib only.

One call is one action with a JSON request; it prints one JSON object. Nothing is judged here: that is done
by the controller.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import ipaddress
import json
import os
import re
import resource
import selectors
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

JOBS_ROOT = Path("/var/lib/clusterctl/jobs")
ENDED_STATES = ("exited", "dead")
# Begins the names of our containers: who makes an image chooses labels of its containers, and no name.
OURS = "clusterctl-"
DISCARDED = ".discarded-"  # begins the name of a directory that is being removed
DISCARD_S = 20.0  # for all files that a call removes
UNTIL_MARGIN_S = 60.0  # beyond its own limit, for its controller to collect and remove it
FRAMEWORK_S = 90.0
MAX_OUTPUT_BYTES, READ_BYTES = 4 * 1024 * 1024, 64 * 1024  # of a program, of its output and of its errors
LOG_TAIL_BYTES = 8000
NCCL_LOG_BYTES = 512 * 1024  # of a rank; 24 channels among 512 ranks take some 100 kB
NCCL_LOG_LINES = 1_000_000
MAX_JSON_BYTES = 16 * 1024 * 1024  # as much as an answer of a node may have
# What is said of an abandoned job: its container chose how many files it left, and how large.
MAX_OUTCOMES, MAX_ENTRIES, MAX_OUTCOME_BYTES = 16, 10_000, 2 * 1024 * 1024
MAX_OUTCOME_CHARACTERS, MAX_OUTCOMES_CHARACTERS = 200, 1000
VERDICT_FILE = re.compile(r"rank-\d{1,7}\.verdict\.json")
WARNINGS = 5  # of NCCL, before the tail of a rank's log
NCCL_LOG_CUT = "NCCL log truncated here"
# The lines that are sent: of the environment they show only NCCL's own variables.
NCCL_LINES = re.compile(
    rb"NCCL version |NCCL WARN |NCCL INFO (?:.*Init COMPLETE|Channel |Trees |CollNet |NET/|Using network "
    rb"|Pattern |DMA-BUF|NVLS multicast|Connected all |NCCL_[A-Z0-9_]+ set by environment)"
)
DOCKER_EXIT_CODES = (125, 126)  # exit codes of `docker run` itself, not of the program

# Images have the framework in one of these; the distribution's own python3 may lack it.
_HAS_FRAMEWORK = (
    'import importlib.util as u, os, sys; sys.exit(u.find_spec(os.environ["CLUSTERCTL_FRAMEWORK"]) is None)'
)
FIND_PYTHON = (
    f"for p in python3 python; do \"$p\" -c '{_HAS_FRAMEWORK}' 2>/dev/null "
    '&& exec timeout -k 10 "$0" "$p" "$@"; '
    'done; echo "no Python with $CLUSTERCTL_FRAMEWORK in this image" >&2; exit 127'
)

# The version file is read at once; importing the framework takes seconds and is needed only for GPUs.
FRAMEWORK_SCRIPT = """
import importlib, importlib.util, json, os, runpy
name = os.environ["CLUSTERCTL_FRAMEWORK"]
where = os.path.dirname(importlib.util.find_spec(name).origin)
if name == "paddle":
    built = runpy.run_path(os.path.join(where, "version", "__init__.py"))
    version, cuda = built["full_version"], str(built["cuda_version"]) != "False"
else:
    built = runpy.run_path(os.path.join(where, "version.py"))
    version, cuda = str(built["__version__"]), bool(built["cuda"])
gpus = 0
if cuda:
    gpus = importlib.import_module(name + (".device.cuda" if name == "paddle" else ".cuda")).device_count()
backend = os.environ.get("CLUSTERCTL_DEVICE_BACKEND", "")
if backend.endswith(".py"):
    devices = runpy.run_path(backend)["device_count"]()
else:
    devices = importlib.import_module(backend).device_count() if backend else gpus
print(json.dumps({"version": version, "cuda": cuda, "gpus": gpus, "devices": devices}))
"""


class ActionError(Exception):
    """The action failed on this node; the message gives the reason."""


class BusyError(ActionError):
    """Another run holds the node: no failure of the node."""


def execute(argv: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program and keep the end of its output; ActionError if it is missing or exceeds its limit."""
    ends_at = time.monotonic() + timeout_s
    try:
        process = subprocess.Popen(list(argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise ActionError(f"{argv[0]} is not installed") from None
    with process:
        try:
            output, errors = _read_ends([process.stdout, process.stderr], ends_at)
            code = process.wait(max(0.0, ends_at - time.monotonic()))
        except (subprocess.TimeoutExpired, TimeoutError):
            process.kill()
            raise ActionError(f"{' '.join(argv[:3])} did not end within {timeout_s:.0f} s") from None
    return subprocess.CompletedProcess(list(argv), code, output, errors)


def _read_ends(streams: Sequence[Any], ends_at: float) -> list[str]:
    """Read to the end of all, and keep the last MAX_OUTPUT_BYTES of each: images print what they like.

    Raises TimeoutError.
    """
    kept = {stream.fileno(): bytearray() for stream in streams}
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, ends_at - time.monotonic()))
            if not ready or time.monotonic() > ends_at:
                raise TimeoutError
            for key, _ in ready:
                chunk = os.read(key.fd, READ_BYTES)
                kept[key.fd] += chunk
                del kept[key.fd][:-MAX_OUTPUT_BYTES]
                if not chunk:
                    selector.unregister(key.fd)
    return [each.decode("utf-8", "replace") for each in kept.values()]


def docker(arguments: Sequence[str], timeout_s: float = 30.0) -> str:
    """Run docker and return its output; ActionError with Docker's last line otherwise."""
    done = execute(["docker", *arguments], timeout_s)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise ActionError(
            f"docker {arguments[0]}: {strip_prefixes(words[-1]) if words else f'exit {done.returncode}'}"
        )
    return done.stdout.strip()


def strip_prefixes(words: str) -> str:
    """Docker's message without the chain of components that passed it on."""
    return re.split(r"stderr: |runc create failed: |Error response from daemon: ", words)[-1].strip()


def find_interface(address: str) -> tuple[str, str, str]:
    """(interface, IPv4, how it was found): the one with the address, else that of the default route."""
    addresses = execute(["ip", "-o", "-4", "addr", "show", "up"], 10).stdout
    carried = {m[1]: m[0] for m in re.findall(r"^\d+:\s+(\S+)\s+inet (\d+\.\d+\.\d+\.\d+)", addresses, re.M)}
    try:
        wanted = {str(ipaddress.ip_address(address))}
    except ValueError:
        try:
            wanted = {str(info[4][0]) for info in socket.getaddrinfo(address, None, socket.AF_INET)}
        except OSError:
            wanted = set()
    for ip in sorted(wanted):
        if ip in carried and not ip.startswith("127."):
            return carried[ip], ip, "carries the node's address"
    route = execute(["ip", "-o", "-4", "route", "get", "203.0.113.1"], 10).stdout
    found = re.search(r"dev (\S+).* src (\d+\.\d+\.\d+\.\d+)", route)
    if found is None:
        raise ActionError(f"no interface carries {address}, and there is no default route")
    return found[1], found[2], f"default route's interface; no interface carries {address}"


def free_ports(address: str, count: int) -> list[int]:
    """Ports that nothing listens on now."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for one in sockets:
            one.bind((address, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def deadline_after(limit_s: float) -> str:
    """The latest end of what starts now with this limit, in seconds since 1970."""
    return str(int(time.time() + limit_s + UNTIL_MARGIN_S))


def memlock_limit() -> int:
    """Bytes of locked memory a container may have: no limit (-1) if this host can grant that."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        return hard
    return -1


def remove_leftovers(run: str, ended_runs: Sequence[str] = ()) -> list[str]:
    """Remove containers and directories of runs that ended; returns what was removed.

    A run has ended if its containers exited or passed their deadline (a label), or if the controller knows it
    (``ended_runs``). Raises BusyError if another run holds the node, before anything is removed.
    """
    asked = [".ID", ".Names", ".State", *(f'(.Label "clusterctl.{key}")' for key in ("run", "until", "by"))]
    template = "[" + ", ".join(f"{{{{json {each}}}}}" for each in asked) + "]"
    output = docker(["ps", "-a", "--no-trunc", "--filter", "label=clusterctl.run", "--format", template])
    others = []
    for container, names, state, owner, until, by in map(json.loads, output.splitlines()):
        if owner == run or not names.startswith(OURS):
            continue
        others.append((container, owner))
        if owner not in ended_runs and state not in ENDED_STATES and is_future(until):
            raise BusyError(
                f"the node is busy: run {owner} of {by or 'another controller'} holds it "
                f"for up to {float(until) - time.time():.0f} s more"
            )
    removed = []
    for container, owner in others:
        docker(["rm", "-f", container], 60)
        removed.append(f"container {container[:12]} of run {owner}")
    directories = sorted(JOBS_ROOT.iterdir()) if JOBS_ROOT.is_dir() else []
    abandoned = [directory for directory in directories if directory.name != run and directory.is_dir()]
    for directory in abandoned:
        outcomes = _describe_outcomes(directory)
        removed.append(f"directory {directory}" + (f" ({outcomes})" if outcomes else ""))
    return removed + [f"not all files in {left}" for left in discard(abandoned)]


def discard(directories: Sequence[Path]) -> list[Path]:
    """Take directories of jobs away whatever their containers left there; returns what is not removed yet.

    Each is renamed first: files that cannot be removed, or not in time, keep no later job from running.
    """
    aside = []
    for directory in directories:
        aside.append(JOBS_ROOT / f"{DISCARDED}{os.urandom(8).hex()}")  # a full disk takes no new directory
        directory.rename(aside[-1])
    if aside:
        with contextlib.suppress(ActionError):  # unlike shutil.rmtree, rm does not call itself for each level
            execute(["rm", "-rf", "--", *map(str, aside)], DISCARD_S)
    return [path for path in aside if path.exists()]


def is_future(until: str) -> bool:
    """Whether this time, in seconds since 1970, is in the future; False if it is not a time."""
    try:
        return time.time() < float(until)
    except ValueError:
        return False


def _describe_outcomes(directory: Path) -> str:
    """How the ranks of an abandoned run's jobs ended; empty if none had."""
    if directory.name.startswith(DISCARDED):
        return ""
    outcomes = "; ".join(
        filter(None, map(_describe_outcome, filter(Path.is_dir, sorted(directory.iterdir()))))
    )
    return outcomes[:MAX_OUTCOMES_CHARACTERS]


def _describe_outcome(job: Path) -> str:
    """How the ranks of an abandoned job ended; empty if none had."""
    with os.scandir(job) as entries:
        names = [entry.name for entry in islice(entries, MAX_ENTRIES) if VERDICT_FILE.fullmatch(entry.name)]
    outcomes = []
    for name in sorted(names)[:MAX_OUTCOMES]:
        verdict = _json(job / name, MAX_OUTCOME_BYTES)
        verdict = verdict if isinstance(verdict, dict) else {}
        because = verdict.get("because")
        reason = because[:MAX_OUTCOME_CHARACTERS] if isinstance(because, str) else ""
        outcome = "ok" if verdict.get("ok") else reason or "no verdict"
        outcomes.append(f"{name.split('.')[0].replace('-', ' ')} {outcome}")
    return f"{job.name}: {', '.join(outcomes)}" if outcomes else ""


def prepare(request: dict[str, Any]) -> dict[str, Any]:
    """Clean up after earlier runs (or refuse if one holds the node), pull the image, report what fits."""
    docker(["version", "--format", "{{.Server.Version}}"])
    removed = remove_leftovers(request["run"], request.get("ended_runs", ()))
    image = request["image"]
    pulled = execute(["docker", "image", "inspect", image], 30).returncode != 0
    if pulled:
        docker(["pull", "-q", image], request["pull_timeout_s"])
    interface, address, how = find_interface(request["address"])
    framework = request["framework"] or inspect_framework(request)
    return {
        "interface": interface,
        "address": address,
        "interface_because": how,
        "ports": free_ports(address, max(1, framework["gpus"]) + 1),
        "memlock": memlock_limit(),
        "infiniband": Path("/dev/infiniband").is_dir(),
        "framework": framework,
        "pulled": pulled,
        "removed": removed,
    }


def inspect_framework(request: dict[str, Any]) -> dict[str, Any]:
    """Ask the image how its framework was built and how many GPUs its container sees."""
    label_values = {
        "clusterctl.run": request["run"],
        "clusterctl.job": "probe",
        "clusterctl.until": deadline_after(FRAMEWORK_S),
    }
    labels = [word for key, value in label_values.items() for word in ("--label", f"{key}={value}")]
    arguments = [
        "run",
        "--rm",
        "--name",
        f"{OURS}framework-{os.urandom(8).hex()}",
        "--network",
        "none",
        *labels,
        *request["container_arguments"],
    ]
    arguments += ["-e", f"CLUSTERCTL_FRAMEWORK={request['framework_name']}"]
    arguments += [
        "--entrypoint",
        "/bin/sh",
        request["image"],
        "-c",
        FIND_PYTHON,
        "60",
        "-c",
        FRAMEWORK_SCRIPT,
    ]
    done = execute(["docker", *arguments], FRAMEWORK_S)
    words = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
    if done.returncode in DOCKER_EXIT_CODES:
        raise ActionError(f"a container of the image cannot be started: {strip_prefixes(words[-1])}")
    if done.returncode != 0:
        raise ActionError(f"the image's {request['framework_name']} cannot be used: {words[-1]}")
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("gpus"), int):
        name = request["framework_name"]
        raise ActionError(f"the image's {name} did not report its version: {done.stdout[-200:]!r}")
    return found


def start(request: dict[str, Any]) -> dict[str, Any]:
    """Write the job's files, readable only by root, and start its container, detached."""
    directory = JOBS_ROOT / request["run"] / request["job"]
    execute(["docker", "rm", "-f", request["name"]], 60)  # of an earlier attempt at this job
    discard([directory] if directory.is_dir() else [])
    for path in (JOBS_ROOT, JOBS_ROOT / request["run"], directory):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in request["files"].items():
        (directory / name).parent.mkdir(mode=0o700, exist_ok=True)
        (directory / name).write_bytes(base64.b64decode(text))
    arguments = ["run", "-d", "--name", request["name"], "--user", "0:0"]
    arguments += ["--network", "host"]
    # Shared memory as large as the host's, and its own: what a killed rank leaves there ends with it.
    if not any(re.match(r"--(ipc|shm-size)(=|$)", argument) for argument in request["container_arguments"]):
        arguments += ["--ipc", "private", "--shm-size", str(shared_memory_bytes())]
    arguments += ["--oom-score-adj", "1000"]  # where memory ends, the job does, and nothing of the node's own
    arguments += ["--ulimit", f"memlock={request['memlock']}:{request['memlock']}"]
    arguments += ["-v", f"{directory}:{directory}", "-w", str(directory)]
    labels = {**request["labels"], "clusterctl.until": deadline_after(request["timeout_s"])}
    for key, value in labels.items():
        arguments += ["--label", f"{key}={value}"]
    if request["infiniband"]:
        arguments += ["--device", "/dev/infiniband", "--cap-add", "IPC_LOCK"]
    arguments += ["-e", f"CLUSTERCTL_FRAMEWORK={request['framework_name']}"]
    limit = str(int(request["timeout_s"] + 15))
    arguments += [*request["container_arguments"], "--entrypoint", "/bin/sh", request["image"]]
    arguments += ["-c", FIND_PYTHON, limit, str(directory / "supervise.py"), str(directory)]
    container = docker(arguments, 90)
    return {"container": container.splitlines()[-1]}


def shared_memory_bytes(path: str = "/dev/shm") -> int:  # noqa: S108 - looked at, not used
    """The size of the host's shared memory; of none, or one without a limit, Linux's default."""
    half_of_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    try:
        found = os.statvfs(path)
    except OSError:
        return half_of_memory
    return found.f_blocks * found.f_frsize or half_of_memory


def wait(request: dict[str, Any]) -> dict[str, Any]:
    """Wait for the container at most ``timeout_s``; stop it if it is still running; collect what it left."""
    has_ended = True
    try:
        docker(["wait", request["container"]], request["timeout_s"])
    except ActionError:
        has_ended = False
        stop(request)
    inspected = json.loads(docker(["inspect", request["container"]]))[0]["State"]
    return {
        "ended": has_ended,
        "exit_code": inspected["ExitCode"],
        "out_of_memory": bool(inspected.get("OOMKilled")),
        "log_tail": _container_log(request["container"]),
        "ranks": read_rank_files(
            Path(request["directory"]), request["ranks"], nccl_log=bool(request.get("nccl_log"))
        ),
    }


def _container_log(container: str) -> str:
    done = execute(["docker", "logs", "--tail", "50", container], 30)
    return (done.stdout + done.stderr)[-LOG_TAIL_BYTES:]


def read_rank_files(
    directory: Path, ranks: Sequence[int], *, nccl_log: bool = False
) -> dict[str, dict[str, Any]]:
    """What every rank left: verdict, end, progress, stack, the tail of its log; NCCL's log on request."""
    found = {}
    for rank in ranks:
        found[str(rank)] = {
            "verdict": _json(directory / f"rank-{rank}.verdict.json"),
            "end": _json(directory / f"rank-{rank}.end"),
            "progress": _json(directory / f"rank-{rank}.progress"),
            "stack": _tail(directory / f"rank-{rank}.stack"),
            **_logs(directory, rank, whole=nccl_log),
        }
    return found


def _logs(directory: Path, rank: int, *, whole: bool) -> dict[str, str]:
    """The tail of its log, preceded by NCCL's warnings; with ``whole`` NCCL's log of its transports too."""
    lines: list[str] = []
    warnings: list[str] = []
    size = 0
    with contextlib.suppress(OSError), _open(directory / f"rank-{rank}.nccl") as stream:
        for raw in islice(iter(partial(stream.readline, LOG_TAIL_BYTES), b""), NCCL_LOG_LINES):
            if NCCL_LINES.search(raw):
                line, size = raw.decode("utf-8", "replace"), size + len(raw)
                lines += [line] if size <= NCCL_LOG_BYTES else []
                warnings = [*warnings, line][-WARNINGS:] if " NCCL WARN " in line else warnings
    cut = [f"{NCCL_LOG_CUT}\n"] if size > NCCL_LOG_BYTES else []
    logs = {"log_tail": ("".join(warnings) + _tail(directory / f"rank-{rank}.log"))[-LOG_TAIL_BYTES:]}
    return logs | ({"nccl_log": "".join(lines + cut)} if whole else {})


def _json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    try:
        with _open(path) as stream:
            content = stream.read(max_bytes + 1)
        return json.loads(content) if len(content) <= max_bytes else None
    except (OSError, ValueError, RecursionError):
        return None


def _tail(path: Path) -> str:
    try:
        with _open(path) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LOG_TAIL_BYTES))
            return stream.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _open(path: Path) -> BinaryIO:
    """An ordinary file of a rank: its container chose what lies there, and may not choose a file of the host.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    stream = os.fdopen(descriptor, "rb")
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return stream
    stream.close()
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))


def stop(request: dict[str, Any]) -> dict[str, Any]:
    """Stop the container: its ranks print their stacks within the grace period, then they are killed."""
    docker(["stop", "-t", "8", request["container"]], 30)
    return {"stopped": request["container"]}


def remove(request: dict[str, Any]) -> dict[str, Any]:
    """Remove the job's container and its directory."""
    done = execute(["docker", "rm", "-f", request["container"]], 60)
    if done.returncode != 0 and "No such container" not in done.stderr:
        raise ActionError(f"docker rm: {strip_prefixes(done.stderr.strip())}")
    directory = Path(request["directory"])
    if directory.is_dir() and JOBS_ROOT in directory.parents:
        discard([directory])
        if not any(directory.parent.iterdir()):
            directory.parent.rmdir()
    return {"removed": request["container"]}


ACTIONS = {"prepare": prepare, "start": start, "wait": wait, "stop": stop, "remove": remove}


def main(request_text: str) -> int:
    """Run the action that the request names and print its answer, or the reason for the failure."""
    os.umask(0o077)
    request = json.loads(request_text)
    try:
        text = json.dumps({"ok": True, **ACTIONS[request["action"]](request)})
    except (ActionError, OSError, RecursionError) as error:  # a rank may have nested what it left
        busy = {"busy": True} if isinstance(error, BusyError) else {}
        text = json.dumps({"ok": False, "because": str(error)[-LOG_TAIL_BYTES:], **busy})
    sys.stdout.write(text)
    return 0
