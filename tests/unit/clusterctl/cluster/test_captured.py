"""Output is kept up to a limit, and a program that prints for ever is ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusterctl.cluster.captured import MAX_STDERR_BYTES, OutputTooLongError, run_captured


def call(program: str, stdin: str = "", timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    return run_captured(
        [sys.executable, "-c", program], stdin=stdin, timeout_s=timeout_s, environment=os.environ,
        max_stdout_bytes=1_000_000,
    )  # fmt: skip


def test_input_output_errors_and_exit_code_are_passed_on() -> None:
    done = call(
        "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('bad'); sys.exit(7)",
        "a" * 900_000,
    )
    assert (done.returncode, done.stderr) == (7, "bad")
    assert done.stdout == "A" * 900_000


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert call("import os; os.write(1, b'a\\xff')").stdout == "a\N{REPLACEMENT CHARACTER}"


def test_endless_output_is_ended_and_not_kept() -> None:
    with pytest.raises(OutputTooLongError, match="more than"):
        call("import os\nwhile True: os.write(1, b'[' * 65536)")


def test_of_endless_errors_the_end_is_kept() -> None:
    done = call("import sys; sys.stderr.write('x' * 3_000_000 + 'the reason')")
    assert done.stderr.endswith("the reason")
    assert len(done.stderr) <= MAX_STDERR_BYTES


def test_input_that_nobody_reads_is_no_error() -> None:
    assert call("import os; os._exit(3)", "x" * 5_000_000).returncode == 3


@pytest.mark.parametrize(
    "program", ["import time; time.sleep(600)", "import os, time; os.close(1); time.sleep(600)"]
)
def test_it_is_killed_when_its_time_is_over(program: str, tmp_path: Path) -> None:
    noted = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    with pytest.raises(subprocess.TimeoutExpired):
        call(noted + program, timeout_s=2.0)
    pid = (tmp_path / "pid").read_text()
    assert not Path(f"/proc/{pid}").exists()


def test_a_child_that_keeps_the_output_open_is_not_waited_for_longer_than_the_time() -> None:
    holds = "import subprocess, sys; subprocess.Popen(['sleep', '7']); sys.exit(0)"
    with pytest.raises(subprocess.TimeoutExpired):
        call(holds, timeout_s=2.0)
