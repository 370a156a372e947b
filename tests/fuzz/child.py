"""Runs the targets of one module under limits: `python -m tests.fuzz.child MODULE SEED INPUTS`.

Prints one JSON object per target. If an input ends the process, it is in the file `current`.
"""

from __future__ import annotations

import base64
import importlib
import json
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.mutants import mutant
from tests.fuzz.target import Target

# For one input, beyond what the target needs for a good one.
CPU_S = 20.0
# The signal comes again and again: where it is raised inside a destructor, Python drops the exception.
CPU_AGAIN_S = 0.5
MEMORY_BYTES = 1 << 30
MAX_FAILURES = 5


class CpuLimitError(BaseException):
    """An input took too long. No Exception: what is under test may swallow every one of those."""


def main(module: str, seed: str, inputs: int) -> None:
    """Each target of a module: first its seeds as they are, then so many mutants."""
    targets: dict[str, Target] = importlib.import_module(f"tests.fuzz.targets.{module}").TARGETS
    limit_cpu()
    seeds_by_name = {}
    # All of them first: servers that record some have threads, for which a limit leaves no room.
    for name, target in targets.items():
        seeds_by_name[name] = target.seeds()
        for good in seeds_by_name[name]:
            target.run(good)
    for name, target in targets.items():
        seeds = seeds_by_name[name]
        _limit_memory()
        record = fuzz(target, seeds, random.Random(f"{seed}/{target.name}"), inputs)  # noqa: S311 - no secret
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()


def fuzz(target: Target, seeds: list[bytes], chosen: random.Random, inputs: int) -> dict[str, Any]:
    """Run so many mutants; what came of them, with at most five failures."""
    started, failures, slowest = time.process_time(), [], 0.0
    for number in range(inputs):
        data = mutant(seeds, chosen)
        Path("current").write_bytes(data)
        before = time.process_time()
        because = _run(target, data)
        slowest = max(slowest, time.process_time() - before)
        if because:
            failures.append(
                {"number": number, "input": base64.b64encode(data[:4000]).decode(), "because": because}
            )
            Path(f"failed-{target.name}-{number}").write_bytes(data)
        if len(failures) >= MAX_FAILURES:
            break
    return {
        "target": target.name, "inputs": number + 1, "failures": failures,
        "cpu_s": time.process_time() - started, "slowest_s": slowest,
    }  # fmt: skip


def _run(target: Target, data: bytes) -> str:
    try:
        signal.setitimer(signal.ITIMER_PROF, CPU_S, CPU_AGAIN_S)
        try:
            target.run(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except (Exception, CpuLimitError):  # noqa: BLE001 - whatever it is, it is a finding
        signal.setitimer(signal.ITIMER_PROF, 0)  # it may have come in the clean-up
        return traceback.format_exc()[-3000:]
    return ""


def limit_cpu() -> None:
    """Have an input ended that takes more than CPU_S of this process's time, of the kernel's for it too."""
    signal.signal(signal.SIGPROF, _too_long)


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise CpuLimitError(f"it took more than {CPU_S:g} s of CPU")


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
