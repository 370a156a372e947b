"""The watch of an offline apply with real packet sockets."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.modules import offline_watch
from tests.unit.plugins.modules.test_offline_watch import ask, play_service

from clusterctl.rollout import offline


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return play_service(tmp_path, monkeypatch)


@pytest.mark.needs("root")
def test_a_watch_begins_hears_ends_and_leaves_nothing(
    service: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = ask(tmp_path, capsys, "started")
    assert began["clusterctl"]["facts"]["offline"] == {"sources": {}, "listening": True}
    assert (tmp_path / "watch").stat().st_mode & 0o077 == 0
    again = ask(tmp_path, capsys, "started", run="r2")
    assert again["clusterctl"]["facts"]["offline"]["listening"]
    ended = ask(tmp_path, capsys, "ended", run="r2")["clusterctl"]["facts"]["offline"]["record"]
    assert (ended["run"], ended["ended"], ended["gaps"], ended["outside"]) == ("r2", True, 0, [])
    assert not service.exists()
    assert not (tmp_path / "watch").exists()
    assert ask(tmp_path, capsys, "ended")["clusterctl"]["facts"]["offline"] == {"record": {}}


@pytest.mark.needs("root")
@pytest.mark.parametrize("what", ["killed", "stopped early", "hangs", "of another boot"])
def test_a_watch_that_did_not_hear_to_the_end_is_no_proof(
    what: str,
    service: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask(tmp_path, capsys, "started")
    process = int(Path(f"{service}.pid").read_text(encoding="utf-8"))
    monkeypatch.setattr(offline_watch, "BEAT_S", 2.0)
    if what == "killed":
        os.kill(process, signal.SIGKILL)
    elif what == "stopped early":
        os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while not offline_watch.read(tmp_path / "watch").get("drained") and time.monotonic() < deadline:
            time.sleep(0.05)
    elif what == "hangs":
        os.kill(process, signal.SIGSTOP)
    else:
        (tmp_path / "boot").write_text("another\n", encoding="utf-8")
        monkeypatch.setattr(offline_watch, "BOOT", tmp_path / "boot")
    record = ask(tmp_path, capsys, "ended")["clusterctl"]["facts"]["offline"]["record"]
    assert record["ended"] is False
    assert offline.why_not(record, "r1") == "its watch did not run to the end"
