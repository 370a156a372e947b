"""NVIDIA's nccl-tests: within each node without MPI, then across all of them with the image's Open MPI.

One rank a node. Open MPI's daemons are started by the ranks themselves (meeting.py), since containers have no
sshd. What the programs print and write is handed back as it is; nothing here is judged.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from clustercheck.jobs import meeting
    from clustercheck.jobs.rank import Progress
else:  # shipped to a node they lie side by side, and are no package
    meeting = importlib.import_module(f"{__package__}.meeting" if __package__ else "meeting")

OFF = Path("/usr/local/share/clusterctl/nccl-tests.off")  # where the image's build left why there are none
LARGEST = 512 * 1024  # characters of what a program printed or wrote
ASK_S = 30.0


class Measuring(Protocol):
    """Who runs a program: what it was told, and where it notes that it gets on."""

    arguments: Mapping[str, Any]

    def at(self, phase: str, *, collective: bool = False) -> None:
        """Note where this rank is."""


class World:
    """The group as a rank on a node sees it."""

    def __init__(self, progress: Progress, arguments: Mapping[str, Any]) -> None:
        self._progress = progress
        self.arguments = arguments
        self.rank, self.size = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
        self.interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        self.address, port = os.environ["PADDLE_CURRENT_ENDPOINT"].rsplit(":", 1)
        self.port = int(port)
        host, port = os.environ["PADDLE_MASTER"].rsplit(":", 1)
        progress.at("meeting the other nodes", collective=True)
        self.meeting = meeting.Meeting(self.rank, self.size, (host, int(port)), str(arguments["secret"]))

    def describe(self) -> dict[str, Any]:
        """What every verdict says of where it was measured."""
        return {
            "rank": self.rank, "world": self.size, "interface": self.interface,
        }  # fmt: skip

    def at(self, phase: str, *, collective: bool = False) -> None:
        """Note where this rank is."""
        self._progress.at(phase, collective=collective)

    def exchange(self, value: Any, phase: str) -> list[Any]:
        """What every node gives; notes that it still waits, as long as it may."""
        self.at(phase, collective=True)
        limit_s = float(self.arguments["limit_s"])
        return list(self.meeting.exchange(value, limit_s, lambda: self.at(phase, collective=True)))

    def barrier(self) -> None:
        """Wait until every node is here."""
        self.exchange(None, "done, waiting for the others")


def join(progress: Progress) -> World:
    """Meet the other nodes' ranks; no framework is needed."""
    return World(progress, json.loads(Path("arguments.json").read_text(encoding="utf-8")))


def without() -> str:
    """Why this image has no nccl-tests; empty where it has."""
    if shutil.which("all_reduce_perf"):
        return ""
    try:
        return f"the image has no nccl-tests: {OFF.read_text(encoding='utf-8').strip()[:300]}"
    except OSError:
        return "the image has no nccl-tests (no all_reduce_perf)"


def without_mpi() -> str:
    """Why they cannot run across nodes in this image; empty where they can."""
    for program in ("mpirun", "all_reduce_perf_mpi"):
        if not shutil.which(program):
            return f"the image has no {program}"
    return ""


def gpus() -> int:
    """How many GPUs the driver shows here."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def words_of(program: str, arguments: Mapping[str, Any], gpus_a_process: int, file: Path) -> list[str]:
    """The command line: a sweep by factor 2, values looked at, and a file where the program writes one."""
    sweep = {"-b": "least", "-e": "most", "-n": "iterations", "-w": "warmup"}
    words = [program, "-g", str(gpus_a_process), "-f", "2", "-c", "1"]
    for option, name in sweep.items():
        words += [option, str(int(arguments[name]))]
    try:
        helped = subprocess.run([program, "-h"], capture_output=True, text=True, timeout=ASK_S, check=False)
        known = "--output_file" in helped.stdout + helped.stderr
    except (OSError, subprocess.TimeoutExpired):
        known = False
    return [*words, "-J", str(file)] if known else words


def measured(world: Measuring, phase: str, words: Sequence[str], file: Path, **more: str) -> dict[str, Any]:
    """Run one program to its end, or to its limit; what it printed and wrote."""
    limit_s, begun = float(world.arguments["limit_each_s"]), time.monotonic()
    with Path(f"{file}.out").open("w+", encoding="utf-8", errors="replace") as printed:
        process = subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
            env={**os.environ, **more}, start_new_session=True,
        )  # fmt: skip
        try:
            while process.poll() is None and time.monotonic() - begun < limit_s:
                world.at(phase, collective=True)
                try:
                    process.wait(min(meeting.TICK_S, limit_s))
                except subprocess.TimeoutExpired:
                    continue
            code = process.poll()
        finally:
            meeting.end(process)
        printed.seek(0)
        text = printed.read(LARGEST)
    return {
        "exit_code": code,  # None where its time was over
        "limit_s": limit_s,
        "text": text,
        "json": _written(file),
        "command": " ".join(words),
    }


def _written(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(LARGEST)
    except OSError:
        return ""


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: collectives, least and most (bytes), iterations, warmup, limit_each_s, limit_s, secret.

    ``without`` says why nothing was run, ``without_mpi`` why nothing was run across nodes.
    """
    lacks = world.exchange([without(), without_mpi(), gpus(), world.interface, world.address, world.port],
                           "comparing the nodes' images")  # fmt: skip
    reasons = sorted({said[0] for said in lacks if said[0]})
    if reasons:
        return {"ok": True, "because": "", "without": "; ".join(reasons), "within": {}, "across": {}}
    mine = int(lacks[world.rank][2])
    within, across = {}, {}
    for name in arguments["collectives"] if mine > 1 else ():
        file = Path(f"within-{name}.json").absolute()
        words = words_of(f"{name}_perf", arguments, mine, file)
        within[name] = measured(world, f"{name}_perf on {mine} GPUs", words, file)
    alone = "only one node takes part" if world.size == 1 else ""
    apart = "; ".join(sorted({said[1] for said in lacks if said[1]})) or alone
    if not apart:
        across = _across(world, arguments, lacks)
    return {
        "ok": True, "because": "", "without": "", "without_mpi": apart, "gpus": mine,
        "world_gpus": sum(int(said[2]) for said in lacks), "within": within, "across": across,
    }  # fmt: skip


def _across(world: World, arguments: Mapping[str, Any], nodes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Rank 0 runs mpirun, the others start what it asks for."""
    found: dict[str, Any] = {}
    starter = meeting.Starter(world.address, world.port, world.meeting.secret) if world.rank else None
    world.exchange(None, "getting ready for Open MPI")
    try:
        for name in arguments["collectives"] if starter is None else ():
            file = Path(f"across-{name}.json").absolute()
            program = words_of(f"{name}_perf_mpi", arguments, 1, file)
            environment = mpi_environment(nodes)
            total = sum(int(said[2]) for said in nodes)
            hosts = ",".join(f"{said[4]}:{said[2]}" for said in nodes)
            words = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", str(total), "--host", hosts]
            phase = f"{name}_perf on {total} GPUs of {len(nodes)} nodes"
            found[name] = measured(world, phase, [*words, *program], file, **environment)
        world.exchange(None, "nccl-tests across nodes")
    finally:
        if starter is not None:
            starter.close()
    return found


def mpi_environment(nodes: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Of Open MPI 4 and 5: our agent in place of ssh, and TCP over the nodes' interface for MPI itself."""
    agent = f"{sys.executable} {Path(meeting.__file__).absolute()}"
    told = {
        meeting.AGENTS: json.dumps({said[4]: said[5] for said in nodes}),
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm_rsh_agent": agent, "PRTE_MCA_plm_ssh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1", "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "^openib",
    }  # fmt: skip
    interfaces = {said[3] for said in nodes}
    if len(interfaces) == 1 and "" not in interfaces:
        (name,) = interfaces
        of = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include")
        told |= dict.fromkeys(of, name)
    return told
