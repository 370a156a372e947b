"""Ranks that meet without a framework, and what they run: with programs that only pretend to measure."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks import rdma_write
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import GROUP, evaluate
from clustercheck.checks.support import seeding
from clustercheck.jobs import meeting, unprivileged
from clustercheck.jobs import rdma_write as rdma_job
from clustercheck.jobs.rank import Progress
from clustercheck.launch.requests import make_keys
from clustercheck.model import Subject, Verdict
from clustercheck.samples import sample
from clustercheck.samples.nccl_tests import table
from clustercheck.samples.rdma import write_text

JOBS = Path(meeting.__file__).parent
# Which every user may run, also where the virtual environment is root's alone.
PYTHON = shutil.which("python3", path=os.defpath) or sys.executable
ADDRESSES = ("127.0.0.1", "127.0.0.2")  # two nodes, as far as addresses go
ASKED = {
    "limit_s": 60, "limit_each_s": 20, "collectives": ["all_reduce"], "least": 8,
    "most": 64, "iterations": 2, "warmup": 1,
}  # fmt: skip


def free_port(address: str = ADDRESSES[0]) -> int:
    with socket.socket() as one:
        one.bind((address, 0))
        return int(one.getsockname()[1])


# --- meeting


def test_every_rank_hears_what_every_rank_gives() -> None:
    master = (ADDRESSES[0], free_port())

    def rank(number: int) -> list[list[Any]]:
        group = meeting.Meeting(number, 3, master, make_keys("s3cret", number, 3))
        return [group.exchange([number, word], list, 20) for word in ("one", "two")]

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(rank, range(3)))
    assert found == [[[[n, word] for n in range(3)] for word in ("one", "two")]] * 3


def lone_door() -> tuple[meeting.Door, int]:
    listener = meeting.listen(ADDRESSES[0], 0)
    return meeting.Door(listener, {"1": "s3cret", "2": "of rank 2"}.get), listener.getsockname()[1]


@pytest.mark.parametrize(("rank", "key"), [("1", "another"), ("2", "s3cret"), ("3", "s3cret"), ("3", "")])
def test_a_peer_comes_in_by_its_own_key_alone(rank: str, key: str) -> None:
    door, port = lone_door()
    with contextlib.closing(door):
        with pytest.raises(meeting.MeetingError, match="a peer disconnected"):
            meeting.connect(ADDRESSES[0], port, key, rank, 0)
        meeting.connect(ADDRESSES[0], port, "s3cret", "1")
        came = door.next(20)
        assert came is not None and came[1] == "1"
        assert door.next(0) is None


def test_the_longest_silent_strangers_make_room_for_who_has_a_key() -> None:
    door, port = lone_door()
    with contextlib.ExitStack() as stack:
        stack.callback(door.close)
        strangers = [
            stack.enter_context(socket.create_connection((ADDRESSES[0], port)))
            for _ in range(meeting.STRANGERS + 40)
        ]
        stack.callback(meeting.connect(ADDRESSES[0], port, "s3cret", "1").close)
        came = door.next(20)
        assert came is not None and came[1] == "1"
        assert len(strangers[0].recv(1024)) > 0  # the nonce, and then the end
        assert strangers[0].recv(1024) == b""


def test_of_a_rank_that_comes_twice_the_later_connection_is_heard() -> None:
    port, keys = free_port(), make_keys("s3cret", 0, 3)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(meeting.Meeting, 0, 3, (ADDRESSES[0], port), keys)
        lines = [meeting.connect(ADDRESSES[0], port, keys[rank], rank) for rank in ("1", "1", "2")]
        group = first.result(60)
        for line in lines[1:]:
            assert line.receive(20) == "all are here"
            line.send("here")
        assert group.exchange("first", str, 20) == ["first", "here", "here"]
        with pytest.raises((meeting.MeetingError, OSError)):
            lines[0].receive(20)
        for line in lines:
            line.close()


def meet_hostile(
    honest: Callable[[meeting.Meeting], Any], hostile: Callable[[meeting.Connection], None]
) -> list[Any]:
    """What ranks 0 and 2 make of a meeting with a rank 1 that does as it likes."""
    port = free_port()
    keys = [make_keys("s3cret", rank, 3) for rank in range(3)]

    def come() -> None:
        line = meeting.connect(ADDRESSES[0], port, keys[1]["0"], "1")
        assert line.receive(60) == "all are here"
        with contextlib.suppress(meeting.MeetingError, OSError):
            hostile(line)
            line.receive_line(60)  # until the first rank has gone

    with ThreadPoolExecutor(3) as pool:
        groups = [pool.submit(meeting.Meeting, rank, 3, (ADDRESSES[0], port), keys[rank]) for rank in (0, 2)]
        pool.submit(come)
        found = list(pool.map(lambda group: honest(group.result(60)), groups))
        for group in groups:
            group.result().close()
    return found


@pytest.mark.parametrize(
    ("says", "understood"),
    [
        (b"[" + b",".join([b"1e15"] * 13_000) + b"]", [1e15] * 13_000),
        (b'"' + "\u00e9".encode() * 30_000 + b'"', "\u00e9" * 30_000),
        (b"9" * 5_000, None),
        (b"[" * 60_000, None),
        (b"\xff", None),
        (b"", None),
        (b'{"name": "\\ud800"}', None),
    ],
    ids=[
        "numbers that grow",
        "letters that grow",
        "digits",
        "deep",
        "no text",
        "nothing",
        "half a character",
    ],
)
def test_what_one_rank_says_reaches_the_others_as_it_is_and_ends_none(says: bytes, understood: Any) -> None:
    found = meet_hostile(
        lambda group: group.exchange(group.rank, lambda value: value, 60),
        lambda line: line.send_lines(says),
    )
    assert found == [[0, understood, 2]] * 2


@pytest.mark.parametrize("deep", [1_000, 1_497, 5_000, 9_998])
def test_no_depth_is_read_by_one_rank_and_ends_it_as_it_is_passed_on(deep: int) -> None:
    found = meet_hostile(
        lambda group: group.exchange(group.rank, lambda value: type(value).__name__, 60),
        lambda line: line.send_lines(b"[" * deep + b"]" * deep),
    )
    assert found[0] == found[1]
    assert (found[0][0], found[0][2]) == ("int", "int")


def test_who_drips_keeps_no_rank_from_showing_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "TICK_S", 0.05)

    def honest(group: meeting.Meeting) -> int:
        ticks: list[float] = []
        with pytest.raises(meeting.MeetingError, match=r"a peer (did not answer in time|disconnected)"):
            group.exchange(0, int, 1.0 if group.rank == 0 else 60, lambda: ticks.append(time.monotonic()))
        group.close()
        return len(ticks)

    def drip(line: meeting.Connection) -> None:
        for _ in range(100):
            line.send_bytes(b" ")
            time.sleep(0.02)  # the pace of who drips is what is tested

    assert all(count > 5 for count in meet_hostile(honest, drip))


def test_who_does_not_read_is_missed_by_all_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "SEND_S", 0.5, raising=False)
    listen, says, over = meeting.listen, "x" * 60_000, threading.Barrier(3)

    def listen_with_little_room(address: str, port: int) -> socket.socket:
        listener = listen(address, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(meeting, "listen", listen_with_little_room)

    def honest(group: meeting.Meeting) -> Any:
        heard = group.exchange(says, len, 60)
        with pytest.raises((meeting.MeetingError, OSError), match="a peer disconnected"):
            group.exchange(says, len, 60)
        group.close()
        over.wait(60)
        return heard

    def stay(line: meeting.Connection) -> None:
        line.send(says)
        over.wait(120)

    assert meet_hostile(honest, stay) == [[len(says)] * 3] * 2


def test_work_of_its_own_is_no_progress_among_peers(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress")
    progress.set_phase("joining", collective=True)
    before = progress.counter
    progress.set_phase("measuring alone")
    assert progress.counter == before
    progress.set_phase("waiting for the others", collective=True)
    assert progress.counter == before + 1


def test_a_rank_that_waits_shows_it_without_progress(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress")
    progress.set_phase("meeting", collective=True)
    before = (tmp_path / "progress").read_text(encoding="utf-8")
    progress.beat()
    after = (tmp_path / "progress").read_text(encoding="utf-8")
    assert after != before
    assert {**json.loads(after), "beats": 0} == json.loads(before)


def test_each_two_ranks_have_a_key_that_no_other_has() -> None:
    keys = {rank: make_keys("s3cret", rank, 4) for rank in range(4)}
    for rank, own in keys.items():
        assert sorted(own) == sorted(str(other) for other in range(4) if other != rank)
        assert all(keys[int(other)][str(rank)] == key for other, key in own.items())
    assert len({key for own in keys.values() for key in own.values()}) == 6
    assert set(keys[1].values()).isdisjoint(make_keys("another", 1, 4).values())


@pytest.mark.parametrize(
    "sent",
    [
        b"[" * 60_000,
        b"[" * 900 + b"\n",
        b'{"what": 1, "proof": "\xc3\xa9"}\n',
        b"\xff\n",
        b"7\n",
        b"null\n",
        b'{"what": "\\ud800", "proof": ""}\n',
        b"",
    ],
    ids=["long", "deep", "not ASCII", "no text", "a number", "null", "half a character", "silent"],
)
def test_no_stranger_ends_or_holds_up_who_waits(sent: bytes) -> None:
    door, port = lone_door()
    with contextlib.ExitStack() as stack:
        stack.callback(door.close)
        for _ in range(40):
            stranger = stack.enter_context(socket.create_connection((ADDRESSES[0], port)))
            with contextlib.suppress(OSError):
                stranger.sendall(sent)
        meeting.connect(ADDRESSES[0], port, "s3cret", "1")
        # One after another the silent ones would take 40 times as long as each may.
        came = door.next(2 * meeting.TICK_S)
        assert came is not None and came[1] == "1"


@pytest.mark.parametrize(
    "nonce",
    [b'"\\ud800"', b"[" * 900 + b"]" * 900, b"9" * 5_000, b'"' + b"a" * 33 + b'"', b"null", b"\xff"],
    ids=["half a character", "deep", "digits", "long", "null", "no text"],
)
def test_whatever_a_listener_asks_for_is_a_peers_error(nonce: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "RETRY_S", 0.01)
    with contextlib.closing(meeting.listen(ADDRESSES[0], 0)) as listener, ThreadPoolExecutor(1) as pool:

        def ask() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(20)
                connection.sendall(nonce + b"\n")
                connection.recv(1024)

        asked = pool.submit(ask)
        with pytest.raises(meeting.MeetingError, match=r"cannot be reached: (a|.* from a) peer"):
            meeting.connect(ADDRESSES[0], listener.getsockname()[1], "s3cret", "1", 0)
        asked.result(60)


def test_a_closed_door_leaves_its_port() -> None:
    door, port = lone_door()
    door.close()
    meeting.listen(ADDRESSES[0], port).close()


def starter_of(port: int, key: str) -> meeting.CommandServer:
    def start(command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True)

    return meeting.CommandServer(ADDRESSES[0], port, key, start)


def test_only_the_first_ranks_key_starts_a_command(tmp_path: Path) -> None:
    port, keys = free_port(), make_keys("s3cret", 1, 3)
    starter = starter_of(port, keys["0"])
    try:
        with pytest.raises(meeting.MeetingError):
            meeting.connect(ADDRESSES[0], port, keys["2"], f"touch {tmp_path}/stolen", 0)
        assert meeting.connect(ADDRESSES[0], port, keys["0"], f"touch {tmp_path}/done").receive(20) == 0
    finally:
        starter.close()
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


def test_a_rank_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "CONNECT_S", 0.3)
    with pytest.raises(meeting.MeetingError, match="a peer, rank 1, did not connect"):
        meeting.Meeting(0, 2, (ADDRESSES[0], free_port()), {"1": "s3cret"})
    with pytest.raises(meeting.MeetingError, match="cannot be reached"):
        meeting.Meeting(1, 2, (ADDRESSES[0], free_port()), {"0": "s3cret"})


def test_what_was_started_for_a_peer_ends_with_the_starter(tmp_path: Path) -> None:
    port, said = free_port(), tmp_path / "said"
    os.mkfifo(said)
    hears = os.open(said, os.O_RDONLY | os.O_NONBLOCK)
    starter = starter_of(port, "s3cret")
    line = meeting.connect(ADDRESSES[0], port, "s3cret", f"echo $$ > {said}; sleep 600; exit 3")
    assert select.select([hears], [], [], 60)[0], "it was not started"
    process = int(os.read(hears, 32))
    os.close(hears)
    watched = os.pidfd_open(process)
    starter.close()
    assert line.receive(60) != 3
    assert select.select([watched], [], [], 60)[0], "it runs on"
    os.close(watched)


# --- nccl-tests


def script(place: Path, name: str, text: str) -> None:
    place.mkdir(exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (place / name).chmod(0o755)


PERF = '[ "$1" = -h ] && { echo "[-J,--output_file <file>]"; exit 0; }\necho "at $HERE: $*"'
# It starts its daemons as Open MPI does: itself on the first host, by the agent on every other.
MPIRUN = """daemon='echo "asked $HERE" >> "$SEEN"; : orted "1.0;tcp://127.0.0.1:7";'
hosts=; while [ "$1" != all_reduce_perf_mpi ]; do [ "$1" = --host ] && hosts=$2; shift; done
for h in $(echo "$hosts" | tr , ' '); do
  if [ "${h%%:*}" = 127.0.0.1 ]; then HERE=first "$@"
  else $OMPI_MCA_plm_rsh_agent "${h%%:*}" "$daemon" "$@"; fi || exit 1
done"""


@pytest.fixture
def shared_path() -> Iterator[Path]:
    """A directory like tmp_path, with programs and files of other users than root in it."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    (path / "seen").touch()
    (path / "seen").chmod(0o666)
    yield path
    shutil.rmtree(path)


def ranks(
    tmp_path: Path,
    programs: dict[str, str],
    arguments: dict[str, Any] = ASKED,
    job: str = "nccl_tests",
    *,
    variables: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    hostile: int = -1,
    says: Any = None,
) -> list[Any]:
    """Two nodes' ranks of the job, to their verdicts; a ``hostile`` one answers all with ``says``."""
    for name, text in programs.items():
        script(tmp_path / "bin", name, text)
    master, started = f"{ADDRESSES[0]}:{free_port()}", []
    endpoints = [f"{address}:{free_port(address)}" for address in ADDRESSES]
    for rank in sorted({0, 1} - {hostile}):
        directory = tmp_path / f"node{rank}"
        directory.mkdir()
        for source in JOBS.glob("*.py"):  # with another file than this machine's in which users are named
            text = source.read_text(encoding="utf-8").replace("/etc/passwd", f"{tmp_path}/passwd")
            (directory / source.name).write_text(text, encoding="utf-8")
        (directory / "arguments.json").write_text(json.dumps(arguments), encoding="utf-8")
        keys = make_keys("s3cret", rank, 2)
        (directory / meeting.KEYS_FILE).write_text(json.dumps(keys), encoding="utf-8")
        environment = {
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": "2", "PADDLE_MASTER": master, "HERE": f"node{rank}",
            "PADDLE_CURRENT_ENDPOINT": endpoints[rank], "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "SEEN": str(tmp_path / "seen"),
            **variables[rank],
        }  # fmt: skip
        words = [PYTHON, "rank.py", str(directory), job]
        started.append(subprocess.Popen(words, cwd=directory, env=environment))
    if hostile >= 0:
        host, port = master.rsplit(":", 1)
        group = meeting.Meeting(hostile, 2, (host, int(port)), make_keys("s3cret", hostile, 2))
        with contextlib.suppress(meeting.MeetingError, OSError):
            for number in itertools.count():
                group.exchange(says(number) if callable(says) else says, str, 60)
    ended = [process.wait(60) for process in started]
    assert hostile >= 0 or ended == [0, 0]
    found = sorted(tmp_path.glob("node*/rank-*.verdict.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


@pytest.mark.needs("root")
def test_the_programs_run_within_each_node_and_across_both(shared_path: Path) -> None:
    smi = 'echo "GPU 0: A100"; echo "GPU 1: A100"'
    writes = f'{PERF}\nfor file; do :; done; echo "{{}}" > "$file"'
    programs = {"all_reduce_perf": PERF, "all_reduce_perf_mpi": writes, "mpirun": MPIRUN, "nvidia-smi": smi}
    first, second = ranks(shared_path, programs)
    assert (first["gpus"], first["world_gpus"], first["without"], first["without_mpi"]) == (2, 4, "", "")
    assert first["within"]["all_reduce"]["text"].startswith(
        "at node0: -g 2 -f 2 -c 1 -b 8 -e 64 -n 2 -w 1 -J "
    )
    assert second["within"]["all_reduce"]["text"].startswith("at node1: -g 2")
    assert (first["across"]["all_reduce"]["exit_code"], first["across"]["all_reduce"]["json"]) == (0, "{}\n")
    assert "-np 4 --host 127.0.0.1:2,127.0.0.2:2" in first["across"]["all_reduce"]["command"]
    assert second["across"] == {}
    assert (shared_path / "seen").read_text(encoding="utf-8") == "asked node1\n"


# Says who it is, and all that it can do to ranks; then it leaves a link where it should write.
GREEDY = """[ "$1" = -h ] && {{ echo --output_file; exit 0; }}
id -u
for node in {nodes}/node*; do
  for file in $node/keys.json $node/arguments.json $node/rank-*.verdict.json $node/new; do
    cat $file && echo read; echo x > $file && echo written
  done
  kill -9 $(pgrep -o -f "rank.py $node") && echo killed
done 2> /dev/null
for file; do :; done
ln -s {nodes}/node0/keys.json "$file" 2> /dev/null || :"""


@pytest.mark.needs("root")
def test_what_mpi_starts_reads_no_key_and_writes_no_verdict(shared_path: Path) -> None:
    """On no node, whoever has it started."""
    programs = {"all_reduce_perf": PERF, "mpirun": MPIRUN, "nvidia-smi": 'echo "GPU 0: A100"'}
    programs["all_reduce_perf_mpi"] = GREEDY.format(nodes=shared_path)
    first, second = ranks(shared_path, programs)
    assert set(first["across"]["all_reduce"]["text"].split()) == {str(unprivileged.USER)}
    assert (first["across"]["all_reduce"]["json"], first["ok"], second["ok"]) == ("", True, True)


def counters(tmp_path: Path) -> set[int]:
    """How often each rank waited for the others, as the launcher reads it."""
    files = sorted(tmp_path.glob("node*/rank-*.progress"))
    assert len(files) == 2
    return {json.loads(file.read_text(encoding="utf-8"))["counter"] for file in files}


@pytest.mark.needs("root")
def test_who_starts_mpi_or_has_more_gpus_is_not_ahead_of_the_others(shared_path: Path) -> None:
    """Else who waits as all others do would seem to hold them up."""
    programs = {"all_reduce_perf": PERF, "all_gather_perf": PERF, "mpirun": "exit 0"}
    programs["nvidia-smi"] = '[ $HERE = node0 ] && echo "GPU 1: A100"; echo "GPU 0: A100"'
    programs["all_reduce_perf_mpi"] = programs["all_gather_perf_mpi"] = PERF
    asked = {**ASKED, "collectives": ["all_reduce", "all_gather"]}
    first, second = ranks(shared_path, programs, asked)
    assert (len(first["within"]), len(second["within"]), len(first["across"])) == (2, 0, 2)
    assert len(counters(shared_path)) == 1


@pytest.mark.needs("root")
def test_rank_0_waits_with_the_others_while_mpi_runs(shared_path: Path) -> None:
    """So is_even holds for all of them, whoever keeps its programs from ending."""
    says = shared_path / "says"
    os.mkfifo(says)
    says.chmod(0o666)
    programs = {"all_reduce_perf": PERF, "all_reduce_perf_mpi": PERF, "nvidia-smi": 'echo "GPU 0: A100"'}
    programs["mpirun"] = f"echo started > {says}; read line < {says}"
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(ranks, shared_path, programs)
        assert says.read_text(encoding="ascii") == "started\n"
        meanwhile = json.loads((shared_path / "node0" / "rank-0.progress").read_text(encoding="utf-8"))
        says.write_text("go on\n", encoding="ascii")
        ran.result(60)
    assert (meanwhile["phase"], meanwhile["collective"]) == ("nccl-tests across nodes", True)
    # Then all wait twice more, at the end.
    assert counters(shared_path) == {meanwhile["counter"] + 2}


@pytest.mark.needs("root")
def test_variables_of_the_settings_reach_the_programs_on_every_node(shared_path: Path) -> None:
    """Those of one value by mpirun's -x; of what differs, each node's daemon has its own."""
    perf = f'{PERF}\necho "$NCCL_IB_HCA $NCCL_IB_TC $OMPI_MCA_pml"'
    starts = MPIRUN.replace('asked $HERE"', 'asked $HERE $NCCL_IB_HCA"')
    programs = {
        "all_reduce_perf": perf, "all_reduce_perf_mpi": perf, "mpirun": starts,
        "nvidia-smi": 'echo "GPU 0: A"',
    }  # fmt: skip
    same = {"NCCL_IB_TC": "106", "OMPI_MCA_pml": "ucx"}
    variables = ({**same, "NCCL_IB_HCA": "=mlx5_0"}, {**same, "NCCL_IB_HCA": "=mlx5_4"})
    arguments = {**ASKED, "variables": ["NCCL_IB_HCA", "NCCL_IB_TC", "OMPI_MCA_pml"]}
    first, _ = ranks(shared_path, programs, arguments, variables=variables)
    across = first["across"]["all_reduce"]
    assert "-x NCCL_IB_TC -x OMPI_MCA_pml all_reduce_perf_mpi" in across["command"]
    assert "=mlx5_0 106 ucx" in across["text"]
    assert (shared_path / "seen").read_text(encoding="utf-8") == "asked node1 =mlx5_4\n"


def test_an_image_without_nccl_tests_is_reported_and_nothing_runs(tmp_path: Path) -> None:
    for verdict in ranks(tmp_path, {"nvidia-smi": "exit 0"}):
        assert "has no nccl-tests" in verdict["without"]
        assert verdict["within"] == verdict["across"] == {}


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    programs = {"all_reduce_perf": "sleep 600", "nvidia-smi": 'echo "GPU 0: A"; echo "GPU 1: A"'}
    asked = {**ASKED, "limit_each_s": 1}
    programs["all_reduce_perf"] = '[ "$1" = -h ] && exit 0\necho started; sleep 600'
    first, _ = ranks(tmp_path, programs, asked)
    assert (first["within"]["all_reduce"]["exit_code"], first["without_mpi"]) == (
        None,
        "the image has no mpirun",
    )
    assert first["within"]["all_reduce"]["text"] == "started\n"


def test_the_loopback_of_the_adapters_leaves_nccl_nothing_but_the_network(tmp_path: Path) -> None:
    perf = """[ "$1" = -h ] && exit 0
echo "$NCCL_P2P_DISABLE$NCCL_SHM_DISABLE $NCCL_NVLS_ENABLE $*"
echo "$HERE says" > "$NCCL_DEBUG_FILE\""""
    programs = {"all_reduce_perf": perf, "nvidia-smi": 'echo "GPU 0: A"; echo "GPU 1: A"'}
    first, second = ranks(tmp_path, programs, job="nccl_loopback")
    assert first["run"]["text"] == "11 0 -g 2 -f 2 -c 1 -b 8 -e 64 -n 2 -w 1\n"
    assert (first["gpus"], first["nccl_log"], second["nccl_log"]) == (2, "node0 says\n", "node1 says\n")


def test_no_loopback_is_measured_without_nccl_tests_or_with_one_gpu(tmp_path: Path) -> None:
    for verdict in ranks(tmp_path, {"nvidia-smi": 'echo "GPU 0: A"'}, job="nccl_loopback"):
        assert "has no nccl-tests" in verdict["without"] and "run" not in verdict


LIES = [None, 7, "x", [1, 2, 3], ["x"] * 5, {}, ["", "", 10**9, "eth0", {}], ["", "", 1, "eth0", {"A": []}]]


@pytest.mark.parametrize("says", LIES, ids=str)
@pytest.mark.parametrize("hostile", [0, 1])
def test_what_one_node_says_of_itself_ends_no_other(tmp_path: Path, hostile: int, says: Any) -> None:
    programs = {"all_reduce_perf": PERF, "all_reduce_perf_mpi": PERF, "mpirun": MPIRUN}
    programs["nvidia-smi"] = 'echo "GPU 0: A100"; echo "GPU 1: A100"'
    (honest,) = ranks(tmp_path, programs, hostile=hostile, says=says)
    assert honest["ok"], honest
    assert honest["within"]["all_reduce"]["exit_code"] == 0
    assert honest["across"] == {}


# --- paddle.distributed.launch


@pytest.mark.parametrize("says", [4000, [4000, 64], -1, "x", None], ids=str)
def test_no_node_says_how_many_processes_the_others_wait_for(tmp_path: Path, says: Any) -> None:
    asked = {**ASKED, "samples": 4, "batch": 2, "epochs": 1, "seed": 1}
    counted = {"CLUSTERCTL_PROCESSES": "1,2"}
    (honest,) = ranks(
        tmp_path, {}, asked, job="paddle_launch", hostile=1, says=says, variables=(counted, counted)
    )
    assert (honest["ok"], honest["processes"], honest["all_processes"]) == (True, 1, 3), honest
    assert honest["samples"] == 4 * 3 - 1
    assert "--nproc_per_node 1" in honest["launched"]["command"]


def test_the_first_node_says_where_all_meet(tmp_path: Path) -> None:
    asked = {**ASKED, "samples": 4, "batch": 2, "epochs": 1, "seed": 1}
    counted = {"CLUSTERCTL_PROCESSES": "1,1"}
    (honest,) = ranks(
        tmp_path, {}, asked, job="paddle_launch", hostile=0, says="x", variables=(counted, counted)
    )
    assert (honest["ok"], honest["collective"]) == (False, True)
    assert "a peer, rank 0, does not say which port is free" in honest["because"]


# --- fio

# It writes its files and its result, as fio does; O_DIRECT is refused where the file says so.
FIO = """case "$*" in *--direct=1*) [ -e "$SEEN" ] && { echo "fio: looks like your file system does not \
support direct=1/buffered=0"; exit 1; };; esac
for word in "$@"; do
  case $word in --output=*) out=${word#--output=};; --filename=*) echo written > "${word#--filename=}";; esac
done; echo "{}" > "$out\""""


def storage(tmp_path: Path, size: int = 1 << 20, fio: str = FIO) -> Any:
    """Two ranks that measure one directory each; the first's is of an earlier run, too."""
    shared = tmp_path / "shared"
    left = shared / ".clusterctl-storage-gpu01-0123456789abcdef"
    left.mkdir(mode=0o700, parents=True)
    (left / "clusterctl.0").write_text("left", encoding="ascii")
    (shared / "theirs").write_text("kept", encoding="ascii")
    places = [[node, {"/data": str(shared)}] for node in ("gpu01", "gpu02")]
    return ranks(tmp_path, {"fio": fio}, {**ASKED, "places": places, "size_bytes": size}, job="storage_io")


def test_fio_writes_in_a_directory_of_the_nodes_own_and_nothing_is_left(tmp_path: Path) -> None:
    first, second = storage(tmp_path)
    assert (first["places"]["/data"]["json"], first["places"]["/data"]["direct"]) == ("{}\n", True)
    assert second["places"]["/data"]["exit_code"] == 0
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["theirs"]


def test_a_file_system_without_o_direct_is_measured_without(tmp_path: Path) -> None:
    (tmp_path / "seen").touch()
    first, _ = storage(tmp_path)
    assert (first["places"]["/data"]["exit_code"], first["places"]["/data"]["direct"]) == (0, False)


def test_a_file_system_without_room_is_not_written_to(tmp_path: Path) -> None:
    first, _ = storage(tmp_path, size=1 << 60)
    assert "bytes are free" in first["places"]["/data"]["unable"]
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["theirs"]


def test_what_a_killed_fio_wrote_is_removed(tmp_path: Path) -> None:
    first, _ = storage(tmp_path, fio="kill -9 $$")
    assert first["places"]["/data"]["exit_code"] == -9
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["theirs"]


def test_fio_writes_to_its_files_also_where_another_puts_links_in_their_place(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept", encoding="ascii")
    exchange = f"""for own in {tmp_path}/shared/.clusterctl-storage-*; do
  mv "$own" "$own.away" && mkdir "$own" && ln -sf {precious} "$own/clusterctl.0"
done 2>/dev/null
"""
    first, second = storage(tmp_path, fio=exchange + FIO)
    assert first["places"]["/data"]["exit_code"] == second["places"]["/data"]["exit_code"] == 0
    assert precious.read_text(encoding="ascii") == "kept"


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_the_real_fio_writes_and_verifies_open_files(tmp_path: Path) -> None:
    first, second = storage(tmp_path, size=1 << 24, fio=f'exec {shutil.which("fio")} "$@"')
    for said in (first["places"]["/data"], second["places"]["/data"]):
        assert said["exit_code"] == 0, said["text"]
        (job,) = json.loads(said["json"])["jobs"]
        assert (job["error"], job["write"]["io_bytes"], job["read"]["io_bytes"]) == (0, 1 << 24, 1 << 24)
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["theirs"]


def test_an_image_without_fio_is_reported(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path / "bin")}
    asked = {**ASKED, "places": [], "size_bytes": 1}
    for verdict in ranks(tmp_path, {"true": "true"}, asked, job="storage_io", variables=(nothing, nothing)):
        assert (verdict["without"], verdict["places"]) == ("the image has no fio", {})


# --- ib_write_bw

# Its ends as perftest's: the server waits at a port for one client, and the client prints the table.
WRITE = """import socket, sys
words = sys.argv[1:]
device, port = words[words.index("-d") + 1], int(words[words.index("-p") + 1])
if words[-1] == "--report_gbits" or words[-2] == "-x":
    with socket.create_server(("", port)) as server:
        server.accept()[0].recv(9)
else:
    with socket.create_connection((words[-1], port), timeout=5) as client:
        client.sendall(device.encode())
    print(open("{texts}/" + device).read(), end="")
"""


def perftest(tmp_path: Path, **more: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """The program, with what it prints of each port, and the arguments of a job of two ports a node."""
    for device in ("mlx5_0", "mlx5_1"):
        (tmp_path / device).write_text(write_text(device, 190.0), encoding="utf-8")
    (tmp_path / "write.py").write_text(WRITE.format(texts=tmp_path), encoding="utf-8")
    ports = [{"device": f"mlx5_{number}", "port": 1, "gid": None} for number in range(2)]
    asked = {"ports": [ports, ports], "rounds": [[[0, 1]], [[1, 0]]], "iterations": 10, "limit_each_s": 20}
    program = f'exec {sys.executable} {tmp_path / "write.py"} "$@"'
    return {"ib_write_bw": program}, {"limit_s": 60, **asked, **more}


def test_each_port_writes_to_itself_then_rail_by_rail_to_its_partner(tmp_path: Path) -> None:
    first, second = ranks(tmp_path, *perftest(tmp_path), job="rdma_write")
    for verdict in (first, second):
        assert [(e["device"], e["exit_code"]) for e in verdict["loopback"]] == [("mlx5_0", 0), ("mlx5_1", 0)]
        assert all("BW average" in entry["text"] for entry in verdict["loopback"])
    ends = [(entry["role"], entry["peer"], entry["rail"], entry["exit_code"]) for entry in first["writes"]]
    assert ends == [("client", 1, 0, 0), ("client", 1, 1, 0), ("server", 1, 0, 0), ("server", 1, 1, 0)]
    assert [entry["role"] for entry in second["writes"]] == ["server", "server", "client", "client"]
    assert "190." in first["writes"][1]["text"]


def test_who_has_more_ports_is_not_ahead_of_the_others(tmp_path: Path) -> None:
    programs, asked = perftest(tmp_path)
    first, second = asked["ports"]
    ranks(tmp_path, programs, {**asked, "ports": [first, second[:1]]}, job="rdma_write")
    assert len(counters(tmp_path)) == 1


def test_a_server_that_fails_is_not_waited_for_and_a_client_that_hangs_is_ended(tmp_path: Path) -> None:
    _, asked = perftest(tmp_path, limit_each_s=1)
    program = 'case "$*" in *gbits) echo "no device" >&2; exit 1;; *) sleep 600;; esac'
    begun = time.monotonic()
    first, second = ranks(tmp_path, {"ib_write_bw": program}, asked, job="rdma_write")
    assert time.monotonic() - begun < 4 * rdma_job.LISTEN_S  # two with itself and two for its partner
    refused = (1, "no device\n")
    ends = [(entry["exit_code"], entry["text"]) for entry in first["writes"]]
    assert ends == [(None, ""), (None, ""), refused, refused]
    assert [(entry["exit_code"], entry["text"]) for entry in second["writes"]][:2] == [refused, refused]


@pytest.mark.parametrize("says", [[1, 2, 3], ["--out_json_file=/x", 1], "x", -1, 70_000, 1.5], ids=str)
def test_a_partner_that_names_no_port_is_not_written_to(tmp_path: Path, says: Any) -> None:
    programs, asked = perftest(tmp_path, limit_each_s=1)
    hostile = {"hostile": 1, "says": lambda number: says if number else ""}
    (honest,) = ranks(tmp_path, programs, asked, job="rdma_write", **hostile)
    clients = [each for each in honest["writes"] if each["role"] == "client"]
    assert [(each["exit_code"], each["text"]) for each in clients] == [
        (None, "rank 1 does not say at which port it listens")
    ] * 2


def test_a_long_reason_of_one_node_stays_short_in_the_others_verdicts(tmp_path: Path) -> None:
    programs, asked = perftest(tmp_path)
    (honest,) = ranks(tmp_path, programs, asked, job="rdma_write", hostile=1, says="y" * 60_000)
    assert len(honest["without"]) <= 1200


def gpudirect(tmp_path: Path, helped: str, more: str = "") -> tuple[Any, Any]:
    """Two ranks of two GPUs each, with an ib_write_bw of this help."""
    programs, asked = perftest(tmp_path)
    pairs = [{**port, "gpu": gpu} for gpu, port in enumerate(asked["ports"][0])]
    program = f"[ \"$1\" = --help ] && {{ echo '{helped}'; exit 1; }}\n{more}\n{programs['ib_write_bw']}"
    return tuple(  # type: ignore[return-value]
        ranks(tmp_path, {"ib_write_bw": program}, {**asked, "pairs": [pairs, pairs]}, job="gpudirect_write")
    )


def test_each_gpu_is_measured_by_its_adapter_and_by_dma_buf_without_peermem(tmp_path: Path) -> None:
    order = '[ "$CUDA_DEVICE_ORDER" = PCI_BUS_ID ] || exit 9; echo "$*" >> "$SEEN"'
    first, _ = gpudirect(tmp_path, "--use_cuda=<cuda device id> --use_cuda_dmabuf", order)
    assert [(e["gpu"], e["device"], e["exit_code"], e["way"]) for e in first["writes"]] == [
        (0, "mlx5_0", 0, "DMA-BUF"),
        (1, "mlx5_1", 0, "DMA-BUF"),
    ]
    assert all("--use_cuda" in line for line in (tmp_path / "seen").read_text(encoding="utf-8").splitlines())


def test_after_two_gpus_that_hang_the_others_are_left(tmp_path: Path) -> None:
    _, asked = perftest(tmp_path, limit_each_s=1)
    pairs = [{**asked["ports"][0][0], "gpu": gpu} for gpu in range(4)]
    help_ = "[ \"$1\" = --help ] && { echo '--use_cuda= --use_cuda_dmabuf'; exit 1; }"
    program = f'{help_}\ncase "$*" in *gbits) exit 1;; *) sleep 600;; esac'
    asked = {**asked, "pairs": [pairs, []]}
    first, _ = ranks(tmp_path, {"ib_write_bw": program}, asked, job="gpudirect_write")
    assert [entry["exit_code"] for entry in first["writes"]] == [None, None]


def test_an_ib_write_bw_without_cuda_measures_nothing_and_says_why(tmp_path: Path) -> None:
    for verdict in gpudirect(tmp_path, "-a, --all"):
        assert (verdict["unable"], verdict["writes"]) == ("this ib_write_bw was built without CUDA", [])


def test_an_image_without_perftest_is_reported(tmp_path: Path) -> None:
    _, asked = perftest(tmp_path)
    for verdict in ranks(tmp_path, {"true": "true"}, asked, job="rdma_write"):
        assert "no ib_write_bw (package perftest)" in verdict["without"]


def test_ports_are_named_in_order_and_roce_by_the_address_that_can_be_routed() -> None:
    evidence = sample.healthy()
    (ports, _) = rdma_write.arguments_of(evidence, ["gpu01", "gpu02"])
    assert [(port["device"], port["gid"]) for port in ports] == [
        ("mlx5_0", None),
        ("mlx5_1", None),
        ("mlx5_2", 3),
    ]
    assert rdma_write.with_ports(evidence, ["gpu01", "gpu02"]) == ["gpu01", "gpu02"]


def test_any_verdict_about_writes_is_read_safely() -> None:
    for entry in ({}, {"role": "client"}, {"role": "client", "peer": 7, "rail": 0},
                  {"role": "client", "peer": 1, "rail": 9}, 3):  # fmt: skip

        def change(_rank: Any, verdict: seeding.Raw, entry: Any = entry) -> None:
            verdict["writes"] = [entry]

        evidence = seeding.verdicts("rdma_write", change)(sample.healthy())
        verdicts = {result.verdict for result in evaluate(BY_ID["rdma-write"], evidence)}
        assert verdicts <= {Verdict.NOT_RUN, Verdict.EXCLUDED}


# --- judged


def judged(**run: Any) -> dict[Subject, Any]:
    def change(rank: Any, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict["within"]["all_reduce"].update(run)

    evidence = seeding.verdicts("nccl_tests", change)(sample.healthy())
    return {result.subject: result for result in evaluate(BY_ID["nccl-tests-all-reduce"], evidence)}


def test_each_size_with_a_floor_is_judged_and_the_network_from_a_gibibyte_on() -> None:
    results = judged()
    assert {figure.figure.metric for figure in results[Subject("gpu01")].figures} == {
        f"busbw_{size}" for size in (64 << 20, 1 << 30, 4 << 30)
    }
    assert {figure.figure.metric for figure in results[GROUP].figures} == {
        f"busbw_{size}" for size in (1 << 30, 2 << 30, 4 << 30)
    }


def test_a_file_that_cannot_be_read_is_made_up_for_by_what_was_printed() -> None:
    assert judged(json='{"version": 3, "cut')[Subject("gpu02")].verdict is Verdict.PASS
    text = table("all_reduce", ["gpu02"], 8, 236.0)[:500]
    result = judged(json='{"version": 3, "cut', text=text)[Subject("gpu02")]
    assert result.verdict is Verdict.NOT_RUN and "JSON" in result.because


def test_one_node_is_judged_by_itself_and_has_nothing_to_cross() -> None:
    one = sample.healthy(nodes=1)
    outcome = one.jobs["nccl_tests"]
    said = {**(outcome.ranks[0].verdict or {}), "without_mpi": "only one node takes part"}
    one = seeding.with_job(one, replace(outcome, ranks=(replace(outcome.ranks[0], verdict=said),)))
    results = {r.subject: r.verdict for r in evaluate(BY_ID["nccl-tests-all-reduce"], one)}
    assert results == {Subject("gpu01"): Verdict.PASS, GROUP: Verdict.EXCLUDED}
