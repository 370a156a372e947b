"""What the container engine answers, and what it does not: a failure is never taken for an absence."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.errors import ClusterctlError
from clusterlab import docker, engine
from clusterlab.process import call


def an_engine(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = directory / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


@pytest.mark.parametrize(
    "said",
    [
        "Error: No such container: gpu01",
        "Error response from daemon: network gpu01 not found",
        "error: no such object",
    ],
)
def test_what_is_missing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    an_engine(tmp_path, monkeypatch, f"echo '[]'; echo '{said}' >&2; exit 1")
    assert docker.inspect("container", ["gpu01"], missing_ok=True) == []
    with pytest.raises(ClusterctlError):
        docker.inspect("container", ["gpu01"])


def test_an_engine_that_does_not_answer_is_no_missing_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_engine(tmp_path, monkeypatch, "echo '[]'; echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    assert not engine.answers()
    with pytest.raises(ClusterctlError) as caught:
        docker.inspect("container", ["gpu01"], missing_ok=True)
    assert caught.value.code == "lab.engine-failed"
    assert "Cannot connect" in caught.value.what
    assert caught.value.exit_code == 3


def test_without_docker_there_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not engine.answers()


def test_an_engine_that_another_started_is_never_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert engine.started_by_us() is None
    record = tmp_path / "clusterctl-lab" / "engine.json"
    record.parent.mkdir()
    record.write_text('{"pid": 1, "birth": "another birth: the number was given again"}')
    assert engine.started_by_us() is None


def test_a_program_that_hangs_is_ended_and_said(tmp_path: Path) -> None:
    with pytest.raises(ClusterctlError) as caught:
        call(["sleep", "60"], timeout_s=0.2)
    assert "no end within" in caught.value.what
    with pytest.raises(ClusterctlError) as caught:
        call([str(tmp_path / "nowhere")])
    assert "there is no program" in caught.value.what
