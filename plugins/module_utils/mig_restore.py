# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""The MIG layout of a node's GPUs, from what they are to what a file says: modes, then instances.

Installed on nodes as a program, which clusterctl-mig.service runs at boot and whenever the layout changes. It
needs only Python and nvidia-smi. It destroys only instances that the file does not have, and so completes
what an interrupted run started.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

LAYOUT = Path("/etc/clusterctl/mig.json")
LIMIT_S = 300
ABSENT, TIMED_OUT, NOTHING = 127, 124, 6
GOOD = (0, 14)  # 14: the InfoROM of one GPU is corrupted; everything is printed all the same
# (exit code, what was printed)
Run = Callable[[Sequence[str]], tuple[int, str]]

_GPU_INSTANCE = re.compile(r"\|\s+\d+\s+MIG (\S+)\s+\d+\s+(\d+)\s+(\d+):(\d+)\s+\|")
_COMPUTE_INSTANCE = re.compile(r"\|\s+\d+\s+(\d+)\s+MIG (\S+)\s+\d+\s+\d+\s+(?:\d+:\d+\s+)?\|")
MODES = {"Enabled": True, "Disabled": False}


class MigError(Exception):
    """nvidia-smi refused, or printed what cannot be read; the text says what of which GPU."""


class There(NamedTuple):
    """A GPU instance as the driver lists it, with the names of its compute instances."""

    profile: str
    start: int
    number: int
    computes: tuple[str, ...] = ()


def smi(run: Run, bus: str, *words: str) -> str:
    """What nvidia-smi prints of one GPU. Raises MigError where it fails."""
    mig, rest = (["mig"], words[1:]) if words[:1] == ("mig",) else ([], words)
    argv = ["nvidia-smi", *mig, "-i", bus, *rest]
    code, output = run(argv)
    if code not in GOOD:
        reason = "; ".join(line.strip() for line in output.splitlines() if line.strip())[:600]
        raise MigError(f"`{' '.join(argv)}` failed ({code}): {reason or 'nothing was printed'}")
    return output


def read_modes(run: Run, bus: str) -> tuple[bool | None, bool | None]:
    """The mode of a GPU and the one after its next reset. Raises MigError."""
    query = "--query-gpu=mig.mode.current,mig.mode.pending"
    return parse_modes(smi(run, bus, query, "--format=csv,noheader").partition("\n")[0])


def parse_modes(line: str) -> tuple[bool | None, bool | None]:
    """Both modes of a line of nvidia-smi's; None of a GPU without MIG. Raises MigError."""
    words = [word.strip() for word in line.split(",")]
    if set(words) <= {"[N/A]", "N/A", "[Not Supported]"}:
        return None, None
    if len(words) != 2 or not set(words) <= set(MODES):
        raise MigError(f"nvidia-smi says of a MIG mode: {line.strip()[:80]!r}")
    return MODES[words[0]], MODES[words[1]]


def read_instances(run: Run, bus: str) -> tuple[There, ...]:
    """The GPU instances of a GPU whose mode is on, by their place. Raises MigError."""
    computes: dict[int, list[str]] = {}
    for number, name in _COMPUTE_INSTANCE.findall(_listed(run, bus, "-lci")):
        computes.setdefault(int(number), []).append(name)
    text = _listed(run, bus, "-lgi")
    found = [
        There(name, int(start), int(number), tuple(computes.get(int(number), ())))
        for name, number, start, _ in _GPU_INSTANCE.findall(text)
    ]
    if len(found) != text.count(" MIG "):
        raise MigError(f"`nvidia-smi mig -lgi` of {bus} printed a table that cannot be read")
    return tuple(sorted(found, key=lambda one: one.start))


def _listed(run: Run, bus: str, option: str) -> str:
    """A table of instances; empty where there is none."""
    code, output = run(["nvidia-smi", "mig", "-i", bus, option])
    if code == NOTHING and "instances found" in output:
        return ""
    if code not in GOOD:
        raise MigError(f"`nvidia-smi mig -i {bus} {option}` failed ({code}): {output.strip()[:300]}")
    return output


def set_mode(run: Run, bus: str, wanted: bool, log: Callable[[str], None]) -> None:
    """Brings a GPU into the mode; by a reset where the driver left it pending. Raises MigError."""
    mode, pending = read_modes(run, bus)
    if mode is None and not wanted:
        return
    if (mode, pending) == (wanted, wanted):
        return
    word = "enable" if wanted else "disable"
    log(f"{bus}: {word} MIG")
    said = smi(run, bus, "-mig", str(int(wanted)))
    mode, pending = read_modes(run, bus)
    if mode != wanted and pending == wanted:
        log(f"{bus}: reset the GPU")
        smi(run, bus, "--gpu-reset")
        mode, pending = read_modes(run, bus)
    if (mode, pending) != (wanted, wanted):
        raise MigError(f"{bus}: MIG cannot be {word}d: {'; '.join(said.split(chr(10)))[:300]}")


def set_instances(run: Run, bus: str, wanted: Sequence[tuple[str, int]], log: Callable[[str], None]) -> None:
    """Destroys the instances that are not wanted, and creates those that are missing. Raises MigError."""
    there = read_instances(run, bus)
    for one in there:
        if is_kept(one, wanted):
            continue
        log(f"{bus}: destroy {one.profile} at {one.start}")
        if one.computes:
            smi(run, bus, "mig", "-dci", "-gi", str(one.number))
        if (one.profile, one.start) not in wanted:
            smi(run, bus, "mig", "-dgi", "-gi", str(one.number))
    placed = {(one.profile, one.start) for one in there}
    for name, start in (one for one in wanted if one not in placed):
        log(f"{bus}: create {name} at {start}")
        smi(run, bus, "mig", "-cgi", f"{name}:{start}", "-C")
    for one in read_instances(run, bus):
        if not one.computes:
            log(f"{bus}: create the compute instance of {one.profile} at {one.start}")
            smi(run, bus, "mig", "-cci", "-gi", str(one.number))


def is_kept(one: There, wanted: Sequence[tuple[str, int]]) -> bool:
    """Whether an instance stays as it is: wanted where it is, and not divided among compute instances."""
    return (one.profile, one.start) in wanted and set(one.computes) <= {one.profile}


def restore(run: Run, gpus: Sequence[Mapping[str, Any]], log: Callable[[str], None]) -> list[str]:
    """Brings each GPU to its layout; returns why, of those that are not. Others are not kept from theirs."""
    failed = []
    for gpu in gpus:
        bus, instances = str(gpu["bus"]), gpu["instances"]
        try:
            set_mode(run, bus, bool(gpu["enabled"]), log)
            if gpu["enabled"] and instances is not None:
                set_instances(run, bus, [(str(name), int(start)) for name, start in instances], log)
        except MigError as error:
            failed.append(str(error))
    return failed


def run_limited(argv: Sequence[str]) -> tuple[int, str]:
    """Exit code and output of a program that has LIMIT_S to end."""
    try:
        ended = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=LIMIT_S, check=False, text=True, errors="replace", env=None,
        )  # fmt: skip
    except OSError as error:
        return ABSENT, f"{argv[0]} cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return TIMED_OUT, f"{argv[0]} did not end within {LIMIT_S} s"
    return ended.returncode, ended.stdout


def main() -> int:
    """Restores what the file says; 1 where a GPU is not as it says."""
    gpus = json.loads(LAYOUT.read_text(encoding="utf-8"))["gpus"]
    failed = restore(run_limited, gpus, lambda line: print(line, flush=True))  # noqa: T201 - a program
    for reason in failed:
        print(reason, file=sys.stderr)  # noqa: T201 - a program
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
