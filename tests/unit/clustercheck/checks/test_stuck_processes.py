"""Processes that do not get on: real ones are found by the probe, and judged by what they hold."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Result, Verdict
from clustercheck.probe import processes as probe
from clustercheck.probe.processes import FROZEN, KERNEL_THREAD, VFORK, processes, state
from clustercheck.samples import sample
from clustercheck.samples.machine import asleep, zombie

PASS, FAIL, WARNING, NOT_RUN = Verdict.PASS, Verdict.FAIL, Verdict.WARNING, Verdict.NOT_RUN
# Who starts a program sleeps uninterruptibly until it has begun: this one waits for a writer first.
ASLEEP = (
    "import os, sys\n"
    "actions = [(os.POSIX_SPAWN_OPEN, 9, sys.argv[1], os.O_RDONLY, 0)]\n"
    "os.posix_spawn('/bin/true', ['true'], {}, file_actions=actions)\n"
)
OF_A_USER = asleep(has_gpu=True, may_wait_for_user=True)
ZOMBIE = "import os, sys\nif os.fork(): sys.stdin.read()\n"


def judged(*found: dict[str, Any], **more: Any) -> Result:
    def change(raw: seeding.Raw) -> None:
        raw["processes"].update({"lasted": list(found), "looked_s": 10.1, **more})

    return evaluate(BY_ID["stuck-processes"], seeding.edit("gpu01", change)(sample.healthy(1)))[0]


def until(path: str, letter: str) -> None:
    """Wait until a process is in this state."""
    while Path(path, "stat").read_text().rpartition(")")[2].split()[0] != letter:
        time.sleep(0.01)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[int]:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen([sys.executable, "-c", ASLEEP, str(pipe)])
    until(f"/proc/{process.pid}", "D")
    yield process.pid
    os.close(os.open(pipe, os.O_WRONLY))  # the program that was started opens it, and ends
    process.wait(timeout=30)


@pytest.fixture
def parent() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", ZOMBIE], stdin=subprocess.PIPE)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not children.read_text():
        time.sleep(0.01)
    until(f"/proc/{children.read_text().split()[0]}", "Z")
    yield process.pid
    process.communicate(timeout=30)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_who_sleeps_and_who_is_not_collected_is_found_with_its_parent(
    sleeper: int, parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "VFORK", ())  # what else sleeps so would need a disk that does not answer
    found = processes(last_s=0.2, look_s=0.05)
    assert found["looked_s"] >= 0.2
    of_ours = {each["pid"]: each for each in found["lasted"] if sleeper == each["pid"]}
    assert of_ours[sleeper]["state"] == "D" and of_ours[sleeper]["parent"]["pid"] == os.getpid()
    (dead,) = [each for each in found["lasted"] if each["parent"]["pid"] == parent]
    assert (dead["state"], dead["has_gpu"], dead["kernel"]) == ("Z", False, False)


def thread(root: Path, pid: int, tid: int, letter: str, *, flags: int = 0, **files: str) -> Path:
    path = root / str(pid) / "task" / str(tid)
    path.mkdir(parents=True, exist_ok=True)
    words = [letter, "1", *["0"] * 4, str(flags), *["0"] * 12, "777", "0"]
    files = {"stat": f"{tid} (a ) b) {' '.join(words)}", "comm": "worker", "wchan": "x", **files}
    files.setdefault("status", "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t0\n")
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def test_who_waits_for_a_program_that_he_started_is_not_stuck(sleeper: int) -> None:
    """Any user can have that last as long as he likes."""
    waits_in = Path(f"/proc/{sleeper}/wchan").read_text(encoding="ascii")
    assert waits_in.startswith(VFORK) or waits_in in ("", "0")  # where the kernel does not say it
    found = {each["pid"] for each in processes(last_s=0.2, look_s=0.1)["lasted"]}
    assert sleeper not in found or waits_in in ("", "0")


def test_what_moves_on_is_not_stuck(tmp_path: Path) -> None:
    path = thread(tmp_path, 10, 10, "D")
    before = state(str(path))
    assert before
    for changed in (
        {"letter": "S"},
        {"letter": "D", "status": "voluntary_ctxt_switches:\t6\nnonvoluntary_ctxt_switches:\t0\n"},
    ):
        assert state(str(thread(tmp_path, 10, 10, **changed))) != before  # type: ignore[arg-type]
    for place in (*FROZEN, *VFORK):  # a paused container, and who started a program that has not begun
        assert state(str(thread(tmp_path, 10, 10, "D", wchan=place))) == ()
    assert state(str(thread(tmp_path, 10, 11, "Z"))) == ()  # a thread that ends
    assert state(str(thread(tmp_path, 20, 20, "Z")))
    thread(tmp_path, 20, 21, "D")
    assert state(str(tmp_path / "20/task/20"))
    thread(tmp_path, 20, 21, "D", wchan="kernel_clone")
    assert state(str(tmp_path / "20/task/20")) == ()  # nor is who waits for a program that it started
    thread(tmp_path, 20, 21, "D")
    thread(tmp_path, 20, 22, "S")
    assert state(str(tmp_path / "20/task/20")) == ()  # its first thread has ended, and another goes on
    assert state(str(tmp_path / "gone")) == ()


def test_threads_of_the_kernel_and_holders_of_gpus_are_told(tmp_path: Path) -> None:
    thread(tmp_path, 10, 10, "D", flags=KERNEL_THREAD | 0x40)
    thread(tmp_path, 20, 20, "Z", status="Uid:\t1000\t0\t0\t0\n")
    alive = thread(tmp_path, 20, 21, "D", wchan="nv_of_a_driver")
    (alive / "fd").mkdir()
    (alive / "fd/3").symlink_to("/dev/nvidia5")
    thread(tmp_path, 30, 30, "R")
    lasted = processes(str(tmp_path), last_s=0.0)["lasted"]
    found = {(each["pid"], each["state"]): (each["kernel"], each["has_gpu"]) for each in lasted}
    (ended,) = [each for each in lasted if each["state"] == "Z"]
    assert (ended["may_wait_for_user"], ended["waits_in"]) == (False, "nv_of_a_driver")
    assert found == {(10, "D"): (True, False), (20, "Z"): (False, True), (20, "D"): (False, True)}


@pytest.mark.parametrize(("says", "stuck"), [("FROZEN", False), ("FREEZING", False), ("THAWED", True)])
def test_a_container_that_is_paused_by_cgroups_v1_is_not_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, stuck: bool
) -> None:
    monkeypatch.setattr(probe, "FREEZER", str(tmp_path / "freezer"))
    (tmp_path / "freezer/docker/c0ffee").mkdir(parents=True)
    (tmp_path / "freezer/docker/c0ffee/freezer.state").write_text(f"{says}\n")
    groups = "4:memory:/docker/c0ffee\n3:freezer:/docker/c0ffee\n0::/\n"
    assert bool(state(str(thread(tmp_path, 10, 10, "D", cgroup=groups)))) is stuck


@pytest.mark.parametrize(
    ("owner", "waits_in", "expected"),
    [
        (1000, "handle_userfault", True),
        (0, "handle_userfault", False),
        *((owner, place, True) for owner in (0, 1000) for place in (
            "request_wait_answer", "folio_wait_bit_common", "ext4_buffered_write_iter", "do_unlinkat",
            "__access_remote_vm", "nfs_start_io_write", "xfs_ilock",
        )),
        *((owner, place, False) for owner in (0, 1000) for place in (
            "rpc_wait_bit_killable", "nfs4_wait_clnt_recover", "nvidia_close", "_nv012345rm", "down",
            "jbd2_log_wait_commit", "xlog_wait_on_iclog", "cl_sync_io_wait", "ldlm_completion_ast",
            "cxiWaitEventWait", "__ib_destroy_cq_user", "nvme_submit_sync_cmd", "0", "",
        )),
    ],
)  # fmt: skip
def test_what_a_user_can_have_last_is_told_apart(
    tmp_path: Path, owner: int, waits_in: str, expected: bool
) -> None:
    status = f"Uid:\t{owner}\t{owner}\t{owner}\t{owner}\n"
    thread(tmp_path, 10, 10, "D", wchan=waits_in, status=status)
    (found,) = processes(str(tmp_path), last_s=0.0)["lasted"]
    assert found["may_wait_for_user"] is expected


def test_a_users_sleepers_keep_no_other_from_being_told_nor_last_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(probe, "has_gpu", lambda process: bool(looked_at.append(process)))
    of_a_user = "Uid:\t1000\t1000\t1000\t1000\n"
    for tid in range(10, 110):
        thread(tmp_path, 10, tid, "D", wchan="ext4_buffered_write_iter", status=of_a_user)
    thread(tmp_path, 200, 200, "D", wchan="nv_open_q", status=of_a_user)
    found = processes(str(tmp_path), last_s=0.0)
    assert (found["lasted"][0]["pid"], found["omitted"]) == (200, 61)
    assert sorted(looked_at) == [f"{tmp_path}/10", f"{tmp_path}/200"]


STACKS = {
    "a device": ("__schedule+0x1 nv_open_q+0x2/0x30 vfs_read+0x3", "nv_open_q", False),
    "a file server": ("rpc_wait_bit_killable+0x1 __wait_on_bit+0x2", "rpc_wait_bit_killable", False),
    "a lock": (
        "rwsem_down_write_slowpath+0x1 ext4_buffered_write_iter+0x2 nfs_x+0x3",
        "ext4_buffered_write_iter",
        True,
    ),
    "not told": ("", "0", False),
    "only the scheduler": ("io_schedule+0x12/0x40 0xffffffffffffffff", "0", False),
}


@pytest.mark.parametrize(("stack", "place", "expected"), STACKS.values(), ids=STACKS.keys())
def test_where_wchan_is_nothing_the_stack_tells_the_place(
    tmp_path: Path, stack: str, place: str, expected: bool
) -> None:
    """Kernels before 5.16 with the unwinder ORC say 0."""
    lines = "".join(f"[<0>] {frame}\n" for frame in stack.split())
    thread(tmp_path, 10, 10, "D", wchan="0", stack=lines, status="Uid:\t1000\t1000\t1000\t1000\n")
    (found,) = processes(str(tmp_path), last_s=0.0)["lasted"]
    assert (found["waits_in"], found["may_wait_for_user"]) == (place, expected)


def test_each_thread_is_named_with_the_place_where_it_waits(tmp_path: Path) -> None:
    thread(tmp_path, 10, 10, "D", wchan="of_a_disk")
    thread(tmp_path, 10, 11, "D", wchan="of_a_driver")
    found = processes(str(tmp_path), last_s=0.0)["lasted"]
    assert [each["waits_in"] for each in found] == ["of_a_disk", "of_a_driver"]


def test_thousands_of_zombies_leave_room_for_the_sleeper(tmp_path: Path) -> None:
    for pid in range(100, 200):
        thread(tmp_path, pid, pid, "Z")
    thread(tmp_path, 99, 99, "D")
    found = processes(str(tmp_path), last_s=0.0)
    assert [each["pid"] for each in found["lasted"] if each["state"] == "D"] == [99]
    assert (len(found["lasted"]), found["omitted"]) == (41, 60)


@pytest.mark.parametrize(
    ("found", "verdict", "because"),
    [
        ([], PASS, ""),
        (
            [asleep(has_gpu=True)],
            FAIL,
            "with a GPU open, not running and not ended for all of 10.1 s",
        ),
        ([zombie(has_gpu=True)], FAIL, "sh (4712, child of bash 4000)"),
        ([asleep()], FAIL, "python3 (4711 in io_schedule)"),
        ([asleep(kernel=True)], WARNING, "threads of the kernel"),
        ([asleep(kernel=True, may_wait_for_user=True)], WARNING, "threads of the kernel"),
        ([zombie()] * 5, WARNING, "5 zombie(s)"),
        ([zombie(), asleep(kernel=True), asleep(name="cp")], FAIL, "cp (4711"),
        ([OF_A_USER], WARNING, "maybe kept waiting by a user for all of 10.1 s: python3 (4711"),
        ([OF_A_USER, asleep(name="cp")], FAIL, "cp (4711"),
        ([{**OF_A_USER, "state": "Z"}], WARNING, "python3 (4711"),
    ],
)
def test_each_is_judged_by_what_it_holds(found: list[Any], verdict: Verdict, because: str) -> None:
    result = judged(*found)
    assert result.verdict is verdict
    assert because in result.because


@pytest.mark.parametrize(
    "parent", [None, "bash", {}, {"name": "bash"}, {"pid": 4000}, {"name": "bash", "pid": "4000"}]
)
def test_a_parent_that_is_not_known_is_not_named(parent: Any) -> None:
    result = judged(zombie(has_gpu=True, parent=parent))
    assert result.verdict is FAIL
    assert "sh (4712)" in result.because


def test_a_process_with_many_threads_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "MOST_THREADS", 3)
    monkeypatch.setattr(probe, "how_many", lambda place: len(os.listdir(place)))  # noqa: PTH208
    for thread in ("10/task/10", "10/task/11", "10/task/12", "99/task/99"):
        (tmp_path / thread).mkdir(parents=True)
    assert next(probe.threads(str(tmp_path))) == f"{tmp_path}/99/task/99"
    assert processes(str(tmp_path), last_s=0)["unseen"]
    assert judged(unseen=True).verdict is NOT_RUN
    assert judged(asleep(has_gpu=True), unseen=True).verdict is FAIL


def test_the_kernel_counts_the_threads_of_a_process() -> None:
    before = probe.how_many("/proc/self/task")
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    assert probe.how_many("/proc/self/task") == before + 1
    gate.set()
    thread.join()
    assert probe.how_many("/proc/self/none") == 0


@pytest.mark.parametrize("wrong", [{"state": "R"}, {"pid": "1"}])
def test_what_is_no_process_is_not_judged(wrong: dict[str, Any]) -> None:
    assert judged(asleep(**wrong)).verdict is NOT_RUN
    assert judged(looked_s=None).verdict is NOT_RUN
