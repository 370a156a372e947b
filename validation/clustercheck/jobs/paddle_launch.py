"""A plain script by ``paddle.distributed.launch`` on every node, as users start it: launched_training.py.

One rank a node starts the launcher, which starts a process for each GPU (one where Paddle has no CUDA) and
finds the other nodes by itself. All is as a user would type it, with ``--host`` and the interface, without
which it waits for ever where /etc/hosts names the host 127.0.1.1.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import meeting, nccl_tests
else:  # on a node they are single files, not a package
    meeting = importlib.import_module(f"{__package__}.meeting" if __package__ else "meeting")
    nccl_tests = importlib.import_module(f"{__package__}.nccl_tests" if __package__ else "nccl_tests")

SCRIPT = "launched_training.py"
# Of our ranks: the launcher makes its own, and what is left of these would silently override its options.
RANK_VARIABLES = ("PADDLE_", "FLAGS_selected_gpus", "CLUSTERCTL_", "NVIDIA_TF32_OVERRIDE", "NCCL_DEBUG")
MAX_LOG = 4000  # characters of what a process printed, the last

join = nccl_tests.join


def read_processes() -> list[int]:
    """How many processes a user starts on each node, by rank: one for each GPU, as our launcher counted them
    before the job. If a node told the others, they would miss what it does not start.
    """
    return [int(count) for count in os.environ["CLUSTERCTL_PROCESSES"].split(",")]


def make_command(
    world: nccl_tests.MeetingWorld, master: str, processes: int, directory: Path, arguments: Mapping[str, Any]
) -> list[str]:
    """The command line on this node; all that is written goes to the directory."""
    unset = sorted(name for name in os.environ if name.startswith(RANK_VARIABLES))
    numbers = [str(int(arguments[key])) for key in ("samples", "batch", "epochs", "seed")]
    return [
        "env", *(f"--unset={name}" for name in unset), sys.executable, "-m", "paddle.distributed.launch",
        "--master", master, "--nnodes", str(world.size), "--nproc_per_node", str(processes),
        "--host", world.address, "--rank", str(world.rank), "--log_dir", str(directory / "log"),
        str(Path(SCRIPT).absolute()), str(directory), *numbers,
    ]  # fmt: skip


def read_trainers(directory: Path) -> list[Any]:
    """What this node's processes wrote, in order of names; without what is no JSON, as where they ended while
    they wrote.

    A loss that is not finite is None: what a peer sent made it so, and a verdict has none.
    """
    found = []
    for path in sorted(directory.glob("trainer-*.json")):
        with suppress(ValueError, RecursionError):
            found.append(json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _name: None))
    return found


def read_logs(directory: Path) -> str:
    """The ends of what the processes printed, the last of each, until it is enough."""
    logs = sorted(directory.glob("log/*workerlog.*")) or sorted(directory.glob("log/*"))
    share = MAX_LOG // max(1, len(logs))
    ends: Sequence[str] = [
        f"{path.name}: {path.read_text(encoding='utf-8', errors='replace')[-share:]}" for path in logs
    ]
    return "\n".join(ends)[-MAX_LOG:]


def read_port(value: Any) -> int:
    """A free port of a node. Raises ValueError."""
    return nccl_tests.read_count(value, 65535)


def run(world: nccl_tests.MeetingWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: samples and batch (per process), epochs, seed, limit_each_s, limit_s.

    One sample fewer than the processes could share equally: one is trained on twice.
    """
    processes = read_processes()
    with socket.socket() as one:
        one.bind((world.address, 0))
        port = one.getsockname()[1]
    # Only the first node's port is used: what another one says of its own is nobody's failure.
    first, *_ = world.exchange(port, "agreeing on the first node", read_port)
    if first is None:
        # Whoever waits with this one for a peer says so, too: who sent it does not.
        raise meeting.MeetingError("a peer, rank 0, does not say which port is free")
    master = f"{world.endpoints[0][0]}:{first}"
    directory = Path(f"launched-{world.rank}").absolute()
    directory.mkdir()
    together = sum(processes)
    samples = int(arguments["samples"]) * together - 1
    words = make_command(world, master, processes[world.rank], directory, {**arguments, "samples": samples})
    world.set_phase("paddle.distributed.launch", collective=True)
    found = nccl_tests.run_program(world, words, directory / "launch")
    return {
        "ok": True,
        "because": "",
        "launched": {**found, "text": found["text"][-MAX_LOG:], "log": read_logs(directory)},
        "trainers": read_trainers(directory),
        "processes": processes[world.rank],
        "all_processes": together,
        "samples": samples,
        "epochs": int(arguments["epochs"]),
    }
