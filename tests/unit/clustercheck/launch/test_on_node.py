"""What runs on the nodes, over a stand-in for docker that remembers what it was asked."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from clustercheck.launch import on_node

# Answers by its first words; a file of that name next to it holds the answer, `refuse` makes it fail.
DOCKER = r"""#!/bin/sh
here=$(dirname "$0")
{ for word; do printf '%s\037' "$word"; done; echo; } >> "$here/calls"
[ -f "$here/refuse-$1" ] && { cat "$here/refuse-$1" >&2; exit 125; }
[ -f "$here/answer-$1" ] && cat "$here/answer-$1"
exit 0
"""


@pytest.fixture
def docker(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(on_node, "JOBS_ROOT", tmp_path / "jobs")
    return programs


def calls(docker):
    return [line.split("\x1f")[:-1] for line in (docker / "calls").read_text().split("\n")[:-1]]


def ask(capsys, **request):
    assert on_node.main(json.dumps(request)) == 0
    return json.loads(capsys.readouterr().out)


START = {
    "action": "start",
    "run": "r1",
    "job": "all-reduce",
    "name": "clusterctl-r1-all-reduce",
    "image": "registry01:5000/library/paddle@sha256:1",
    "timeout_s": 60.0,
    "memlock": -1,
    "infiniband": False,
    "framework_name": "paddle",
    "container_arguments": ["--gpus", "all"],
    "labels": {"clusterctl.run": "r1", "clusterctl.job": "all-reduce", "clusterctl.rank": "0"},
    "files": {
        "rank.py": base64.b64encode(b"print()").decode(),
        "backends/paddle.py": base64.b64encode(b"pass").decode(),
    },
}


def test_a_job_starts_detached_with_its_files_for_root_alone(docker, capsys, tmp_path):
    (docker / "answer-run").write_text("Unable to find image locally\nabc123\n")
    answer = ask(capsys, **START)
    directory = tmp_path / "jobs" / "r1" / "all-reduce"
    assert answer == {"ok": True, "container": "abc123"}
    assert (directory / "rank.py").read_text() == "print()"
    assert (directory / "backends" / "paddle.py").read_text() == "pass"
    assert (
        stat.S_IMODE(directory.stat().st_mode)
        == stat.S_IMODE((directory / "backends").stat().st_mode)
        == 0o700
    )
    assert stat.S_IMODE((directory / "rank.py").stat().st_mode) == 0o600
    call = next(call for call in calls(docker) if call[:2] == ["run", "-d"])
    for pair in (
        ["--network", "host"],
        ["--ipc", "private"],
        ["--shm-size", str(on_node.shared_memory_bytes())],
        ["--oom-score-adj", "1000"],
        ["--ulimit", "memlock=-1:-1"],
        ["--gpus", "all"],
        ["--label", "clusterctl.rank=0"],
    ):
        assert any(call[i : i + 2] == pair for i in range(len(call))), pair
    assert call[-3:] == ["75", str(directory / "supervise.py"), str(directory)]
    assert "--device" not in call


@pytest.mark.parametrize("own", [["--ipc", "host"], ["--ipc=host"], ["--shm-size=1g"]])
def test_what_the_container_is_to_share_may_be_said_otherwise(docker, capsys, own):
    (docker / "answer-run").write_text("abc123\n")
    ask(capsys, **{**START, "container_arguments": own})
    call = next(call for call in calls(docker) if call[:2] == ["run", "-d"])
    assert [word for word in call if word.startswith(("--ipc", "--shm-size"))] == own[:1]


def test_a_job_has_as_much_shared_memory_as_its_host(monkeypatch, tmp_path):
    size = os.statvfs("/dev/shm")
    assert on_node.shared_memory_bytes() == size.f_blocks * size.f_frsize > 0
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    assert on_node.shared_memory_bytes(str(tmp_path / "none")) == half
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_blocks=0, f_frsize=4096))
    assert on_node.shared_memory_bytes() == half  # of no limit


def test_infiniband_devices_of_the_node_go_into_the_container(docker, capsys):
    (docker / "answer-run").write_text("abc123\n")
    ask(capsys, **{**START, "infiniband": True})
    call = next(call for call in calls(docker) if call[:2] == ["run", "-d"])
    assert call[call.index("--device") + 1] == "/dev/infiniband"


def test_dockers_refusal_is_reported_without_its_prefixes(docker, capsys):
    (docker / "refuse-run").write_text(
        "docker: Error response from daemon: failed to create shim task: OCI runtime create failed: "
        "runc create failed: unable to start: error running hook #0: exit status 1, stdout: , stderr: "
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.\n"
    )
    answer = ask(capsys, **START)
    assert answer["ok"] is False
    assert answer["because"] == (
        "docker run: nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown."
    )


def test_a_node_without_docker_is_reported(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = ask(capsys, action="stop", container="abc")
    assert answer == {"ok": False, "because": "docker is not installed"}


def lists(docker, *rows, name="clusterctl-r-pairs"):
    """Docker lists containers with these ids, runs, deadlines, controllers and states."""
    printed = [json.dumps([one, name, state, run, until, by]) for one, run, until, by, state in rows]
    (docker / "answer-ps").write_text("".join(f"{line}\n" for line in printed))


def test_what_an_image_says_of_its_containers_removes_and_holds_nothing(docker):
    """A container has the labels of its image, whoever made that."""
    lists(docker, ("aaa", "evil\t1\tx\texited\nvictim\told", "1", "", "running"), name="monitor")
    assert on_node.remove_leftovers("r1") == []
    lists(docker, ("aaa", "x", "9e99", "", "running"), name="monitor")
    assert on_node.remove_leftovers("r1") == []
    assert not [call for call in calls(docker) if call[0] == "rm"]


def test_leftovers_of_other_runs_go_and_this_runs_stay(docker, tmp_path):
    lists(docker, ("aaa", "r0", "", "", "exited"), ("bbb", "r1", "", "", "running"))
    for name in ("r0", "r1"):
        (tmp_path / "jobs" / name / "pairs").mkdir(parents=True)
    (tmp_path / "jobs" / "r0" / "pairs" / "rank-3.verdict.json").write_text('{"ok": true}')
    removed = on_node.remove_leftovers("r1")
    directory = tmp_path / "jobs" / "r0"
    assert removed == ["container aaa of run r0", f"directory {directory} (pairs: rank 3 ok)"]
    assert (tmp_path / "jobs" / "r1").is_dir()
    assert [call[2] for call in calls(docker) if call[0] == "rm"] == ["aaa"]


def test_what_ranks_left_is_gathered_and_what_they_did_not_is_nothing(docker, capsys, tmp_path):
    directory = tmp_path / "jobs" / "r1" / "j"
    directory.mkdir(parents=True)
    (directory / "rank-0.verdict.json").write_text('{"ok": true}')
    (directory / "rank-0.end").write_text('{"exit_code": 0}')
    (directory / "rank-0.log").write_text("x" * 20_000 + "end")
    (directory / "rank-1.verdict.json").write_text('{"ok": tr')
    (docker / "answer-inspect").write_text(json.dumps([{"State": {"ExitCode": 1, "OOMKilled": True}}]))
    (docker / "answer-logs").write_text("last words\n")
    answer = ask(capsys, action="wait", container="abc", directory=str(directory), ranks=[0, 1], timeout_s=5)
    assert answer["exit_code"] == 1
    assert answer["out_of_memory"] is True
    assert answer["log_tail"] == "last words\n"
    assert answer["ranks"]["0"]["verdict"] == {"ok": True}
    assert answer["ranks"]["0"]["log_tail"].endswith("end")
    assert len(answer["ranks"]["0"]["log_tail"]) == on_node.LOG_TAIL_BYTES
    assert answer["ranks"]["1"] == {
        "verdict": None,
        "end": None,
        "progress": None,
        "stack": "",
        "log_tail": "",
    }


def test_only_directories_of_jobs_are_ever_removed(docker, capsys, tmp_path):
    outside = tmp_path / "precious"
    outside.mkdir()
    ask(capsys, action="remove", container="abc", directory=str(outside))
    assert outside.is_dir()


PROBED = {"run": "r1", "image": "i", "framework_name": "paddle"}


def test_the_image_is_asked_what_its_paddle_is(docker):
    (docker / "answer-run").write_text('a banner\n{"version": "3.3.1", "cuda": false, "gpus": 0}\n')
    found = on_node.inspect_framework({**PROBED, "container_arguments": ["--gpus", "all"]})
    assert found == {"version": "3.3.1", "cuda": False, "gpus": 0}
    for words in ("nothing of use\n", "[1]\n", '{"gpus": "8"}\n', ""):
        (docker / "answer-run").write_text(words)
        with pytest.raises(on_node.ActionError, match="did not report its version"):
            on_node.inspect_framework({**PROBED, "container_arguments": []})


def test_the_interface_is_the_one_that_carries_the_address(tmp_path, monkeypatch):
    (tmp_path / "ip").write_text(
        "#!/bin/sh\ncase \"$*\" in *route*) echo '203.0.113.1 via 192.0.2.1 dev eth0 src 192.0.2.7 uid 0';;\n"
        "*) echo '1: lo    inet 127.0.0.1/8 scope host lo'\n"
        "echo '2: eth0    inet 192.0.2.7/24 scope global eth0'\n"
        "echo '3: ib0    inet 198.51.100.7/24 scope global ib0';; esac\n"
    )
    (tmp_path / "ip").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert on_node.find_interface("198.51.100.7")[:2] == ("ib0", "198.51.100.7")
    interface, address, how = on_node.find_interface("10.9.9.9")
    assert (interface, address) == ("eth0", "192.0.2.7")
    assert "no interface carries 10.9.9.9" in how


def test_ports_are_free_and_differ():
    ports = on_node.free_ports("127.0.0.1", 9)
    assert len(set(ports)) == 9
    with socket.socket() as one:
        one.bind(("127.0.0.1", ports[0]))


def test_a_run_that_is_at_work_is_left_alone_and_named(docker, capsys, tmp_path):
    later, over = str(int(time.time() + 300)), str(int(time.time() - 1))
    (tmp_path / "jobs" / "r8" / "pairs").mkdir(parents=True)
    rows = [("aaa", "r8", over, "ops@head", "running"), ("bbb", "r9", later, "eve@other", "running")]
    lists(docker, *rows)
    request = {"action": "prepare", "run": "r1", "image": "i", "address": "192.0.2.1", "framework": None}
    answer = ask(capsys, **request)
    assert answer["ok"] is False and answer["busy"] is True
    assert "run r9 of eve@other holds it" in answer["because"]
    assert not [call for call in calls(docker) if call[0] == "rm"]
    assert (tmp_path / "jobs" / "r8").is_dir()
    assert on_node.remove_leftovers("r1", ["r9"])[:2] == [
        "container aaa of run r8",
        "container bbb of run r9",
    ]
    (tmp_path / "jobs" / "r8" / "pairs").mkdir(parents=True)
    rows[1] = ("bbb", "r9", later, "eve@other", "exited")
    lists(docker, *rows)
    assert on_node.remove_leftovers("r1")[:2] == ["container aaa of run r8", "container bbb of run r9"]


def test_a_container_has_its_deadline_as_a_label(docker, capsys):
    (docker / "answer-run").write_text("abc123\n")
    ask(capsys, **START)
    call = next(call for call in calls(docker) if call[:2] == ["run", "-d"])
    (until,) = [word.partition("=")[2] for word in call if word.startswith("clusterctl.until=")]
    assert float(until) == pytest.approx(time.time() + 60.0 + on_node.UNTIL_MARGIN_S, abs=10)


def test_what_is_gone_already_is_removed(docker, capsys):
    (docker / "refuse-rm").write_text("Error response from daemon: No such container: abc\n")
    assert ask(capsys, action="remove", container="abc", directory="/nowhere")["ok"] is True
    (docker / "refuse-rm").write_text("Error response from daemon: it will not go\n")
    assert ask(capsys, action="remove", container="abc", directory="/nowhere")["ok"] is False


def test_what_a_rank_leaves_is_read_through_no_link_of_its_container(tmp_path) -> None:
    secret, job = tmp_path / "shadow", tmp_path / "job"
    secret.write_text('{"root": "secret"}\n')
    job.mkdir()
    for name in ("rank-0.log", "rank-0.stack", "rank-0.nccl", "rank-0.progress", "rank-0.end"):
        (job / name).symlink_to(secret)
    (job / "rank-0.verdict.json").symlink_to("/dev/zero")
    os.mkfifo(job / "rank-1.log")
    (job / "rank-1.verdict.json").write_text('{"ok": true}')
    with (job / "rank-2.verdict.json").open("wb") as stream:
        stream.truncate(on_node.MAX_JSON_BYTES + 1)
    found = on_node.read_rank_files(job, [0, 1, 2], nccl_log=True)
    assert "secret" not in json.dumps(found)
    nothing = {"verdict": None, "end": None, "progress": None, "stack": "", "log_tail": "", "nccl_log": ""}
    assert found == {"0": nothing, "1": {**nothing, "verdict": {"ok": True}}, "2": nothing}


@pytest.fixture
def job(docker, tmp_path):
    """The directory of a job of an earlier run, with whatever its container left there."""
    directory = tmp_path / "jobs" / "r0" / "pairs"
    directory.mkdir(parents=True)
    yield directory
    subprocess.run(["rm", "-rf", str(tmp_path / "jobs")], check=True)  # what pytest cannot remove itself


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("[1]", "no verdict"),
        ("1", "no verdict"),
        ('"ok"', "no verdict"),
        ('{"because": ["nested"]}', "no verdict"),
        ('{"because": "' + "x" * 100_000 + '"}', "x" * on_node.MAX_OUTCOME_CHARACTERS),
        ('{"ok": true}' + " " * on_node.MAX_OUTCOME_BYTES, "no verdict"),
    ],
    ids=["list", "number", "text", "list-as-reason", "long-reason", "long-file"],
)
def test_no_verdict_that_a_container_left_keeps_a_later_run_from_the_node(job, tmp_path, verdict, outcome):
    (job / "rank-1.verdict.json").write_text(verdict)
    assert on_node.remove_leftovers("r1") == [f"directory {job.parent} (pairs: rank 1 {outcome})"]
    assert list((tmp_path / "jobs").iterdir()) == []


def test_of_many_verdicts_that_a_container_left_a_few_are_read(job, monkeypatch):
    for rank in range(200):
        (job / f"rank-{rank}.verdict.json").write_text('{"ok": true}')
    read = []
    monkeypatch.setattr(on_node, "_json", lambda path, *_: read.append(path))
    (removed,) = on_node.remove_leftovers("r1")
    assert len(read) == on_node.MAX_OUTCOMES and len(removed) < 2000


def nest(directory, levels=1500):
    """Directories in directories: more than Python's own functions go into."""
    place = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)


def test_nested_directories_that_a_container_left_are_removed(docker, capsys, job, tmp_path):
    nest(job)
    assert on_node.remove_leftovers("r1") == [f"directory {job.parent}"]
    for action in ("remove", "start"):
        directory = tmp_path / "jobs" / START["run"] / START["job"]
        directory.mkdir(parents=True)
        nest(directory)
        (docker / "answer-run").write_text("abc123\n")
        answer = ask(capsys, **{**START, "action": action, "container": "abc", "directory": str(directory)})
        assert answer["ok"] is True
        assert not (directory / "d").exists()
        assert list((tmp_path / "jobs").glob(f"{on_node.DISCARDED}*")) == []


def test_files_that_cannot_be_removed_keep_no_later_run_from_the_node(docker, job, tmp_path):
    (job / "rank-1.verdict.json").write_text('{"ok": true}')
    (docker / "rm").write_text("#!/bin/sh\nexit 1\n")
    (docker / "rm").chmod(0o755)
    first = on_node.remove_leftovers("r1")
    (left,) = (tmp_path / "jobs").iterdir()
    assert first == [f"directory {job.parent} (pairs: rank 1 ok)", f"not all files in {left}"]
    assert len(on_node.remove_leftovers("r2")) == 2  # tried again, and nothing fails
    (docker / "rm").unlink()
    on_node.remove_leftovers("r3")
    assert list((tmp_path / "jobs").iterdir()) == []


def test_what_a_container_printed_may_be_of_any_bytes(docker, capsys, tmp_path):
    (docker / "answer-inspect").write_text(json.dumps([{"State": {"ExitCode": 1}}]))
    (docker / "answer-logs").write_bytes(b"\xff last words\n")
    answer = ask(capsys, action="wait", container="abc", directory=str(tmp_path), ranks=[], timeout_s=5)
    assert answer["log_tail"] == "\N{REPLACEMENT CHARACTER} last words\n"


def test_of_what_a_program_prints_the_end_is_kept():
    """An image decides what its own Python prints: root's agent keeps no more than the end of it."""
    tail = "x" * (on_node.MAX_OUTPUT_BYTES - len("end"))
    program = "import sys; [sys.{0}.write('x' * 65536) for _ in range(100)]; sys.{0}.write('end')"
    for stream in ("stdout", "stderr"):
        done = on_node.execute([sys.executable, "-c", program.format(stream)], 60)
        assert getattr(done, stream) == tail + "end"
        assert done.stdout + done.stderr == tail + "end"


@pytest.mark.parametrize(
    "program",
    [
        "while True: print('x' * 65536)",
        "import time; time.sleep(60)",
        "import os, time; os.close(1); os.close(2); time.sleep(60)",
    ],
    ids=["prints", "is-silent", "has-closed-its-output"],
)
def test_a_program_that_does_not_end_is_ended_at_its_limit(program):
    with pytest.raises(on_node.ActionError, match="did not end within 1 s"):
        on_node.execute([sys.executable, "-c", program], 1)


def test_an_answer_that_is_nested_too_deep_to_be_sent_is_a_failure_with_a_reason(docker, capsys, monkeypatch):
    nested: list[object] = []
    for _ in range(200_000):
        nested = [nested]
    monkeypatch.setitem(on_node.ACTIONS, "stop", lambda _: {"nested": nested})
    answer = ask(capsys, action="stop", container="abc")
    assert answer["ok"] is False and "recursion" in answer["because"]
