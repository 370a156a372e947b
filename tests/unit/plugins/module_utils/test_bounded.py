"""Programs end in time, locks are waited for in time, files are whole, passwords are nobody's to read."""

from __future__ import annotations

import stat
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import alone, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.file_limit import with_file_limit
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls, mask_values
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from hypothesis import given
from hypothesis import strategies as st


def test_a_program_that_hangs_is_given_up_and_one_that_is_absent_is_said() -> None:
    began = time.monotonic()
    assert run_bounded(["sleep", "30"], 0.2) == (124, "", "sleep did not end within 0.2 s")
    assert time.monotonic() - began < 25
    assert run_bounded(["clusterctl-no-such-program"], 1)[0] == 127
    assert run_bounded(["sh", "-c", 'printf "$WORD"; exit 3'], 5, {"WORD": "said"}) == (3, "said", "")


@pytest.mark.parametrize("moves", ["os.write(out, bytes(65536))", "os.read(zero, 65536)"])
def test_a_program_that_reads_or_writes_too_much_is_ended(moves: str) -> None:
    code = f"import os\nzero, out = os.open('/dev/zero', 0), os.open('/dev/null', 1)\nwhile True: {moves}"
    rc, _, said = bounded.run_reading([sys.executable, "-c", code], 8 << 20)
    assert (rc, "was ended: reading or writing more than" in said) == (-9, True)
    assert bounded.run_reading([sys.executable, "-c", "pass"], 8 << 20) == (0, "", "")


def test_a_pipe_is_closed_also_where_what_fills_it_fails() -> None:
    """Python 3.13 writes a traceback of what it could not send, when it forgets the pipe."""
    with pytest.raises(EOFError), bounded.streaming(["sleep", "30"], 20, reads=False) as run:
        run.pipe.write(b"x")
        raise EOFError
    assert run.pipe.closed


def test_an_answer_is_shared_by_those_who_ask_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, shared = tmp_path / "asked", tmp_path / "shared"
    shared.mkdir()
    words = ["-c", f'echo >> {asked}; printf "s$LC_ALL"; echo why >&2; exit 3']

    def ask(program: str = "sh", environment: dict[str, str] | None = None) -> tuple[int, str, str]:
        return run_bounded([program, *words], 5, environment)

    monkeypatch.delenv("LC_ALL", raising=False)
    assert ask() == ask() == (3, "s", "why\n")
    assert len(asked.read_text()) == 2, "outside of a probe each question is asked"
    monkeypatch.setattr(bounded, "shared_answers", shared)
    assert ask() == ask("/bin/sh") == ask() == (3, "s", "why\n")
    assert len(asked.read_text()) == 3
    assert ask(environment={"LC_ALL": "C"}) == (3, "sC", "why\n")
    assert [run_bounded(["cat"], 5, told=text)[1] for text in ("a", "b")] == ["a", "b"]


def test_no_other_user_can_take_a_lock(tmp_path: Path) -> None:
    """Who may read a file may lock it, and would keep root waiting for ever."""
    with alone("apt", 0, tmp_path / "run/locks"):
        modes = [
            stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run/locks", *tmp_path.rglob("*.lock"))
        ]
    assert modes == [0o700, 0o600]


def test_a_lock_is_waited_for_in_time_and_free_afterwards(tmp_path: Path) -> None:
    with (
        alone("apt", 0, tmp_path / "locks"),
        pytest.raises(TimeoutError, match="another run has kept"),
        alone("apt", 0, tmp_path / "locks"),
    ):
        pass
    with alone("apt", 0, tmp_path / "locks"):
        assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) & 0o022 == 0


def test_a_file_is_replaced_with_the_mode_asked_for_or_its_own(tmp_path: Path) -> None:
    path = tmp_path / "new" / "daemon.json"
    replace_file(path, "{}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o640)
    replace_file(path, b"{1}")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("{1}", 0o640)
    replace_file(path, "{2}", 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["daemon.json"]


def test_a_link_is_replaced_and_what_it_led_to_stays(tmp_path: Path) -> None:
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.write_text("theirs")
    link.symlink_to(theirs)
    replace_file(link, "ours", 0o644)
    assert (theirs.read_text(), link.read_text(), link.is_symlink()) == ("theirs", "ours", False)


PASSWORDS = st.text("abcXYZ019:@%!#?&=+'\"<>", min_size=1, max_size=12)


@given(PASSWORDS, st.sampled_from(["http", "https", "socks5"]))
def test_no_password_of_a_url_is_left(password: str, scheme: str) -> None:
    line = f"E: Failed to fetch {scheme}://user:{password}@mirror.lan/x and {scheme}://plain.lan/y"
    assert mask_urls(line) == f"E: Failed to fetch {scheme}://***@mirror.lan/x and {scheme}://plain.lan/y"


def test_settings_are_masked_by_their_names_and_by_their_urls() -> None:
    settings = {
        "log-opts": {"splunk-token": "abc", "tag": "x"},
        "registry-mirrors": ["https://u:p@m.lan"],
        "debug": True,
    }
    assert mask_values(settings) == {
        "log-opts": {"splunk-token": "***", "tag": "x"},
        "registry-mirrors": ["https://***@m.lan"],
        "debug": True,
    }


def test_a_program_writes_no_file_that_is_longer_than_its_limit(tmp_path: Path) -> None:
    words = ["sh", "-c", 'head -c "$1" /dev/zero > "$2"', "sh"]
    for size, is_written in ((100_000, True), (4_000_000, False)):
        file = tmp_path / str(size)
        code, _, _ = run_bounded(with_file_limit([*words, str(size), str(file)], 1_000_000), 10)
        assert (code == 0) is is_written
        assert file.stat().st_size <= 2_000_000  # bash counts blocks of 1024 bytes
