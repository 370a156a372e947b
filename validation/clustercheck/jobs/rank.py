"""One rank of a distributed job: joins the group, runs its program, writes one JSON verdict.

Shipped to the node next to the program and run as ``python rank.py DIRECTORY PROGRAM`` with PADDLE_* in its
environment. Stdlib and Paddle only; the programs get a World and import nothing of ours.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class Progress:
    """The phase of this rank, in a file that outlives it: it shows which rank is behind when a job hangs.

    Its counter is how often this rank began to wait for its peers: of work of their own, ranks have more or
    less.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self.counter = self.beats = 0
        self.phase = "starting"
        self.collective = False
        self.set_phase("starting")

    def set_phase(self, phase: str, *, collective: bool = False) -> None:
        """Record a phase. ``collective``: this rank now waits for its peers."""
        self.counter += collective
        self.phase, self.collective = phase, collective
        self._write()

    def beat(self) -> None:
        """Show that this rank still waits, which is no progress among its peers."""
        self.beats += 1
        self._write()

    def _write(self) -> None:
        known = {"counter": self.counter, "phase": self.phase, "collective": self.collective}
        record = json.dumps({**known, "beats": self.beats}).encode()
        os.pwrite(self._descriptor, record, 0)
        os.ftruncate(self._descriptor, len(record))


class World:
    """The group as one rank sees it: a thin layer that keeps programs short."""

    def __init__(self, paddle: Any, progress: Progress) -> None:
        self._paddle = paddle
        self._progress = progress
        self._groups = 0
        self.rank = int(os.environ["PADDLE_TRAINER_ID"])
        self.size = int(os.environ["PADDLE_TRAINERS_NUM"])
        self.backend = os.environ["CLUSTERCTL_BACKEND"]
        self.interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        self.framework = f"paddle {paddle.__version__}"
        self.on_gpu = self.backend == "nccl"
        self.device = f"gpu:{os.environ['CLUSTERCTL_GPU']}" if self.on_gpu else "cpu"

    def describe(self) -> dict[str, Any]:
        """What every verdict records about where it was measured."""
        return {
            "rank": self.rank,
            "world": self.size,
            "backend": self.backend,
            "device": self.device,
            "framework": self.framework,
            "interface": self.interface,
        }

    def set_phase(self, phase: str, *, collective: bool = False) -> None:
        """Record the phase of this rank."""
        self._progress.set_phase(phase, collective=collective)

    def tensor(self, array: Any) -> Any:
        """A tensor on this rank's device."""
        return self._paddle.to_tensor(array)

    def tile(self, array: Any, elements: int) -> Any:
        """A tensor of ``elements`` elements, the array repeated; the repeating is done on the device."""
        times = -(-elements // len(array))
        return self._paddle.tile(self.tensor(array), [times])[:elements]

    def group(self, ranks: Sequence[int]) -> Any:
        """A group of these ranks. Every rank of the world must call this, in the same order."""
        self._groups += 1
        if self.on_gpu or self.rank not in ranks:
            return self._paddle.distributed.new_group(list(ranks))
        # Over gloo Paddle (2.6, 3.3) keeps the addresses of all groups under the same keys, 0, 1, ...:
        # in the world's store a group sometimes finds those of an earlier one.
        collective: Any = importlib.import_module("paddle.distributed.collective")
        shared = collective._default_store
        collective._default_store = self._store_of(ranks, shared)
        try:
            return self._paddle.distributed.new_group(list(ranks))
        finally:
            collective._default_store = shared

    def _store_of(self, ranks: Sequence[int], shared: Any) -> Any:
        """A store for these ranks only, served by the first of them."""
        key = f"store of group {self._groups}"
        serves = self.rank == min(ranks)
        host = _endpoint_of(min(ranks)).rpartition(":")[0]
        if serves:
            with socket.socket() as one:
                one.bind((host, 0))
                port = one.getsockname()[1]
        else:
            # Every rank can write there: the address is the launcher's, and the port is one.
            port = _read_port(shared.get(key), min(ranks))
        # It waits for the given number of ranks; the first one must not wait.
        store = self._paddle.base.core.TCPStore(host, port, serves, 1)
        if serves:
            shared.set(key, str(port))
        return store

    def all_reduce(self, tensor: Any, *, op: str = "SUM", group: Any = None) -> None:
        """Reduce in place over the group: SUM, MAX or MIN."""
        if self.size == 1:
            return  # Paddle makes no group of one
        distributed = self._paddle.distributed
        distributed.all_reduce(tensor, op=getattr(distributed.ReduceOp, op), group=group)

    def all_gather(self, output: Any, tensor: Any) -> None:
        """All ranks' tensors, in order of rank, into the output."""
        self._paddle.distributed.stream.all_gather(output, tensor, sync_op=True)

    def reduce_scatter(self, output: Any, tensor: Any) -> None:
        """The sum of all ranks' tensors: this rank's part of it into the output."""
        self._paddle.distributed.stream.reduce_scatter(output, tensor, sync_op=True)

    def all_to_all(self, output: Any, tensor: Any) -> None:
        """Part k of the tensor to rank k; the output gets a part from each, in order of rank."""
        self._paddle.distributed.stream.alltoall_single(output, tensor, sync_op=True)

    def broadcast(self, tensor: Any, root: int) -> None:
        """The root's tensor into that of every rank."""
        self._paddle.distributed.broadcast(tensor, src=root)

    def poison(self, elements: int) -> Any:
        """A tensor of NaN, which no result is: elements that are not written are noticed."""
        return self._paddle.full([elements], float("nan"), dtype="float32")

    def barrier(self, group: Any = None) -> None:
        """Wait until every rank of the group is here."""
        if self.size > 1:
            self._paddle.distributed.barrier(group)

    def data_parallel(self, model: Any) -> Any:
        """The model, its gradients averaged over all ranks."""
        return self._paddle.DataParallel(model) if self.size > 1 else model

    def synchronize(self) -> None:
        """Wait for the device: on a GPU a call returns before its work is done."""
        if self.on_gpu:
            self._paddle.device.cuda.synchronize()

    def measure_time(self, work: Callable[[], None], repeat: int = 1) -> float:
        """Seconds for one ``work``, from a synchronised start to a synchronised end of ``repeat`` of them."""
        self.synchronize()
        started_at = time.perf_counter()
        for _ in range(repeat):
            work()
        self.synchronize()
        return (time.perf_counter() - started_at) / repeat


def _endpoint_of(rank: int) -> str:
    """Where the launcher placed a rank."""
    return os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[rank]


def _read_port(said: bytes, rank: int) -> int:
    """The port that a rank's store listens at. Raises RuntimeError, as for a peer that is gone."""
    if not re.fullmatch(rb"[0-9]{4,5}", said) or not 1024 <= int(said) <= 65535:
        raise RuntimeError(f"a peer, rank {rank}, does not say at which port its store listens")
    return int(said)


def join(progress: Progress) -> World:
    """Import Paddle, select the device, and join the other ranks."""
    progress.set_phase("importing paddle")
    paddle: Any = importlib.import_module("paddle")
    world = World(paddle, progress)
    paddle.device.set_device(world.device)
    progress.set_phase("joining the group", collective=True)
    paddle.distributed.init_parallel_env()
    if paddle.distributed.get_world_size() != world.size:
        raise RuntimeError(f"joined {paddle.distributed.get_world_size()} ranks, not {world.size}")
    return world


def open_own_device(progress: Progress, arguments: Mapping[str, Any], *, simulated: bool) -> Any:
    """This rank's device, for a program that measures a single one (``ALONE``): no group is joined."""
    progress.set_phase("opening the device")
    bench: Any = importlib.import_module("bench")
    return bench.open_bench(progress, arguments, simulated=simulated)


def is_device_simulated() -> bool:
    """Whether the GPU driver visible here reports that it is simulated."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        argv = [program, "-q", "-x"]
        printed = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "<simulated>" in printed.stdout


def write_verdict(path: Path, verdict: Mapping[str, Any]) -> None:
    """Write the verdict atomically."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(verdict, allow_nan=False), encoding="utf-8")
    temporary.replace(path)


def _enable_stack_dumps(path: Path) -> None:
    """On SIGUSR1 and on a crash. The file exists once the handler does: before, SIGUSR1 would kill."""
    temporary = path.with_suffix(".part")
    stream = temporary.open("w")
    faulthandler.enable(stream)
    faulthandler.register(signal.SIGUSR1, file=stream, all_threads=True)
    temporary.replace(path)


def run(directory: Path, program: str) -> int:
    """Run one rank to its verdict. 0 if the program finished, whatever it found."""
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    _enable_stack_dumps(directory / f"rank-{rank}.stack")
    progress = Progress(directory / f"rank-{rank}.progress")
    verdict: dict[str, Any] = {"rank": rank, "simulated": is_device_simulated()}
    path = directory / f"rank-{rank}.verdict.json"
    try:
        arguments = json.loads((directory / "arguments.json").read_text(encoding="utf-8"))
        module = importlib.import_module(program)
        if getattr(module, "ALONE", False):
            world = open_own_device(progress, arguments, simulated=verdict["simulated"])
            world.keep = lambda partial: write_verdict(path, {**verdict, **partial, "phase": progress.phase})
        else:
            world = getattr(module, "join", join)(progress)
        verdict.update(world.describe())
        write_verdict(path, {**verdict, **module.run(world, arguments)})
    except Exception as error:  # noqa: BLE001 - the verdict reports it
        traceback.print_exc()
        first_line = next(iter(str(error).strip().splitlines()), "") or "no message"
        verdict.update(
            ok=False,
            because=f"{type(error).__name__} while {progress.phase}: {first_line[:300]}",
            phase=progress.phase,
            collective=progress.collective,
        )
        write_verdict(path, verdict)
        return 1
    progress.set_phase("done, waiting for the others", collective=True)
    try:
        world.barrier()  # rank 0 holds the rendezvous: all ranks wait until every verdict is written
    except Exception as error:  # noqa: BLE001 - the verdict is written; a failing peer has its own
        print(f"rank {rank}: a peer exited early: {error}", flush=True)
    return 0


if __name__ == "__main__":
    code = run(Path(sys.argv[1]), sys.argv[2])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the collective library's destructors may wait for peers that are gone
