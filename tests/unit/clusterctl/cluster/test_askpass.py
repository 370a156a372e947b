"""Where the program lies that ssh asks for a password."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from clusterctl.cluster import askpass


@pytest.mark.parametrize(
    ("noexec", "expected"), [((), "/tmp"), (("/tmp",), "runtime"), (("/tmp", "runtime"), "home")]
)
def test_the_program_lies_where_programs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noexec: tuple[str, ...], expected: str
) -> None:
    places = {"/tmp": Path("/tmp"), "runtime": tmp_path / "runtime", "home": tmp_path / "home"}
    for place in (places["runtime"], places["home"]):
        place.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(places["runtime"]))
    monkeypatch.setenv("HOME", str(places["home"]))
    closed = [places[name] for name in noexec]
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC if path in closed else 0)
    )
    with askpass.program("echo word") as program:
        assert program.parent.parent == places[expected]
        asking = ["sh", "-c", '"$1"; :', "ssh", str(program)]
        environment = {**os.environ, askpass.PARENT: str(os.getpid())}
        said = subprocess.run(
            asking, env=environment, capture_output=True, start_new_session=True, check=True
        ).stdout
        assert said == b"word\n"
    assert not program.parent.exists()


def test_no_place_is_another_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `su`, which keeps the variable."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC * (path == Path("/tmp")))
    )
    owner = os.geteuid()
    for user, expected in ((owner, tmp_path), (owner + 1, Path("/tmp"))):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with askpass.program("echo word") as program:
            assert program.parent.parent == expected


def test_without_any_place_for_programs_it_lies_in_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with askpass.program("echo word") as program:
        assert program.parent.parent == Path("/tmp")
