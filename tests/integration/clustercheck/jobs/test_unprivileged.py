"""Programs that run as a user who owns nothing, and what Open MPI's own may ask the first rank for."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clustercheck.jobs import loopback_only, meeting, mpi_agent, mpi_daemons, unprivileged
from clustercheck.jobs.nccl_tests import MAX_OUTPUT, read_output

pytestmark = pytest.mark.needs("root")

BECAUSE = "Open MPI cannot run without root here: "


@pytest.fixture(autouse=True)
def _container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that every user may run, and no user and no device of this machine."""
    monkeypatch.setattr(sys, "executable", shutil.which("python3", path=os.defpath) or sys.executable)
    monkeypatch.setattr(unprivileged, "PASSWD", tmp_path / "passwd")
    monkeypatch.setattr(unprivileged, "DEV", tmp_path / "dev")


@pytest.fixture
def place() -> Iterator[unprivileged.Workplace]:
    with unprivileged.Workplace() as place:
        yield place


def say(words: list[str], place: unprivileged.Workplace) -> str:
    process = place.start(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return process.communicate(timeout=60)[0].decode()


def test_a_program_has_no_rights_and_no_way_to_any(place: unprivileged.Workplace) -> None:
    found = dict(re.findall(r"^(\w+):[ \t]*(.*)$", say(["cat", "/proc/self/status"], place), re.M))
    assert found["Uid"].split() == found["Gid"].split() == [str(unprivileged.USER)] * 4
    assert (found["Groups"], found["NoNewPrivs"]) == ("", "1")
    assert {found[name].strip("0") for name in ("CapPrm", "CapEff", "CapAmb", "CapBnd")} == {""}


def test_a_program_has_a_home_of_its_own_and_no_proxys_password(
    place: unprivileged.Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "no_proxy", "NCCL_IB_TC"):
        monkeypatch.setenv(name, "106")
    words = ["sh", "-c", 'env; pwd; touch "$HOME/a" "$TMPDIR/b"; stat -c %a:%U "$HOME"/*']
    lines = say(words, place).splitlines()
    assert {"NCCL_IB_TC=106", "/", f"HOME={place.home}", f"TMPDIR={place.home}"} <= set(lines)
    assert not [line for line in lines if re.match("[a-z]+_proxy=", line.lower())]
    assert [line for line in lines if line.startswith("600:")] == ["600:UNKNOWN"] * 2


def test_a_program_changes_nothing_beside_its_home(place: unprivileged.Workplace) -> None:
    tries = f"ls {place.path}; touch {place.path}/new; mv {place.home} {place.path}/other; exit 0"
    assert say(["sh", "-c", tries], place).count("Permission denied") == 3
    assert [path.name for path in place.path.iterdir()] == ["home"]


def test_who_cannot_give_up_root_runs_nothing(place: unprivileged.Workplace) -> None:
    place.path.chmod(0o755)
    for module in (unprivileged, loopback_only):
        shim = place.path / Path(module.__file__ or "").name
        shutil.copy(module.__file__ or "", shim)
        shim.chmod(0o644)
    said = say([sys.executable, f"{place.path}/unprivileged.py", "-1", "echo", "done"], place)
    assert said.endswith("Operation not permitted\n")


def test_a_program_that_is_missing_is_named(place: unprivileged.Workplace) -> None:
    assert "no-such-program: " in say(["no-such-program"], place)


def test_what_that_user_cannot_run_is_named(place: unprivileged.Workplace) -> None:
    for path, mode in ((place.path / "open", 0o755), (place.path / "closed", 0o700)):
        path.touch()
        path.chmod(mode)
    assert unprivileged.explain_unusable([f"{place.path}/open"]) == ""
    because = unprivileged.explain_unusable([f"{place.path}/open", f"{place.path}/closed"])
    assert because == f"{BECAUSE}other users may not run {place.path}/closed"


def test_a_python_that_is_roots_alone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprivileged, "make_command", lambda *_: ["sh", "-c", "echo not yours >&2; exit 126"])
    assert unprivileged.explain_unusable([]) == f"{BECAUSE}not yours"


@pytest.mark.parametrize("name", ["nvidia0", "nvidiactl", "nvidia-uvm", "infiniband/uverbs0"])
def test_devices_that_are_roots_alone_are_named(tmp_path: Path, name: str) -> None:
    device = tmp_path / "dev" / name
    device.parent.mkdir(parents=True)
    device.touch()
    device.chmod(0o660)
    assert unprivileged.explain_unusable([]) == f"{BECAUSE}other users may not use {device} (0660)"
    device.chmod(0o666)
    assert "may not use" not in unprivileged.explain_unusable([])


def test_rdma_needs_memory_that_any_user_may_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (65536, 65536))
    assert unprivileged.explain_unusable([]) == ""
    (tmp_path / "dev" / "infiniband").mkdir(parents=True)
    (tmp_path / "dev" / "infiniband" / "uverbs0").touch()
    (tmp_path / "dev" / "infiniband" / "uverbs0").chmod(0o666)
    assert "no more than 65536 bytes" in unprivileged.explain_unusable([])


@pytest.mark.parametrize("before", ["", "root:x:0:0::/root:/bin/sh\n", "root:x:0:0::/root:/bin/sh"])
def test_the_user_is_named_in_the_container(tmp_path: Path, before: str) -> None:
    (tmp_path / "passwd").write_text(before, encoding="ascii")
    assert unprivileged.explain_unusable([]) == ""
    lines = (tmp_path / "passwd").read_text(encoding="ascii").splitlines()
    assert lines[:-1] == before.splitlines()
    assert lines[-1].split(":")[2:] == [str(unprivileged.USER)] * 2 + ["", "/", "/bin/sh"]


def test_no_file_of_the_host_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprivileged, "PASSWD", Path("/proc/passwd"))  # in what is mounted
    assert "not the container's own" in unprivileged.explain_unusable([])


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "of root"])
def test_no_output_is_read_but_a_file_of_that_users_own(place: unprivileged.Workplace, kind: str) -> None:
    file = place.home / "written.json"
    if kind == "link":
        file.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    else:
        file.write_text("secret", encoding="ascii")
    assert read_output(file) == ""


def test_of_an_output_no_more_than_its_start_is_read(place: unprivileged.Workplace) -> None:
    say(["sh", "-c", f"head -c {MAX_OUTPUT + 1} /dev/zero | tr '\\0' a > $HOME/written.json"], place)
    assert len(read_output(place.home / "written.json")) == MAX_OUTPUT


EVERY = ["0.0.0.0", "::"]  # noqa: S104 - what programs that are measured bind
LISTENS = """import socket
for family, every in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
    one = socket.socket(family)
    one.bind((every, 0))
    one.listen()
    print(one.getsockname()[0])
"""


@pytest.mark.parametrize("name", [*loopback_only.DAEMONS, "all_reduce_perf_mpi"])
def test_a_daemon_hears_its_own_node_alone_and_a_program_whom_it_likes(
    place: unprivileged.Workplace, name: str
) -> None:
    (place.path / name).symlink_to(sys.executable)
    heard = say([f"{place.path}/{name}", "-c", LISTENS], place).splitlines()
    assert heard == (EVERY if name == "all_reduce_perf_mpi" else ["127.0.0.1", "::1"])


def test_what_a_daemon_starts_hears_whom_it_likes(place: unprivileged.Workplace) -> None:
    (place.path / "orted").symlink_to(sys.executable)
    starts = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {LISTENS!r}])"
    assert say([f"{place.path}/orted", "-c", starts], place).splitlines() == EVERY


def test_no_program_runs_where_the_kernel_does_not_ask(
    place: unprivileged.Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert say(["sh", "-c", "grep Seccomp: /proc/self/status"], place).split()[-1] == "2"
    monkeypatch.setattr(platform, "machine", lambda: "m68k")
    with pytest.raises(OSError, match="no filter is known"):
        loopback_only.install_filter()


def test_a_kernel_that_leaves_daemons_open_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback_only, "is_daemon", lambda _process: False)
    assert unprivileged.explain_unusable([]) == f"{BECAUSE}the kernel lets its daemons listen to the network"


def serve(place: unprivileged.Workplace, most: int = 2) -> mpi_daemons.AgentServer:
    def pass_on(host: str, command: str) -> int:
        if host != "node2":
            raise meeting.MeetingError("no rank of this job is there")
        return len(command)

    return mpi_daemons.AgentServer(place, pass_on, most)


def test_an_agent_has_a_command_started_and_ends_as_it_does(place: unprivileged.Workplace) -> None:
    with closing(serve(place)) as server:
        for host, code in (("node2", len("orted -mca")), ("node3", 1)):
            process = place.start([*shlex.split(server.command), host, "orted", "-mca"])
            assert process.wait(60) == code


@pytest.mark.parametrize("sent", [b"[]\n", b"x\n", b'{"host": 1}\n', b"[" * 60_000 + b"\n", b"x" * 70_000])
def test_no_request_ends_or_holds_up_the_first_rank(place: unprivileged.Workplace, sent: bytes) -> None:
    with closing(serve(place, most=1)):
        path = str(place.path / mpi_agent.SOCKET)
        for what in (sent, json.dumps({"host": "node2", "command": "x"}).encode() + b"\n"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(60)
                connection.connect(path)
                connection.sendall(what)
                answer = connection.recv(64)
        assert answer == b"1\n"
