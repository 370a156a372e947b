"""The probe as nodes run it: a program on standard input, whose answer is one line whatever happens."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from clustercheck.evidence.collect import MAX_OBJECTS, evidence_of, read_output
from clustercheck.evidence.shipment import shipment, sources
from clustercheck.launch.bounded import CallEnd, in_turn, run_all
from clustercheck.launch.transport import Completed, NodeTimeoutError, NodeUnreachableError
from clustercheck.parse.kernel_log import parse_kernel_log
from clustercheck.probe import name_service, registry


def probe(programs: Path | None = None, *, timeout: float = 20, **options: Any) -> dict[str, Any]:
    path = f"{programs}:{os.environ['PATH']}" if programs else os.environ["PATH"]
    ran = subprocess.run(
        [sys.executable, "-", json.dumps(options)], input=shipment("probe"), capture_output=True, text=True,
        env={**os.environ, "PATH": path}, timeout=timeout, check=True,
    )  # fmt: skip
    record: dict[str, Any] = json.loads(ran.stdout)
    assert ran.stderr == ""
    return record


def program(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_machine_without_a_gpu_is_described(tmp_path: Path) -> None:
    parts = ["host", "pci", "module", "nics", "rdma", "infiniband", "memory", "nvidia_smi", "container_gpus"]
    record = probe(parts=parts)
    assert record["errors"] == {}
    assert record["infiniband"]["left_out"] == []
    assert record["host"]["kernel"] == os.uname().release
    assert record["memory"]["MemTotal"] > 0
    assert record["container_gpus"] == {"skipped": "no training image was named"}
    assert all(nic["name"] != "lo" for nic in record["nics"])


def test_a_program_that_hangs_and_ignores_signals_does_not_hang_the_probe(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", "trap '' TERM; echo '<nvidia_smi_log>'; sleep 60 & sleep 60")
    begun = time.monotonic()
    record = probe(tmp_path, parts=["nvidia_smi", "host"], limit_s=0.5)
    assert time.monotonic() - begun < 50
    assert record["nvidia_smi"]["timed_out"] is True
    assert record["nvidia_smi"]["rc"] is None
    assert "<nvidia_smi_log>" in record["nvidia_smi"]["stdout"]
    assert record["host"]["hostname"]


def test_outputs_and_exit_codes_are_kept_as_they_were(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", 'echo "out $@"; echo err >&2; printf "\\377" ; exit 18')
    record = probe(tmp_path, parts=["nvidia_smi", "nvlink"])
    assert record["nvidia_smi"]["stdout"].startswith("out -q -x\n")
    assert (record["nvidia_smi"]["rc"], record["nvidia_smi"]["stderr"]) == (18, "err\n")
    assert record["nvlink"]["stdout"].startswith("out nvlink -s\n")


def test_the_container_is_started_with_the_arguments_given_and_removed_when_it_hangs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program(tmp_path, "docker", f'echo "$@" >> {log}; case $1 in run) sleep 30;; esac')
    record = probe(
        tmp_path, parts=["container_gpus"], limit_s=1.5, image="own/paddle@sha256:0",
        gpu_arguments=["--device", "nvidia.com/gpu=all"],
    )  # fmt: skip
    assert record["container_gpus"]["timed_out"] is True
    inspect, run, remove = log.read_text().splitlines()
    assert inspect.startswith("image inspect") and remove.startswith("rm --force clusterctl-probe-")
    assert "--device nvidia.com/gpu=all --entrypoint nvidia-smi own/paddle@sha256:0 -L" in run


def test_an_image_that_is_not_there_is_said(tmp_path: Path) -> None:
    program(tmp_path, "docker", 'echo "Error response from daemon: No such image: own/paddle" >&2; exit 1')
    record = probe(tmp_path, parts=["container_gpus"], image="own/paddle@sha256:0")
    assert record["container_gpus"]["skipped"] == "the training image is not on this node"


def test_a_docker_that_fails_is_no_image_that_is_missing(tmp_path: Path) -> None:
    program(tmp_path, "docker", 'echo "permission denied" >&2; exit 1')
    record = probe(tmp_path, parts=["container_gpus"], image="own/paddle@sha256:0")
    assert record["container_gpus"]["skipped"] == "docker failed: permission denied"


def test_busy_is_processes_containers_of_others_and_slurm(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", 'echo "4711, python3"; echo "4712, python3"')
    labels = '{"clusterctl.run":"x"}'
    gpus = '[{"Capabilities":[["gpu"]]}]'
    rows = (("train", gpus, labels), ("clusterctl-x-pairs", gpus, labels), ("web", "null", "{}"))
    shown = "".join(rf"/{name}\t{asked}\trunc\tnull\t{marks}\n" for name, asked, marks in rows)
    program(tmp_path, "docker", f"case $1 in ps) echo 1 2 3;; inspect) printf '{shown}';; esac")
    program(tmp_path, "squeue", "echo 99")
    found = probe(tmp_path, parts=["busy"])["busy"]
    assert found["containers"] == ["train"]
    assert found["slurm_jobs"] == ["99"] and len(found["processes"]) == 2
    assert len(found["reasons"]) == 3


@pytest.mark.parametrize(
    ("process", "container", "ignored", "reasons"),
    [
        ("/usr/bin/dcgm-exporter", "/mon\\t{}\\tnvcr.io/nvidia/k8s/dcgm-exporter:4.2.0-ubuntu22.04", [], 0),
        ("Xorg", "/dcgm-exporter\\t{}\\tsha256:0123", [], 0),
        ("/usr/bin/nv-hostengine", "/mon\\t{}\\tnvcr.io/nvidia/cloud-native/dcgm:4.2.3-1", [], 0),
        ("prometheus-node", "/site-watch-1\\t{}\\tr:5000/a@sha256:0123", ["site-watch-*"], 0),
        ("site-watch", "/site-watch-1\\t{}\\tr:5000/a@sha256:0123", [], 2),
        ("python3", "/train\\t{}\\tr:5000/dcgm-exporter-training:1", [], 2),
    ],
)
def test_what_holds_gpus_for_ever_is_not_a_job(
    tmp_path: Path, process: str, container: str, ignored: list[str], reasons: int
) -> None:
    program(tmp_path, "nvidia-smi", f'echo "4711, {process}"')
    shown = container.replace("\\t{}", "\\tnull\\tnvidia\\tnull\\t{}")
    program(tmp_path, "docker", f"case $1 in ps) echo 1;; inspect) printf '{shown}\\n';; esac")
    found = probe(tmp_path, parts=["busy"], holders_ignored=ignored)["busy"]
    assert len(found["reasons"]) == reasons, found


def test_the_kernel_log_comes_from_the_journal_else_from_the_ring_buffer(tmp_path: Path) -> None:
    said = "2026-11-20T10:00:00+0000 host kernel: NVRM: Xid (PCI:0000:07:00): 79, gone"
    program(tmp_path, "journalctl", f"echo 'first line'; echo '{said}'")
    log = probe(tmp_path, parts=["kernel_log"])["kernel_log"]
    assert (log["source"], log["lines"], log["kept"]) == ("journal", 2, [said])
    program(tmp_path, "journalctl", "exit 1")
    program(tmp_path, "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    log = probe(tmp_path, parts=["kernel_log"])["kernel_log"]
    assert log["source"] == "" and "not permitted" in log["because"]


def test_a_kernel_log_is_read_to_its_end_however_long_and_says_whether_it_begins_with_the_boot(
    tmp_path: Path,
) -> None:
    said = "2026-11-20T10:00:00+0000 host kernel: NVRM: Xid (PCI:0000:07:00): 79, gone"
    boot = "2026-11-01T10:00:00+0000 host kernel: Linux version 6.1.0-40-amd64 (debian-kernel)"
    noise = f"yes {'x' * 999} | head -n 9000"  # more than is kept of what other programs say
    program(tmp_path, "journalctl", f"echo microcode; echo '{boot}'; {noise}; echo '{said}'")
    log = probe(tmp_path, parts=["kernel_log"])["kernel_log"]
    assert (log["lines"], log["kept"], log["dropped"], log["from_boot"]) == (9003, [said], 0, True)
    program(tmp_path, "journalctl", f"echo noise; yes '{said}' | head -n 501")
    log = probe(tmp_path, parts=["kernel_log"])["kernel_log"]
    assert (len(log["kept"]), log["omitted"], log["dropped"], log["from_boot"]) == (5, 496, 0, False)
    warm = "2026-11-20T11:00:00+0000 host kernel: mlx5_core 0000:0a:00.0: High temperature"
    program(tmp_path, "journalctl", f"echo '{said}'; yes '{warm}' | head -n 9000")
    log = probe(tmp_path, parts=["kernel_log"])["kernel_log"]
    assert log["kept"] == [said, *[warm] * 5]


# As mlx5_core prints them: events.c of the kernel.
HOT = [
    "mlx5_core 0000:0c:00.0: port_module:252:(pid 0): Port module event[error]: module 0, Cable error, "
    "High Temperature",
    "mlx5_core 0000:0c:00.0: temp_warn:193:(pid 7): High temperature on sensors with bit set 0 1",
]


@pytest.mark.parametrize("said", HOT)
def test_what_the_kernel_says_of_a_module_that_is_too_hot_is_kept_and_read(tmp_path: Path, said: str) -> None:
    program(tmp_path, "journalctl", f"echo '2026-11-20T10:00:00+0000 host kernel: {said}'")
    log = parse_kernel_log(probe(tmp_path, parts=["kernel_log"])["kernel_log"])
    assert [(one.address, one.fault) for one in log.unnumbered] == [
        ("0000:0c:00.0", "the adapter or its cable's module is too hot")
    ]


@pytest.mark.parametrize("argument", ["not json", "[]", '{"limit_s": "soon"}', '{"parts": 3}'])
def test_wrong_options_are_answered_with_a_record(argument: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-", argument], input=shipment("probe"), capture_output=True, text=True, check=True,
        timeout=60, env={**os.environ, "PATH": "/nowhere"},
    )  # fmt: skip
    assert json.loads(ran.stdout)["probe"] == 1


def test_the_probe_needs_itself_and_the_standard_library_of_python_3_8_alone() -> None:
    modules = sources("probe")
    for name, text in {**modules, "the loader": shipment("probe")}.items():
        tree = ast.parse(text, feature_version=(3, 8))
        imported = {
            each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names
        } | {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {i for i in imported if i.partition(".")[0] not in sys.stdlib_module_names} <= set(modules), (
            name
        )
        called = {
            node.func.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert not called & {"removeprefix", "removesuffix", "cache"}, name  # of Python 3.9


def test_a_shipped_package_runs_where_nothing_of_ours_is(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-", '{"parts": ["host"]}'], input=shipment("probe"), cwd=tmp_path,
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(ran.stdout)["host"]["hostname"]


def test_answers_of_nodes() -> None:
    record = '{"probe": 1, "host": {}}'
    assert read_output("a", Completed(0, f"motd\n{record}\n", "")).raw == {"probe": 1, "host": {}}
    for stdout in ("", "motd", '{"probe": 1, "host', "{}", "[1]", f"{record}\n" + "{}\n" * MAX_OBJECTS):
        node = read_output("a", Completed(127, stdout, "sh: python3: not found"))
        assert "python3: not found" in node.unreachable
    assert "within 9 s" in evidence_of(CallEnd("a", error=NodeTimeoutError("a", "slow")), 9).unreachable
    assert evidence_of(CallEnd("a", error=NodeUnreachableError("a", "refused")), 9).unreachable == "refused"
    assert "KeyError" not in evidence_of(CallEnd("a", error=OSError("broken pipe")), 9).unreachable


def test_calls_are_bounded_in_number_and_in_time() -> None:
    running, most = [], [0]

    def work(name: str) -> str:
        running.append(name)
        most[0] = max(most[0], len(running))
        time.sleep(0.02)
        running.remove(name)
        if name == "3":
            raise LookupError(name)
        return name

    ended = {
        e.name: e
        for e in run_all({str(n): lambda n=n: work(str(n)) for n in range(9)}, limit_s=5, parallel=3)
    }
    assert len(ended) == 9 and most[0] <= 3
    assert isinstance(ended["3"].error, LookupError) and ended["4"].value == "4"
    (late,) = run_all({"x": lambda: time.sleep(3)}, limit_s=0.05)
    assert late.late


def test_the_time_of_a_call_begins_with_its_turn() -> None:
    gate, held, released = threading.Lock(), threading.Event(), threading.Event()

    def hang() -> str:
        with in_turn(gate):
            held.set()
            released.wait()
        return "too late"

    def wait_for_it() -> str:
        held.wait()
        with in_turn(gate):
            return "its own time"

    calls = {"hangs": hang, "waits": wait_for_it, "hangs later": released.wait}
    ends = run_all(calls, limit_s=0.3, parallel=2)
    assert [next(ends), next(ends)] == [CallEnd("hangs", late=True), CallEnd("hangs later", late=True)]
    released.set()
    assert list(ends) == [CallEnd("waits", value="its own time")]


def test_a_call_that_hangs_after_its_turn_is_late() -> None:
    gate, held, released = threading.Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with in_turn(gate):
            held.set()

    def hang() -> None:
        held.wait()
        with in_turn(gate):
            released.wait()

    assert sorted(e.name for e in run_all({"holds": hold, "hangs": hang}, limit_s=0.05) if e.late) == [
        "hangs"
    ]
    released.set()


def test_what_cannot_be_told_is_unknown_and_what_is_not_there_is_not_busy(tmp_path: Path) -> None:
    for name in ("nvidia-smi", "docker", "squeue"):
        program(tmp_path, name, "echo 'it is broken' >&2; exit 1")
    found = probe(tmp_path, parts=["busy"])["busy"]
    assert found["reasons"] == []  # no driver is loaded here, so nothing computes
    assert found["unknown"] == ["docker failed: it is broken", "squeue failed: it is broken"]
    program(tmp_path, "docker", "echo 'Cannot connect to the Docker daemon at unix:///x' >&2; exit 1")
    program(tmp_path, "squeue", "echo 'slurm_load_jobs error: Invalid node name specified' >&2; exit 1")
    assert probe(tmp_path, parts=["busy"])["busy"]["unknown"] == []
    program(tmp_path, "squeue", "sleep 30")
    program(tmp_path, "nvidia-smi", "sleep 30")
    slow = probe(tmp_path, parts=["busy"], limit_s=0.3)["busy"]["unknown"]
    assert slow == ["nvidia-smi did not answer", "squeue did not answer"]


@pytest.mark.parametrize(
    ("printed", "reasons", "unknown"),
    [
        ("", 0, 0),
        ("4711, python3\\n", 1, 0),
        ("[N/A], [Not Found]\\n", 1, 0),
        ("GPU 0: \\377\\376 <<<\\n", 0, 1),
        ("4711, python3\\n47", 1, 1),
    ],
)
def test_a_list_of_processes_that_is_none_leaves_it_open_who_computes(
    tmp_path: Path, printed: str, reasons: int, unknown: int
) -> None:
    program(tmp_path, "nvidia-smi", f"printf '{printed}'")
    program(tmp_path, "docker", "exit 0")
    found = probe(tmp_path, parts=["busy"])["busy"]
    assert (len(found["reasons"]), len(found["unknown"])) == (reasons, unknown)


def test_a_container_of_another_run_is_busy_until_its_time_is_over(tmp_path: Path) -> None:
    labels = {"clusterctl.run": "r7", "clusterctl.by": "ops@head", "clusterctl.until": str(time.time() + 60)}
    for until, expected in (
        (labels["clusterctl.until"], ["clusterctl run r7 of ops@head"]),
        ("1", []),
        ("x", []),
    ):
        said = json.dumps({**labels, "clusterctl.until": until})
        rows = [f"/{name}\tnull\trunc\tnull\t{said}\n" for name in ("clusterctl-r7-pairs", "of-an-image")]
        (tmp_path / "said").write_text("".join(rows))
        program(tmp_path, "docker", f"case $1 in ps) echo 1;; inspect) cat {tmp_path}/said;; esac")
        assert probe(tmp_path, parts=["busy"])["busy"]["reasons"] == expected


def test_room_is_said_of_every_place_and_of_the_nearest_parent_of_one_that_is_not_there() -> None:
    record = probe(parts=["storage", "shared_memory"])
    rooms = {room["path"]: room for room in record["storage"]}
    assert {"/", "/var/log", "/var/lib/clusterctl", "/var/lib/docker"} <= set(rooms)
    assert all(room["size_bytes"] >= room["free_bytes"] >= 0 for room in rooms.values())
    assert record["shared_memory"]["path"] == "/dev/shm"


class NameServer(threading.Thread):
    """Answers every question with "no such name", or not at all."""

    def __init__(self, *, silent: bool) -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.silent, self.asked = silent, b""

    def run(self) -> None:
        while not self.asked or self.silent:
            self.asked, sender = self.socket.recvfrom(512)
            if not self.silent:
                self.socket.sendto(self.asked[:2] + b"\x81\x83" + self.asked[4:], sender)


@pytest.mark.parametrize(("silent", "rcode"), [(False, 3), (True, None)])
def test_a_name_server_that_says_no_answers_and_one_that_is_silent_does_not(
    monkeypatch: pytest.MonkeyPatch, silent: bool, rcode: int | None
) -> None:
    server = NameServer(silent=silent)
    server.start()
    monkeypatch.setattr(name_service, "PORT", server.socket.getsockname()[1])
    monkeypatch.setattr(name_service, "ANSWER_S", 0.1)
    answer = name_service.ask("127.0.0.1", "registry.example")
    assert answer["rcode"] == rcode
    assert bool(answer["because"]) is silent
    assert b"\x08registry\x07example\x00\x00\x01\x00\x01" in server.asked


def test_a_name_server_that_is_no_address_is_said() -> None:
    assert name_service.ask("not an address", "registry.example")["because"]


@pytest.mark.parametrize(
    ("image", "endpoint"),
    [
        ("registry01:5000/library/paddle@sha256:0", ("registry01", 5000)),
        ("harbor.site/library/paddle@sha256:0", ("harbor.site", 443)),
        ("library/paddle@sha256:0", None),
        ("", None),
    ],
)
def test_the_registry_is_the_one_in_the_images_name(image: str, endpoint: Any) -> None:
    assert registry.endpoint_of(image) == endpoint


def test_a_registry_says_where_it_fails() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        found = registry.registry(f"127.0.0.1:{port}/a/b@sha256:0")
    assert (found["stage"], found["because"]) == ("connect", "Connection refused")
    assert registry.registry("no-such-host.invalid:5000/a@sha256:0")["stage"] == "name"
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        threading.Thread(target=lambda: [mute.accept()[0].close() for _ in range(2)], daemon=True).start()
        port = mute.getsockname()[1]
        assert registry.registry(f"127.0.0.1:{port}/a/b@sha256:0")["stage"] == "tls"
    assert "skipped" in registry.registry("paddle")
