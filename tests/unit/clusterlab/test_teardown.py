"""Taking down and purging: what stays is said with its reason, and nothing is forgotten that still runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterctl.errors import ClusterctlError
from clusterctl.main import run
from clusterlab import cache, engine, teardown
from clusterlab.progress import LabProgress
from clusterlab.state import LabDirectory, LabNode, LabState

ENGINE = """#!/bin/sh
[ -e "$ENGINE/off" ] && { echo "Cannot connect to the Docker daemon" >&2; exit 1; }
for last; do :; done
case "$1 $2" in
    "version --format") echo 20.10 ;;
    "container ls")
        case "$*" in
            *label=clusterlab.lab=*)
                grep -- "-${5#label=clusterlab.lab=}-" "$ENGINE/containers" ;;
            *) cat "$ENGINE/containers" ;;
        esac ;;
    "rm --force") shift 3; for name; do sed -i "/^$name\\$/d" "$ENGINE/containers"; done ;;
    "ps --format") cat "$ENGINE/others" ;;
    "image ls") grep "^$last:" "$ENGINE/images" ;;
    "image rm")
        if grep -q "^$last\\$" "$ENGINE/used"; then
            echo "Error response from daemon: conflict: container 0123 is using it" >&2; exit 1
        fi
        sed -i "\\\\|^$last\\$|d" "$ENGINE/images" ;;
esac
true
"""
IMAGES = ("clusterlab/node:a", "clusterlab/base:b", "clusterlab/depot:c")


class FakeEngine:
    """A container engine of files: containers, images, which of them are used, and what else runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for name in ("containers", "images", "used", "others"):
            (home / name).write_text("")
        self.add("images", *IMAGES)

    def add(self, name: str, *lines: str) -> None:
        with (self.home / name).open("a") as stream:
            stream.writelines(f"{line}\n" for line in lines)

    def list(self, name: str) -> list[str]:
        return (self.home / name).read_text().split()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Root, an engine of files, and a cache of this test's own."""
    home = tmp_path / "engine"
    home.mkdir()
    (home / "docker").write_text(ENGINE)
    (home / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:/usr/bin:/bin")
    monkeypatch.setenv("ENGINE", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (cache.cache_root() / "training").mkdir(parents=True)
    return FakeEngine(home)


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for dockerd, and does not end when it is asked to."""
    program = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def a_lab(root: Path, fake: FakeEngine) -> LabDirectory:
    lab = LabDirectory(root)
    node = LabNode(name="gpu01", role="gpu", address="10.87.1.11", image="i")
    lab.save(
        LabState(
            suffix=lab.names.suffix, root=str(lab.root), system="debian12", hardware="none", nodes=[node]
        )
    )
    fake.add("containers", lab.names.container("gpu01"))
    return lab


def down(lab: LabDirectory, *, purge: bool = False) -> list[str]:
    return teardown.down(lab, LabProgress(lambda _text: None), purge=purge)


def test_down_removes_this_lab_and_leaves_the_other(tmp_path: Path, fake: FakeEngine) -> None:
    lab, other = a_lab(tmp_path / "a" / ".lab", fake), a_lab(tmp_path / "b" / ".lab", fake)
    assert down(lab) == []
    assert not lab.root.exists()
    assert other.state_file.exists()
    assert fake.list("containers") == [other.names.container("gpu01")]


def test_a_moved_lab_is_refused_everywhere_and_taken_down_by_its_name(
    tmp_path: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = a_lab(tmp_path / "clone" / ".lab", fake)
    (tmp_path / "clone").rename(tmp_path / "moved")
    moved = LabDirectory(tmp_path / "moved" / ".lab")
    for arguments in (["up"], ["status"], ["ssh", "gpu01"], ["fault", "list"], ["fault", "clear"]):
        position = 2 if arguments[0] == "fault" else 1
        directory = ["--dir", str(moved.root)]
        assert run(["lab", *arguments[:position], *directory, *arguments[position:]]) == 2
        said = capsys.readouterr().err
        assert f"was moved or copied: its lab, {lab.names.suffix}," in said
        assert str(lab.root) in said
    assert fake.list("containers") == [lab.names.container("gpu01")]
    assert down(moved) == []
    assert fake.list("containers") == []
    assert not moved.root.exists()


def test_a_copy_never_takes_down_the_original(tmp_path: Path, fake: FakeEngine) -> None:
    lab = a_lab(tmp_path / "clone" / ".lab", fake)
    shutil.copytree(tmp_path / "clone", tmp_path / "copy")
    copy = LabDirectory(tmp_path / "copy" / ".lab")
    with pytest.raises(ClusterctlError) as caught:
        down(copy)
    assert (caught.value.code, caught.value.exit_code) == ("lab.copied", 3)
    assert f"--dir {lab.root}" in caught.value.hint
    assert fake.list("containers") == [lab.names.container("gpu01")]
    assert copy.state_file.exists()
    assert down(lab) == []
    assert down(copy) == [], "the copy of a lab that is gone is files, and goes"


def test_a_state_that_does_not_say_where_it_was_made_proves_nothing(tmp_path: Path, fake: FakeEngine) -> None:
    lab = LabDirectory(tmp_path / ".lab")
    lab.save(LabState(suffix="0badcafe", system="debian12", hardware="none"))
    for root in ("", str(tmp_path / "never")):
        lab.save(LabState(suffix="0badcafe", root=root, system="debian12", hardware="none"))
        with pytest.raises(ClusterctlError) as caught:
            down(lab)
        assert caught.value.exit_code == 3
        assert "0badcafe" in caught.value.what
        assert lab.state_file.exists()


def test_without_an_engine_the_state_stays(tmp_path: Path, fake: FakeEngine) -> None:
    lab = a_lab(tmp_path / ".lab", fake)
    fake.add("off", "")
    (left,) = down(lab)
    assert "no container engine answers" in left
    assert lab.state_file.exists()
    assert any("no container engine answers" in what for what in down(lab, purge=True))
    assert (cache.cache_root() / "training").exists()


@pytest.mark.parametrize("state", [None, "{}", "not a lab's"])
def test_a_directory_without_a_labs_state_is_not_removed(
    state: str | None, tmp_path: Path, fake: FakeEngine
) -> None:
    precious = tmp_path / "precious"
    (precious / "data").mkdir(parents=True)
    if state is not None:
        (precious / "state.json").write_text(state)
    (left,) = down(LabDirectory(precious))
    assert f"directory {precious} (it holds no lab's state" in left
    assert (precious / "data").is_dir()


def test_a_directory_whose_lab_runs_is_removed_also_without_its_state(
    tmp_path: Path, fake: FakeEngine
) -> None:
    lab = LabDirectory(tmp_path / "lost")
    lab.root.mkdir()
    fake.add("containers", lab.names.container("gpu01"))
    assert down(lab) == []
    assert not lab.root.exists()
    assert fake.list("containers") == []


def test_nothing_is_taken_down_through_another_users_link_or_in_their_directory(
    tmp_path: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, link, lstat = a_lab(tmp_path / "lab", fake), tmp_path / "link", Path.lstat
    link.symlink_to("lab")

    def of_another(path: Path) -> os.stat_result:
        state = lstat(path)
        return os.stat_result((*state[:4], 64001, *state[5:])) if path in foreign else state

    monkeypatch.setattr(Path, "lstat", of_another)
    foreign: list[Path] = []
    for place, named in ((link, link), (lab.root, lab.root), (lab.state_file, lab.root)):
        foreign[:] = [place]
        assert run(["lab", "down", "--dir", str(named)]) == 2
        assert "cluster.not-trusted" in capsys.readouterr().err
    assert lab.state_file.exists()
    assert fake.list("containers") == [lab.names.container("gpu01")]


def test_purge_leaves_nothing(tmp_path: Path, fake: FakeEngine) -> None:
    assert down(a_lab(tmp_path / ".lab", fake), purge=True) == []
    assert fake.list("images") == []
    assert not cache.cache_root().exists()
    assert down(LabDirectory(tmp_path / ".lab"), purge=True) == []


def test_what_another_lab_uses_stays_and_the_lab_is_named(tmp_path: Path, fake: FakeEngine) -> None:
    other = a_lab(tmp_path / "b" / ".lab", fake)
    (left,) = down(a_lab(tmp_path / "a" / ".lab", fake), purge=True)
    assert other.names.container("gpu01") in left
    assert fake.list("images") == list(IMAGES)
    assert (cache.cache_root() / "training").exists()


def test_an_image_that_docker_keeps_is_said_in_dockers_words(
    tmp_path: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.add("used", IMAGES[1])
    lab = a_lab(tmp_path / ".lab", fake)
    assert run(["lab", "down", "--purge", "--dir", str(lab.root)]) == 3
    said = capsys.readouterr().err
    assert f"image {IMAGES[1]} (conflict: container 0123 is using it)" in " ".join(said.split())
    assert (cache.cache_root() / "training").exists()


def test_the_cache_stays_while_another_clone_builds(tmp_path: Path, fake: FakeEngine) -> None:
    lab = a_lab(tmp_path / ".lab", fake)
    with cache.locked("node-debian12"):
        (left,) = down(lab, purge=True)
    assert "another lab is being built" in left
    assert fake.list("images") == list(IMAGES)
    assert down(lab, purge=True) == []


def test_an_engine_that_does_not_end_stays_on_record(
    tmp_path: Path,
    fake: FakeEngine,
    daemon: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "STOP_S", 0.3)
    engine._write_record(daemon.pid, [])
    (left,) = down(a_lab(tmp_path / ".lab", fake), purge=True)
    assert f"process {daemon.pid}" in left
    assert "has not ended within" in left
    assert engine.started_by_us() == daemon.pid
    daemon.kill()
    daemon.wait()
    assert down(LabDirectory(tmp_path / ".lab"), purge=True) == []
    assert not cache.cache_root().exists()


def test_an_engine_that_others_use_stays(
    tmp_path: Path, fake: FakeEngine, daemon: subprocess.Popen[bytes]
) -> None:
    engine._write_record(daemon.pid, [])
    fake.add("others", "somebodys-database")
    (left,) = down(a_lab(tmp_path / ".lab", fake), purge=True)
    assert "somebodys-database run on it" in left
    assert engine.started_by_us() == daemon.pid


def test_an_engine_started_through_systemd_is_on_record_and_stopped_through_it(
    tmp_path: Path,
    fake: FakeEngine,
    daemon: subprocess.Popen[bytes],
) -> None:
    (fake.home / "systemctl").write_text(
        "#!/bin/sh\n"
        'echo "$*" >> "$ENGINE/asked"\n'
        'case "$1 $3" in\n'
        '    "is-active containerd.service") exit 0 ;;\n'
        '    "is-active "*) test -e "$ENGINE/started" ;;\n'
        '    "start "*) touch "$ENGINE/started" ;;\n'
        f'    "show "*) echo {daemon.pid} ;;\n'
        f'    "stop docker.service") kill -9 {daemon.pid} ;;\n'
        "esac\n"
    )
    (fake.home / "systemctl").chmod(0o755)
    engine._start_by_systemd()
    record = json.loads((cache.cache_root() / "engine.json").read_text())
    assert (record["pid"], record["units"]) == (daemon.pid, ["docker.socket", "docker.service"])
    assert down(a_lab(tmp_path / ".lab", fake), purge=True) == []
    asked = (fake.home / "asked").read_text().splitlines()
    assert asked[-1] == "stop docker.socket docker.service"
    assert not cache.cache_root().exists()


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with cache.alone():
        shutil.rmtree(cache.cache_root())
        with cache.locked("a"), pytest.raises(BlockingIOError), cache.alone():
            pass


def test_what_a_killed_builder_left_is_swept_and_what_a_live_one_makes_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    home = cache.cache_root() / "scratch"
    for name in (f"training.{ended.pid}", f"depot.{os.getppid()}"):
        (home / name).mkdir(parents=True)
    with cache.scratch("node") as mine:
        assert {path.name for path in home.iterdir()} == {mine.name, f"depot.{os.getppid()}"}
