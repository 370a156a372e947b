"""What a program prints without end fills no disk, and its last words are kept."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
from tests.support.hostile import TEXTS, acting_characters

from clusterctl.engine import bounded_log, journal, process
from clusterctl.engine.bounded_log import TAIL_BYTES, BoundedLog
from clusterctl.engine.events import Interrupted
from clusterctl.engine.journal import Journal
from clusterctl.engine.process import Ended
from clusterctl.errors import ClusterctlError


def test_what_fits_is_written_as_it_comes_and_of_the_rest_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    with BoundedLog(path, 10, 4) as log:
        log.write(b"0123")
        assert path.read_bytes() == b"0123"
        log.write(b"456789ab")
        log.write(b"cdefgh")
    first, note, last = path.read_text().splitlines()
    assert (first, last) == ("0123456789", "efgh")
    assert "4 bytes are left out here" in note
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_limit_is_that_of_the_file_whoever_wrote_to_it_before(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    for _ in range(3):
        with BoundedLog(path, 10, 2) as log:
            log.write(b"x" * 100)
    assert path.read_text().count("are left out here") == 3
    assert path.stat().st_size < 3 * 100


def test_what_just_fits_leaves_no_note(tmp_path: Path) -> None:
    with BoundedLog(tmp_path / "x.log", 10, 4) as log:
        log.write(b"0123456789abcd")
    assert (tmp_path / "x.log").read_bytes() == b"0123456789abcd"


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_what_acts_on_a_terminal_is_not_in_it_however_it_is_cut(tmp_path: Path, size: int) -> None:
    """Remedies send operators to ansible.log, and nodes' words stand in it."""
    raw = "".join(text for text in TEXTS if text.encode(errors="ignore").decode() == text)
    said = f"é {raw} ü\n".encode() + b"\xff\n"
    with BoundedLog(tmp_path / "x.log", 100_000) as log:
        for start in range(0, len(said), size):
            log.write(said[start : start + size])
    found = (tmp_path / "x.log").read_text()
    assert acting_characters(found) == []
    assert found.startswith("é ")
    assert found.endswith("ü\n\ufffd\n")


def ran(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Ended, bytes, list[bytes]]:
    lines: list[bytes] = []
    monkeypatch.setattr(process, "DRAIN_S", 0.2)
    ended = process.run(
        [sys.executable, "-c", code], cwd=tmp_path, environment=dict(os.environ), log=tmp_path / "x.log",
        on_line=lines.append, on_tick=lambda: None, time_limit_s=60, grace_s=1, log_limit_bytes=100_000,
    )  # fmt: skip
    return ended, (tmp_path / "x.log").read_bytes(), lines


def test_a_program_that_prints_more_goes_on_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, sys\n"
        "print('first', flush=True)\n"
        "for _ in range(300): os.write(2, b'x' * 10_000)\n"
        "os.write(int(os.environ['CLUSTERCTL_EVENTS_FD']), b'event\\n')\n"
        "print('last')\n"
    )
    ended, log, lines = ran(tmp_path, code, monkeypatch)
    assert (ended.exit_code, lines) == (0, [b"event"])
    assert log.startswith(b"first\n")
    assert log.endswith(b"last\n")
    assert b"are left out here" in log
    assert len(log) < 100_000 + TAIL_BYTES + 1000


def test_an_orphan_that_prints_without_end_does_not_hold_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, signal\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    signal.alarm(30)\n"
        "    while True: os.write(1, b'x' * 1000)\n"
        "os._exit(3)\n"
    )
    ended, log, _ = ran(tmp_path, code, monkeypatch)
    assert ended.exit_code == 3
    assert not ended.timed_out
    assert ended.duration_s < 20
    assert len(log) < 100_000 + TAIL_BYTES + 1000


def test_a_full_disk_ends_no_program_for_a_line_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, _piece: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with BoundedLog(tmp_path / "log") as log:
        log.write(b"first\n")
        monkeypatch.setattr(bounded_log.os, "write", full)
        log.write(b"second\n")
    assert (tmp_path / "log").read_bytes() == b"first\n"


def test_a_listener_that_fails_ends_the_program_as_a_signal_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, signal, time\n"
        "def end(*_):\n"
        "    open('released', 'w').close()\n"
        "    raise SystemExit\n"
        "signal.signal(signal.SIGINT, end)\n"
        "os.write(int(os.environ['CLUSTERCTL_EVENTS_FD']), b'event\\nmore\\n')\n"
        "time.sleep(60)\n"
    )
    heard = []

    def fail(line: bytes) -> None:
        heard.append(line)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        process.run(
            [sys.executable, "-c", code], cwd=tmp_path, environment=dict(os.environ), log=tmp_path / "x.log",
            on_line=fail, on_tick=lambda: None, time_limit_s=60, grace_s=30,
        )  # fmt: skip
    assert heard == [b"event"]
    assert (tmp_path / "released").exists()


def test_a_journal_that_a_full_disk_does_not_take_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, _piece: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    written = Journal(tmp_path / "journal")
    monkeypatch.setattr(journal.os, "write", full)
    with pytest.raises(ClusterctlError, match="journal cannot be written: No space left") as refused:
        written.write(Interrupted(0.0))
    assert refused.value.code == "cluster.state-not-writable"
