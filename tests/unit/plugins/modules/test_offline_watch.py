"""The watch of an offline apply on a node: sources elsewhere, its beginning, and an end that is a proof."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.modules import offline_watch
from tests.support.called_module import called

INSIDE = "10.9.0.3"


def test_apts_sources_and_proxies_are_found_and_comments_are_not(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "apt.conf.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://old.example/ x\ndeb [signed-by=/k] https://deb.debian.org/debian x main\n"
    )
    (tmp_path / "sources.list.d/a.sources").write_text(
        "Types: deb\nURIs: http://10.9.0.3:8080/apt http://u:p@mirror.site/x\n\nEnabled: no\nURIs: http://off.example\n"
    )
    (tmp_path / "apt.conf.d/99proxy").write_text(
        '// none\nAcquire::http::Proxy "http://proxy.example:3128";\n'
    )
    found = offline_watch.apt_hosts(tmp_path)
    assert set(found) == {"deb.debian.org", "10.9.0.3", "mirror.site", "proxy.example"}
    allowed = offline_watch.networks([INSIDE])
    away = offline_watch.outside_sources(
        {k: v for k, v in found.items() if k != "proxy.example"}, ["mirror.site"], allowed
    )
    assert set(away) == {"deb.debian.org"}
    assert away["deb.debian.org"] == [str(tmp_path / "sources.list")]


def test_a_listener_on_the_node_itself_is_a_source_elsewhere_for_it_may_be_a_tunnel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {"localhost": ["127.0.0.1"], "tunnel.site": ["127.0.0.5"], "gpu01": ["127.0.1.1"]}
    monkeypatch.setattr(offline_watch, "addresses", lambda name: known.get(name, [name]))
    named = {host: ["f"] for host in ("localhost", "127.0.0.1", "::1", "tunnel.site", "gpu01", INSIDE)}
    allowed = offline_watch.networks([INSIDE, "127.0.0.0/8"])
    away = offline_watch.outside_sources(named, ["gpu01", "localhost"], allowed)
    assert set(away) == {"localhost", "127.0.0.1", "::1", "tunnel.site"}


SYSTEMCTL = """#!/bin/sh
case "$*" in
*" start "*) setsid $(sed -n 's/^ExecStart=//p' "$UNIT") >/dev/null 2>&1 </dev/null & echo $! >"$UNIT.pid" ;;
*" is-active "*) kill -0 "$(cat "$UNIT.pid")" 2>/dev/null ;;
*" stop "*)
    kill "$(cat "$UNIT.pid")" 2>/dev/null
    kill -CONT "$(cat "$UNIT.pid")" 2>/dev/null  # as systemd does
    for turn in $(seq 200); do kill -0 "$(cat "$UNIT.pid")" 2>/dev/null || break; sleep 0.05; done ;;
esac
"""


def play_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service manager that does what the unit says, and no more."""
    unit = tmp_path / "clusterctl-offline.service"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL, encoding="utf-8")
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("UNIT", str(unit))
    monkeypatch.setattr(offline_watch, "UNIT_FILE", unit)
    return unit


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return play_service(tmp_path, monkeypatch)


def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, **given: Any) -> dict[str, Any]:
    (tmp_path / "apt").mkdir(exist_ok=True)
    arguments = {
        "state": state, "run": "r1", "allowed": ["0.0.0.0/0", "::/0"], "directory": str(tmp_path / "watch"),
        "apt": str(tmp_path / "apt"), **given,
    }  # fmt: skip
    return called(offline_watch, arguments, tmp_path, capsys)


def test_what_cannot_be_watched_fails_and_leaves_nothing(
    service: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_watch, "LISTENING_S", 0.5)
    monkeypatch.setattr(offline_watch, "program", lambda: "raise SystemExit(1)\n")
    failed = ask(tmp_path, capsys, "started")
    assert failed["failed"]
    assert "does not listen" in failed["msg"]
    assert not service.exists()
    assert not (tmp_path / "watch").exists()


def test_a_source_elsewhere_keeps_the_watch_from_beginning(
    service: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt/sources.list").write_text("deb http://nowhere.invalid/debian x main\n", encoding="utf-8")
    said = ask(tmp_path, capsys, "started")["clusterctl"]["facts"]["offline"]
    assert set(said["sources"]) == {"nowhere.invalid"}
    assert "listening" not in said
    assert not service.exists()


def test_one_that_wrote_its_last_record_hears_no_more_though_it_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = offline_watch.BOOT.read_text(encoding="utf-8").strip()

    def runs_and_writes(*, drained: bool) -> bool:
        offline_watch.offline_watcher.write(tmp_path / "record.json", {"boots": [boot], "drained": drained})
        return True

    for drained in (False, True):
        runs_and_writes(drained=False)
        monkeypatch.setattr(
            offline_watch, "is_active", lambda drained=drained: runs_and_writes(drained=drained)
        )
        assert offline_watch.is_hearing(tmp_path) is not drained
