"""One rank of a distributed job: joins the group, runs the program it is told, writes one JSON verdict.

Shipped to the node beside the program and run as ``python rank.py DIRECTORY PROGRAM`` with PADDLE_* in its
environment. Stdlib and Paddle alone; the programs get a World and import nothing of ours.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
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
    """Where this rank is, in a file that outlives it: who is behind when a job hangs is read from there."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self.counter = 0
        self.phase = "starting"
        self.collective = False
        self.at("starting")

    def at(self, phase: str, *, collective: bool = False) -> None:
        """Note a phase. ``collective`` where this rank now waits for its peers."""
        self.counter += 1
        self.phase, self.collective = phase, collective
        record = json.dumps({"counter": self.counter, "phase": phase, "collective": collective}).encode()
        os.pwrite(self._descriptor, record, 0)
        os.ftruncate(self._descriptor, len(record))


class World:
    """The group as one rank sees it. A thin layer, so that a program reads as what it measures."""

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
        """What every verdict says of where it was measured."""
        return {
            "rank": self.rank,
            "world": self.size,
            "backend": self.backend,
            "device": self.device,
            "framework": self.framework,
            "interface": self.interface,
        }

    def at(self, phase: str, *, collective: bool = False) -> None:
        """Note where this rank is."""
        self._progress.at(phase, collective=collective)

    def tensor(self, array: Any) -> Any:
        """A tensor on this rank's device."""
        return self._paddle.to_tensor(array)

    def repeated(self, array: Any, elements: int) -> Any:
        """A tensor of so many elements, the array over and over; the repeating is done on the device."""
        times = -(-elements // len(array))
        return self._paddle.tile(self.tensor(array), [times])[:elements]

    def group(self, ranks: Sequence[int]) -> Any:
        """A group of these ranks. Every rank of the world must call this, in the same order."""
        self._groups += 1
        if self.on_gpu or self.rank not in ranks:
            return self._paddle.distributed.new_group(list(ranks))
        # Over gloo Paddle (2.6, 3.3) keeps the addresses of all groups under the same keys, 0, 1, ...:
        # a group that meets in the world's store finds those of an earlier one now and then.
        collective: Any = importlib.import_module("paddle.distributed.collective")
        shared = collective._default_store
        collective._default_store = self._store_of(ranks, shared)
        try:
            return self._paddle.distributed.new_group(list(ranks))
        finally:
            collective._default_store = shared

    def _store_of(self, ranks: Sequence[int], shared: Any) -> Any:
        """A store where these ranks alone meet, served by the first of them."""
        key = f"store of group {self._groups}"
        serves = self.rank == min(ranks)
        if serves:
            host = os.environ["PADDLE_CURRENT_ENDPOINT"].rpartition(":")[0]
            with socket.socket() as one:
                one.bind((host, 0))
                port = one.getsockname()[1]
        else:
            host, _, port = shared.get(key).decode().rpartition(":")
        # It would wait for as many as it is told of; whoever comes first needs nobody.
        store = self._paddle.base.core.TCPStore(host, int(port), serves, 1)
        if serves:
            shared.set(key, f"{host}:{port}")
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
        """The root's tensor into everybody's."""
        self._paddle.distributed.broadcast(tensor, src=root)

    def poison(self, elements: int) -> Any:
        """A tensor of NaN, which is no result: what is not written shows."""
        return self._paddle.full([elements], float("nan"), dtype="float32")

    def barrier(self, group: Any = None) -> None:
        """Wait until every rank of the group is here."""
        if self.size > 1:
            self._paddle.distributed.barrier(group)

    def data_parallel(self, model: Any) -> Any:
        """The model, its gradients averaged over all ranks."""
        return self._paddle.DataParallel(model) if self.size > 1 else model

    def synchronize(self) -> None:
        """Wait for the device: a GPU returns from a call before its work is done."""
        if self.on_gpu:
            self._paddle.device.cuda.synchronize()

    def timed(self, work: Callable[[], None], repeat: int = 1) -> float:
        """Seconds for one ``work``, from a synchronised start to a synchronised end of ``repeat`` of them."""
        self.synchronize()
        begun = time.perf_counter()
        for _ in range(repeat):
            work()
        self.synchronize()
        return (time.perf_counter() - begun) / repeat


def join(progress: Progress) -> World:
    """Import Paddle, choose the device, and meet the other ranks."""
    progress.at("importing paddle")
    paddle: Any = importlib.import_module("paddle")
    world = World(paddle, progress)
    paddle.device.set_device(world.device)
    progress.at("joining the group", collective=True)
    paddle.distributed.init_parallel_env()
    if paddle.distributed.get_world_size() != world.size:
        raise RuntimeError(f"joined {paddle.distributed.get_world_size()} ranks, not {world.size}")
    return world


def alone(progress: Progress, arguments: Mapping[str, Any], *, simulated: bool) -> Any:
    """This rank's device by itself, for a program that measures one (``ALONE``): no group is met."""
    progress.at("opening the device")
    bench: Any = importlib.import_module("bench")
    return bench.open_bench(progress, arguments, simulated=simulated)


def device_says_simulated() -> bool:
    """Whether the GPU driver visible here prints that it is simulated."""
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
    """Write the verdict so that a reader finds all of it or nothing."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(verdict, allow_nan=False), encoding="utf-8")
    temporary.replace(path)


def _print_stacks_to(path: Path) -> None:
    """On SIGUSR1, and on a crash. The file is there when the handler is: before, SIGUSR1 would kill."""
    nascent = path.with_suffix(".part")
    stream = nascent.open("w")
    faulthandler.enable(stream)
    faulthandler.register(signal.SIGUSR1, file=stream, all_threads=True)
    nascent.replace(path)


def run(directory: Path, program: str) -> int:
    """Run one rank to its verdict. 0 where the program came to its end, whatever it found."""
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    _print_stacks_to(directory / f"rank-{rank}.stack")
    progress = Progress(directory / f"rank-{rank}.progress")
    verdict: dict[str, Any] = {"rank": rank, "simulated": device_says_simulated()}
    path = directory / f"rank-{rank}.verdict.json"
    try:
        arguments = json.loads((directory / "arguments.json").read_text(encoding="utf-8"))
        module = importlib.import_module(program)
        if getattr(module, "ALONE", False):
            world = alone(progress, arguments, simulated=verdict["simulated"])
            world.keep = lambda said: write_verdict(path, {**verdict, **said, "phase": progress.phase})
        else:
            world = getattr(module, "join", join)(progress)
        verdict.update(world.describe())
        write_verdict(path, {**verdict, **module.run(world, arguments)})
    except Exception as error:  # noqa: BLE001 - whatever it was, the verdict says so
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
    progress.at("done, waiting for the others", collective=True)
    try:
        world.barrier()  # rank 0 holds the rendezvous: nobody leaves before all have spoken
    except Exception as error:  # noqa: BLE001 - the verdict is written; a peer that fails now says so itself
        print(f"rank {rank}: a peer left before the end: {error}", flush=True)
    return 0


if __name__ == "__main__":
    code = run(Path(sys.argv[1]), sys.argv[2])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the collective library's destructors may wait for peers that have gone
