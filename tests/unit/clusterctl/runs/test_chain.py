"""The chain over the runs' records: what was changed, removed or added since is found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.full_disk import leave_room

from clusterctl import main
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.errors import ClusterctlError
from clusterctl.report import files
from clusterctl.runs import chain, syslog
from clusterctl.runs.store import RunStore
from clusterctl.runs.syslog import send_head
from clusterctl.runs.verification import UNRECORDED, verify

NOT_LINKED = UNRECORDED.replace("{}", "run.json", 1)


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterDirectory:
    """Three finished runs, the second with a result."""
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    directory = ClusterDirectory(tmp_path)
    store = RunStore(directory)
    for number, kind in enumerate(("apply", "registry upgrade", "apply")):
        run = store.create(kind, [])
        run.journal.write_text(f'{{"number": {number}}}\n')
        if number == 1:
            run.path("result.json").write_text("{}\n")
        store.finish(run, 0, {"changed": number})
    return directory


def runs(cluster: ClusterDirectory) -> list[Path]:
    return sorted(cluster.runs.iterdir())


def test_an_untouched_record_has_no_problem(cluster: ClusterDirectory) -> None:
    checked = verify(cluster)
    assert (checked.links, checked.runs, checked.problems) == (3, 3, ())
    assert chain.head_of(runs(cluster)[2]) == checked.newest


@pytest.mark.parametrize("name", ["run.json", "journal.jsonl", "result.json"])
def test_a_changed_file_is_named(cluster: ClusterDirectory, name: str) -> None:
    with (runs(cluster)[1] / name).open("a") as stream:
        stream.write(" ")
    assert verify(cluster).problems == (f"{name} of run {runs(cluster)[1].name} was changed",)


def test_what_was_removed_or_added_is_named(cluster: ClusterDirectory) -> None:
    first, second, third = runs(cluster)
    (second / "result.json").unlink()
    (first / "result.json").write_text("{}")
    for path in third.iterdir():
        path.unlink()
    third.rmdir()
    assert set(verify(cluster).problems) == {
        f"result.json of run {second.name} was removed",
        f"result.json of run {first.name} was added",
        f"run {third.name} was removed",
    }


def test_runs_that_were_all_removed_are_named(cluster: ClusterDirectory) -> None:
    shutil.rmtree(cluster.runs)
    assert len(verify(cluster).problems) >= 3


def test_a_run_that_is_recorded_again_is_compared_with_its_newest_link(cluster: ClusterDirectory) -> None:
    store = RunStore(cluster)
    store.annotate(store.get("last"), {"open_jobs": 0})
    checked = verify(cluster)
    assert (checked.links, checked.runs, checked.problems) == (4, 3, ())


def test_a_result_that_is_recorded_again_is_found_whatever_the_head(cluster: ClusterDirectory) -> None:
    """Who falsified a run and appended a link for it, as our own program does, hid it."""
    run, kept = runs(cluster)[1], verify(cluster).newest
    (run / "result.json").write_text('{"verdict": "pass"}')
    (run / "run.json").write_text((run / "run.json").read_text().replace('"exit_code": 0', '"exit_code": 1'))
    chain.append(cluster, run.name)
    told = [
        f"{name} of run {run.name} was changed between its links 2 and 4"
        for name in ("result.json", "run.json")
    ]
    assert list(verify(cluster, kept).problems) == told
    assert list(verify(cluster).problems) == told


def test_what_was_recorded_again_since_the_head_is_named(
    cluster: ClusterDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    store, first = RunStore(cluster), runs(cluster)[0]
    kept = verify(cluster).newest
    chain.append(cluster, first.name)  # the same again
    assert verify(cluster, kept).recorded_again == ()
    (first / "journal.jsonl").write_text("other\n")
    store.annotate(store.get(first.name), {"open_jobs": 0})
    again = f"journal.jsonl and run.json of run {first.name}, recorded again in link 5"
    checked = verify(cluster, kept)
    assert (checked.problems, checked.recorded_again) == ((), (again,))
    assert verify(cluster, checked.newest).recorded_again == ()
    assert main.run(["-C", str(cluster.root), "runs", "verify", "--head", kept]) == 0
    text = capsys.readouterr().out
    assert "nothing up to link 3" not in text
    assert f"nothing else up to link 3 was changed since the given head was printed than:\n{again}" in text


def test_a_changed_cut_or_exchanged_link_is_found(cluster: ClusterDirectory) -> None:
    file = chain.chain_file(cluster)
    first, second, third = file.read_text().splitlines()
    changed = json.dumps({**json.loads(second), "at": "2020-01-01T00:00:00+00:00"})
    for lines in (
        [first, changed, third],
        [first, third],
        [second, third],
        [second, first, third],
        ["{}", third],
    ):
        file.write_text("".join(f"{line}\n" for line in lines))
        assert verify(cluster).problems, lines


def test_a_run_missing_from_the_chain_is_found(cluster: ClusterDirectory) -> None:
    record = runs(cluster)[2] / "run.json"
    planted = cluster.runs / "20991231T000000000-validate-beef"
    planted.mkdir()
    later = {**json.loads(record.read_text()), "id": planted.name, "finished": "2099-12-31T00:00:00Z"}
    (planted / "run.json").write_text(json.dumps(later))
    assert verify(cluster).problems == (NOT_LINKED.format(planted.name),)
    for moment in ("2099-12-31 00:00:00", "yesterday", "2099-12-31T00:00:00"):
        (planted / "run.json").write_text(json.dumps({**later, "finished": moment}))
        assert verify(cluster).problems == (NOT_LINKED.format(planted.name),), moment


def test_a_run_that_says_that_it_is_older_than_the_chain_is_named(
    cluster: ClusterDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads((runs(cluster)[2] / "run.json").read_text())
    planted = cluster.runs / "19991231T000000000-validate-beef"
    planted.mkdir()
    older = {**record, "id": planted.name, "finished": "1999-12-31T00:00:00Z"}
    (planted / "run.json").write_text(json.dumps(older))
    assert main.run(["-C", str(cluster.root), "runs", "verify", "--head", verify(cluster).newest]) == 0
    assert f"before the chain began: {planted.name}" in capsys.readouterr().out
    assert verify(cluster).older == (planted.name,)


@pytest.mark.parametrize("name", ["result.json", "evidence.json"])
@pytest.mark.parametrize("record", ["not ended", "of no end", "unreadable", "gone"])
def test_a_result_of_a_run_that_is_in_no_link_is_named(
    cluster: ClusterDirectory, name: str, record: str
) -> None:
    document = json.loads((runs(cluster)[2] / "run.json").read_text())
    planted = cluster.runs / "20991231T000000000-validate-beef"
    planted.mkdir()
    (planted / name).write_text("{}")
    text = json.dumps({**document, "id": planted.name, "finished": "" if record == "of no end" else None})
    if record != "gone":
        (planted / "run.json").write_text("[" if record == "unreadable" else text)
    checked = verify(cluster, verify(cluster).newest)
    assert checked.problems == (UNRECORDED.format(name, planted.name),)
    (planted / name).unlink()
    assert verify(cluster).problems == (), "of a run that goes on"


def test_a_run_that_ended_before_the_chain_and_started_after_it_is_not_older(
    cluster: ClusterDirectory,
) -> None:
    record = json.loads((runs(cluster)[2] / "run.json").read_text())
    planted = cluster.runs / "20991231T000000000-validate-beef"
    planted.mkdir()
    older = {**record, "id": planted.name, "finished": "1999-12-31T00:00:00Z"}
    (planted / "run.json").write_text(json.dumps(older))
    assert verify(cluster).problems == (NOT_LINKED.format(planted.name),)


def test_a_file_of_a_run_that_is_a_link_is_named_and_not_read(cluster: ClusterDirectory) -> None:
    run = runs(cluster)[0]
    (cluster.root / "elsewhere").write_text("{}")
    (run / "result.json").symlink_to(cluster.root / "elsewhere")
    assert verify(cluster).problems == (f"result.json of run {run.name} is a link",)
    with pytest.raises(ClusterctlError, match="has no result"):
        files.load(RunStore(cluster).get(run.name))


def test_only_a_head_kept_elsewhere_shows_a_chain_that_was_written_again(cluster: ClusterDirectory) -> None:
    kept = verify(cluster).newest
    assert verify(cluster, kept).anchored == 3
    names = [path.name for path in runs(cluster)]
    (runs(cluster)[0] / "journal.jsonl").write_text("other\n")
    chain.chain_file(cluster).unlink()
    for name in names:
        chain.append(cluster, name)
    assert verify(cluster).good
    assert "no link has the head" in verify(cluster, kept).problems[0]


@pytest.mark.parametrize("torn", ['{"number": 4, "at"', "\0" * 500])
def test_a_link_that_was_torn_by_a_crash_is_removed_and_its_run_recorded_by_the_next(
    cluster: ClusterDirectory,
    torn: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, store = chain.chain_file(cluster), RunStore(cluster)
    before = file.read_bytes()
    monkeypatch.setattr("clusterctl.runs.store.now", lambda: "2099-12-31T00:00:00Z")
    crashed = store.create("apply", [])
    store.finish(crashed, 0, {})
    file.write_bytes(before + torn.encode())
    checked = verify(cluster)
    assert checked.torn
    assert checked.problems == (NOT_LINKED.format(crashed.id),)
    later = store.create("apply", [])
    store.finish(later, 0, {})
    assert f"an incomplete link is removed ({len(torn)} bytes)" in capsys.readouterr().err
    assert [link.run for link in chain.read(cluster)[0]][3:] == [crashed.id, later.id]
    checked = verify(cluster)
    assert (checked.torn, checked.problems) == (False, ())


def test_a_link_of_which_a_full_disk_took_a_part_has_no_head_and_its_run_is_recorded_by_the_next(
    cluster: ClusterDirectory,
) -> None:
    heads: list[str] = []
    store = RunStore(cluster, on_link=lambda link: heads.append(link.head))
    unrecorded = store.create("apply", [])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ClusterctlError, match="No space left"):
        leave_room(patch, 100)
        store.finish(unrecorded, 0, {})
    assert (heads, verify(cluster).torn) == ([], True)
    later = store.create("apply", [])
    store.finish(later, 0, {})
    links = chain.read(cluster)[0][3:]
    assert [link.run for link in links] == [unrecorded.id, later.id]
    assert [link.head for link in links] == heads
    assert verify(cluster).good


def test_a_second_interrupt_waits_until_the_run_that_ends_is_in_the_chain(
    cluster: ClusterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, heads = chain.append, []

    def interrupted(*arguments: Any) -> chain.ChainLink:
        signal.raise_signal(signal.SIGINT)
        return append(*arguments)

    monkeypatch.setattr(chain, "append", interrupted)
    store = RunStore(cluster, on_link=lambda link: heads.append(link.run))
    run = store.create("apply", [])
    with pytest.raises(KeyboardInterrupt), store.finished_on_error(run):
        raise RuntimeError("the first")
    assert heads == [run.id]
    assert verify(cluster).good
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_link_that_lacks_only_its_newline_is_one(cluster: ClusterDirectory) -> None:
    file = chain.chain_file(cluster)
    file.write_bytes(file.read_bytes().removesuffix(b"\n"))
    assert (verify(cluster).links, verify(cluster).problems) == (3, ())
    chain.append(cluster, runs(cluster)[0].name)
    assert (verify(cluster).links, verify(cluster).problems) == (4, ())


def test_a_torn_line_hides_no_change(cluster: ClusterDirectory) -> None:
    (runs(cluster)[2] / "journal.jsonl").write_text("other")
    changed = f"journal.jsonl of run {runs(cluster)[2].name} was changed"
    with chain.chain_file(cluster).open("a") as stream:
        stream.write('{"number')
    assert changed in verify(cluster).problems
    store = RunStore(cluster)
    store.finish(store.create("apply", []), 0, {})
    assert verify(cluster).problems == (changed,)


def test_the_head_of_an_old_run_is_found_and_that_of_a_new_one_without_reading_all(
    cluster: ClusterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = chain.read(cluster)[0][0]
    for _ in range(400):
        last = chain.append(cluster, runs(cluster)[1].name)
    assert chain.chain_file(cluster).stat().st_size > 2 * chain.BLOCK
    assert chain.head_of(runs(cluster)[0]) == first.head
    read: list[int] = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *a: read.append(a[1]) or real(*a))
    assert chain.head_of(runs(cluster)[1]) == last.head
    assert read == [chain.BLOCK]
    assert chain.head_of(cluster.runs / "none") == ""


def test_a_chain_without_a_newline_ends_no_command(cluster: ClusterDirectory) -> None:
    chain.chain_file(cluster).write_bytes(b"x" * (chain.MAX_LINE * 3))
    assert chain.head_of(runs(cluster)[0]) == ""
    chain.append(cluster, runs(cluster)[0].name)
    assert verify(cluster).problems[0] == "line 1 of chain.jsonl is not a link"


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("number", '"number": ' + "9" * 4300),
        ("run", '"run": "x\\nnothing was changed"'),
        ("run", '"run": "../elsewhere"'),
        ("run", '"run": ""'),
    ],
)
def test_a_line_that_nobody_of_ours_wrote_is_no_link_and_ends_no_run(
    cluster: ClusterDirectory, member: str, value: str
) -> None:
    file = chain.chain_file(cluster)
    line = file.read_text().splitlines()[-1]
    forged = line.replace(f'"{member}":{json.dumps(json.loads(line)[member])}', value)
    assert forged != line
    with file.open("a") as stream:
        stream.write(f"{forged}\n")
    assert verify(cluster).problems == ("line 4 of chain.jsonl is not a link",)
    store = RunStore(cluster)
    store.finish(store.create("apply", []), 0, {})
    assert chain.read(cluster)[0][-1].number == 4


def test_a_link_with_the_highest_number_ends_no_run(cluster: ClusterDirectory) -> None:
    last = chain.read(cluster)[0][-1].model_copy(update={"number": chain.MAX_LINKS})
    with chain.chain_file(cluster).open("a") as stream:
        stream.write(last.model_copy(update={"head": last.expected_head()}).model_dump_json() + "\n")
    name = runs(cluster)[2].name
    assert chain.append(cluster, name).number == chain.MAX_LINKS
    assert (
        f"link {chain.MAX_LINKS} ({name}) does not follow link {chain.MAX_LINKS}" in verify(cluster).problems
    )


def test_a_record_of_brackets_alone_is_a_changed_one(cluster: ClusterDirectory) -> None:
    (runs(cluster)[0] / "run.json").write_text("[" * 200_000)
    assert verify(cluster).problems == (f"run.json of run {runs(cluster)[0].name} was changed",)


def test_the_command_says_what_it_proves(
    cluster: ClusterDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> tuple[int, str]:
        code = main.run(["-C", str(cluster.root), "runs", "verify", *words])
        return code, capsys.readouterr().out

    code, text = run()
    assert code == 0
    assert "without --head this does not show" in text
    code, text = run("--head", verify(cluster).newest)
    assert code == 0
    assert "nothing up to link 3 was changed" in text
    (runs(cluster)[0] / "journal.jsonl").write_text("other\n")
    code, text = run("--json")
    assert code == 1
    assert json.loads(text)["problems"] == [f"journal.jsonl of run {runs(cluster)[0].name} was changed"]


def test_syslog_gets_one_line_with_the_head(cluster: ClusterDirectory) -> None:
    link = chain.read(cluster)[0][-1]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(5)
        assert send_head(f"udp://127.0.0.1:{listener.getsockname()[1]}", "lab", link) == ""
        line = listener.recv(4096).decode()
    assert f"cluster=lab run={link.run} link=3 head={link.head}" in line


@pytest.mark.parametrize("address", ["/nowhere/log", "http://127.0.0.1", "udp://"])
def test_a_syslog_that_cannot_be_reached_is_said(cluster: ClusterDirectory, address: str) -> None:
    assert address in send_head(address, "lab", chain.read(cluster)[0][-1])


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_socket_of_this_host_gets_the_line_and_is_not_waited_for_where_nobody_reads(
    cluster: ClusterDirectory, kind: socket.SocketKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cluster.root)  # a socket's path may have some 100 characters
    monkeypatch.setattr(syslog, "SEND_S", 0.1)
    link = chain.read(cluster)[0][-1]
    with socket.socket(socket.AF_UNIX, kind) as reader:
        reader.bind("log")
        if kind is socket.SOCK_STREAM:
            reader.listen(1)
        address = "/proc/self/cwd/log"
        assert send_head(address, "lab", link) == ""
        # It takes some more, until it is full.
        because = next(filter(None, (send_head(address, "lab", link) for _ in range(10_000))))
        assert because.startswith(f"{address}: ")
        taken = reader.accept()[0] if kind is socket.SOCK_STREAM else reader.dup()
        with taken:
            assert f"link=3 head={link.head}" in taken.recv(4096).decode()


def test_a_chain_of_lines_that_are_no_links_is_not_read_to_its_end(cluster: ClusterDirectory) -> None:
    path = chain.chain_file(cluster)
    path.write_bytes(path.read_bytes() + b"{}\n" * 100_000)
    links, problems, torn = chain.read(cluster)
    assert (len(links), len(problems), torn) == (3, chain.MAX_PROBLEMS + 1, False)
    assert problems[-1] == "the other lines of chain.jsonl from line 104 on were not read"


@pytest.mark.parametrize("name", ["journal.jsonl", "evidence.json"])
def test_a_file_without_end_is_named_and_not_hashed(cluster: ClusterDirectory, name: str) -> None:
    run = runs(cluster)[1]
    with (run / name).open("a") as stream:
        stream.truncate(1 << 41)
    (problem,) = verify(cluster).problems
    assert problem.startswith(f"run {run.name} cannot be read: it has {1 << 41} bytes in {name}")
    with pytest.raises(ClusterctlError, match=f"run {run.name} cannot be recorded") as refused:
        chain.append(cluster, run.name)
    assert refused.value.code == "runs.unreadable"


def test_a_chain_that_was_removed_is_not_taken_for_one_that_has_not_begun(
    cluster: ClusterDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    chain.chain_file(cluster).unlink()
    assert main.run(["-C", str(cluster.root), "runs", "verify"]) == 3
    assert "3 runs ended, and there is no chain: was chain.jsonl removed?" in capsys.readouterr().out
