"""Runs the lanes of a tier in parallel, prints what failed and where the time went.

``run_lanes.py TIER [PYTEST ARGUMENT ...]`` exits with 0 if every lane passed, 1 if a test failed, a lane
could not run or a test was skipped for a program that its tier brings, 130 when interrupted. The logs of the
lanes and ``times.json`` are in ``.test-logs/``. ``CLUSTERCTL_STEPS`` has ``NAME SECONDS`` lines of what came
before.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from lanes import ROOT, Lane, lanes
from test_record import VARIABLE

LOGS = ROOT / ".test-logs"
LINT = "lint"
QUIET_FILE = LOGS / "quiet"  # locked while other lanes than the quiet one run
STATUS_S = 60.0
SLOWEST = 15
NO_TESTS = 5  # pytest's exit code where none was chosen
# What a machine may lack that no tier can bring.
EXCUSED = re.compile(
    r"not next to this clone|no disk can be mounted|no network of its own here|little-endian"
    r"|there is no Python 3|names no unpacked installers"
)


@dataclass
class Running:
    """A lane under way or ended: what its process was given, and what its tests recorded."""

    lane: Lane
    command: list[str]
    may_be_empty: bool = False
    started: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    code: int | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    tests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """What it prints."""
        return LOGS / f"{self.lane.name}.log"

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process in a session of its own: no test can ask at the terminal."""
        self.started = time.monotonic()
        record = self.log.with_suffix(".jsonl")
        environment = {**os.environ, VARIABLE: str(record)}
        if self.lane.lab:
            environment["CLUSTERCTL_TEST_LAB"] = self.lane.lab
        if self.lane.quiet_last:
            environment["CLUSTERCTL_TEST_QUIET"] = str(QUIET_FILE)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        if self.lane.nice:  # Linux may group processes by session, and then weighs whole groups
            with suppress(OSError):
                Path(f"/proc/{self.process.pid}/autogroup").write_text(str(self.lane.nice), encoding="ascii")
        return self.process

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until it has ended, and read what it left. ``code`` is set last."""
        _, status, usage = os.wait4(process.pid, 0)  # Popen.wait() tells no CPU time
        process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self.started
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.tests = read_record(self.log.with_suffix(".jsonl"))
        self.code = process.returncode

    @property
    def is_active(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.code is None

    @property
    def is_good(self) -> bool:
        """Whether it ended with all its tests passed; with none only if arguments may have excluded all."""
        return self.code == 0 or (self.code == NO_TESTS and self.may_be_empty)

    def counts(self) -> Counter[str]:
        """Tests by outcome."""
        return Counter(test["outcome"] for test in self.tests)


class Runner:
    """Runs lanes in parallel."""

    def __init__(self, tier: str, lanes_: Sequence[Running]) -> None:
        self.tier = tier
        self.lanes = {one.lane.name: one for one in lanes_}
        # Ended lanes, and signals: a handler that raised could leave a started lane that nobody waits for.
        self._events: SimpleQueue[Running | signal.Signals] = SimpleQueue()
        self._begun = time.monotonic()

    def run(self) -> int:
        """Run all lanes; print what happens. Returns the exit code."""
        LOGS.mkdir(exist_ok=True)
        if os.geteuid() == 0:  # --fast as the person who called sudo writes there too
            os.chown(LOGS, int(os.environ.get("SUDO_UID", "0")), int(os.environ.get("SUDO_GID", "0")))
        for old in (*LOGS.glob("*.log"), *LOGS.glob("*.json*")):
            old.unlink(missing_ok=True)
        # A shell's background ignores Ctrl-C; who ends a CI job sends SIGTERM, a lost terminal SIGHUP.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda given, _frame: self._events.put(signal.Signals(given)))
        try:
            interrupted = not self._run_all()
        except BaseException:
            self._end_active()
            raise
        if interrupted:
            self._end_active()
        code = self._report()
        return 130 if interrupted else code

    def _run_all(self) -> bool:
        """Run the lanes to their end; False if a signal came before it."""
        with QUIET_FILE.open("w") as quiet:
            fcntl.flock(quiet, fcntl.LOCK_EX)
            self._start_ready()
            while any(one.code is None for one in self.lanes.values()):
                try:
                    event = self._events.get(timeout=STATUS_S)
                except Empty:
                    self._print_status()
                else:
                    if not isinstance(event, Running):
                        return False
                    self._print_end(event)
                self._start_ready()
                if all(one.lane.quiet_last for one in self.lanes.values() if one.code is None):
                    fcntl.flock(quiet, fcntl.LOCK_UN)
        return True

    def _start_ready(self) -> None:
        for one in self.lanes.values():
            if one.process is None and (not one.lane.after or self.lanes[one.lane.after].code is not None):
                threading.Thread(target=self._wait, args=(one, one.start()), daemon=True).start()

    def _wait(self, one: Running, process: subprocess.Popen[bytes]) -> None:
        try:
            one.wait(process)
        except Exception as error:  # noqa: BLE001 - whatever it is, of this lane nobody else will hear
            say(f"{one.lane.name}: cannot be waited for: {error!r}")
            one.code = 1
        self._events.put(one)

    def _elapsed(self) -> str:
        return f"[{clock(time.monotonic() - self._begun)}]"

    def _print_end(self, one: Running) -> None:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(one.counts().items()))
        result = "done" if one.is_good else f"FAILED (exit code {one.code})"
        say(f"{self._elapsed()} {one.lane.name}: {result} in {clock(one.seconds)}: {counts or 'no tests'}")

    def _print_status(self) -> None:
        active = "; ".join(
            f"{one.lane.name} {last_test(one.log)}" for one in self.lanes.values() if one.is_active
        )
        say(f"{self._elapsed()} load {os.getloadavg()[0]:.1f}; running: {active}")

    def _end_active(self) -> None:
        """Ctrl-C for every lane; each takes its lab down, as it would on its own."""
        active = [one for one in self.lanes.values() if one.is_active]
        signal_all(active, signal.SIGINT)
        say("interrupted: waiting for the lanes to clean up (Ctrl-C again ends them immediately)")
        while any(one.is_active for one in active):
            if self._events.get() is signal.SIGINT:
                signal_all(active, signal.SIGKILL)

    def _report(self) -> int:
        bad = [one for one in self.lanes.values() if one.process is not None and not one.is_good]
        for one in bad:
            print(f"\n--- {one.lane.name}: {one.log}\n{failures(one.log)}")
        tests = [(one.lane.name, test) for one in self.lanes.values() for test in one.tests]
        skipped = [(lane, test) for lane, test in tests if test["outcome"] == "skipped"]
        unexcused = [(lane, test) for lane, test in skipped if not EXCUSED.search(test["because"])]
        for lane, test in skipped:
            mark = "" if EXCUSED.search(test["because"]) else "  <- its tier should have brought this"
            print(f"skipped ({lane}): {test['test']}: {test['because']}{mark}")
        times = self._times(tests)
        (LOGS / "times.json").write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")
        print_times(times)
        counts = Counter(test["outcome"] for _, test in tests)
        print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
        return 1 if bad or unexcused or not tests else 0

    def _times(self, tests: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        files: dict[tuple[str, str], list[float]] = defaultdict(list)
        single = []
        for lane, test in tests:
            seconds = sum(test.get(phase, 0.0) for phase in ("setup", "call", "teardown"))
            single.append((round(seconds, 1), lane, test["test"]))
            if lane != "unit":
                files[lane, test["test"].partition("::")[0]].append(seconds)
        before = [line.rsplit(" ", 1) for line in os.environ.get("CLUSTERCTL_STEPS", "").splitlines() if line]
        return {
            "tier": self.tier,
            "steps": {name: float(seconds) for name, seconds in before},
            "tests_s": round(time.monotonic() - self._begun, 1),
            "lanes": {
                name: {
                    "start_s": round(one.started - self._begun, 1), "wall_s": round(one.seconds, 1),
                    "cpu_s": round(one.cpu_s, 1), **one.counts(),
                }
                for name, one in self.lanes.items()
                if one.process is not None
            },
            "files": [
                {"lane": lane, "file": file, "tests": len(spent), "seconds": round(sum(spent), 1)}
                for (lane, file), spent in sorted(files.items(), key=lambda item: -sum(item[1]))
            ],
            "slowest": [
                {"seconds": seconds, "lane": lane, "test": test}
                for seconds, lane, test in sorted(single, reverse=True)[:SLOWEST]
            ],
        }  # fmt: skip


def pytest_command(lane: Lane, arguments: Sequence[str]) -> list[str]:
    """How a lane is started."""
    nice = ("nice", "-n", str(lane.nice)) if lane.nice else ()
    pytest = (sys.executable, "-m", "pytest", "-v", "-p", "test_record", "-m", lane.marks)
    return [*nice, *pytest, *lane.options, *lane.paths, *arguments]


def chosen_lanes(tier: str, arguments: Sequence[str]) -> list[Running]:
    """The lanes of a tier and lint; where paths are among pytest's arguments, the lanes that have them."""
    paths = [one for one in arguments if one.startswith("tests/")]
    options = [one for one in arguments if one not in paths]
    if not paths:
        lint = Running(Lane(LINT, (), ""), ["nice", "-n", "5", "bash", "script/lint"])
        every = [Running(lane, pytest_command(lane, options), bool(options)) for lane in lanes(tier)]
        return [*every, lint]
    narrowed = [
        replace(lane, paths=own, after="") for lane in lanes(tier) if (own := common(lane.paths, paths))
    ]
    return [Running(lane, pytest_command(lane, options)) for lane in narrowed]


def common(of_lane: Sequence[str], named: Sequence[str]) -> tuple[str, ...]:
    """What both name: of a directory and what is in it, that is the latter."""
    inside = [path for path in named if path.startswith(tuple(of_lane))]
    return (*inside, *(path for path in of_lane if path not in inside and path.startswith(tuple(named))))


def read_record(record: Path) -> list[dict[str, Any]]:
    """What the tests of a lane recorded; without a last line that was cut."""
    found = []
    for line in record.read_text(encoding="utf-8").splitlines() if record.exists() else ():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def print_times(times: dict[str, Any]) -> None:
    """Print where the time went."""
    total = times["tests_s"] + sum(times["steps"].values())
    print(f"\nwhere the time went ({times['tier']}): {clock(total)}; {LOGS.name}/times.json has it all")
    for name, seconds in times["steps"].items():
        print(f"  {clock(seconds)}  {name}")
    print("  start  wall   CPU    lane")
    for name, lane in sorted(times["lanes"].items(), key=lambda item: item[1]["start_s"]):
        print(f"  {clock(lane['start_s'])}  {clock(lane['wall_s'])}  {clock(lane['cpu_s'])}  {name}")
    for title, rows in (("files", times["files"][:25]), ("slowest tests", times["slowest"])):
        print(f"  {title}")
        for row in rows:
            what = row.get("test") or f"{row['file']} ({row['tests']} tests)"
            print(f"  {row['seconds']:7.1f} s  {row['lane']}: {what}")


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds // 60):2d}:{int(seconds % 60):02d}"


def signal_all(active: Sequence[Running], number: signal.Signals) -> None:
    """Signal the process groups of lanes that have not ended."""
    for one in active:
        if one.process is not None and one.is_active:
            with suppress(ProcessLookupError):
                os.killpg(one.process.pid, number)


def last_test(log: Path) -> str:
    """The newest test that a log names."""
    found = re.findall(r"::(test_\w+)", log.read_text(encoding="utf-8", errors="replace")[-4000:])
    return found[-1] if found else ""


def failures(log: Path) -> str:
    """The last 30,000 characters of what a log has from its first failure on."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^=+ (FAILURES|ERRORS) =+$", text, flags=re.MULTILINE)
    return text[found.start() if found else 0 :][-30_000:]


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    chosen = chosen_lanes(sys.argv[1], sys.argv[2:])
    if not chosen:
        sys.exit(
            f"error: no lane of this tier has these paths\n  where: {' '.join(sys.argv[2:])}\n"
            "  hint:  script/lanes.py has the lanes; tests/bench is --bench, tests/frameworks runs in the lab"
        )
    sys.exit(Runner(sys.argv[1], chosen).run())
