"""Declared mounts: touched in a process of its own, so that one that hangs hangs nobody else."""

from __future__ import annotations

import json
import os
import pwd
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.mounts import NONE_DECLARED
from clustercheck.checks.support import seeding
from clustercheck.model import Result, Verdict
from clustercheck.probe import mounts as probe
from clustercheck.running.session import _probe_options
from clustercheck.samples import sample
from clustercheck.spec import Mount

ME = pwd.getpwuid(os.getuid()).pw_name
# As /proc/self/mountinfo has it: an automounter's place with what it mounted there, and a name with a space.
MOUNTINFO = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /data rw shared:9 - autofs /etc/auto.direct rw,fd=6
41 40 0:41 / /data rw,relatime shared:10 master:3 - nfs4 nas:/data rw,vers=4.2,hard
42 22 8:2 /sub /my\040disk ro - xfs /dev/my\134disk rw
half a line
"""


def touch(path: Path, user: str = "", limit_s: float = 10.0) -> dict[str, Any]:
    (record,) = probe.mounts([{"path": str(path), "user": user}], limit_s)
    found: dict[str, Any] = record["touched"]
    return found


def test_what_is_mounted_is_read_and_the_last_mount_hides_the_others() -> None:
    assert probe.mounted(MOUNTINFO) == {
        "/": {"type": "ext4", "source": "/dev/sda1"},
        "/data": {"type": "nfs4", "source": "nas:/data"},
        "/my disk": {"type": "xfs", "source": "/dev/my\\disk"},
    }


def test_a_file_is_written_as_the_user_and_nothing_is_left(tmp_path: Path) -> None:
    assert touch(tmp_path, ME)["rc"] == 0
    assert touch(tmp_path)["rc"] == 0
    assert list(tmp_path.iterdir()) == []
    (root,) = probe.mounts([{"path": "/", "user": ""}], 10.0)
    assert root["mounted"]["type"]


def test_why_it_could_not_be_written_is_said(tmp_path: Path) -> None:
    assert touch(tmp_path / "nothing")["stderr"] == "No such file or directory\n"
    assert touch(tmp_path, "nobody-of-that-name")["stderr"] == "there is no user nobody-of-that-name\n"
    assert all(touch(tmp_path, user)["rc"] != 0 for user in ("nobody-of-that-name",))


def test_root_becomes_the_user_with_his_groups_while_it_still_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = "import os\nos.getuid = lambda: -1\n" + "".join(
        f"os.{call} = lambda *words: print('{call}', *words)\n" for call in ("initgroups", "setgid", "setuid")
    )
    monkeypatch.setattr(probe, "TOUCH", played + probe.TOUCH)
    me = pwd.getpwuid(os.getuid())
    assert touch(tmp_path, ME)["stdout"].splitlines() == [
        f"initgroups {ME} {me.pw_gid}", f"setgid {me.pw_gid}", f"setuid {me.pw_uid}",
    ]  # fmt: skip


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TOUCH", "import signal\nsignal.pause()\n")
    found = touch(tmp_path, limit_s=0.5)
    assert (found["timed_out"], found["rc"]) == (True, None)


def test_one_that_is_slow_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def played(argv: list[str], _: float) -> dict[str, Any]:
        if argv[-2] == "/good":
            ended.set()
        return {"good_ended_before": ended.wait(20)}

    monkeypatch.setattr(probe, "command", played)
    wanted = [{"path": path, "user": ""} for path in ("/slow", "/good", "/also-slow")]
    found = [record["touched"] for record in probe.mounts(wanted, 30.0)]
    assert found == [{"good_ended_before": True}] * 3


def judged(change: Any = lambda raw: None, *declared: Mount) -> Result:
    evidence = seeding.edit("gpu01", change)(sample.healthy(1))
    if declared:
        evidence = replace(evidence, spec=replace(evidence.spec, mounts=declared))
    return evaluate(BY_ID["mounts"], evidence)[0]


def test_nothing_declared_is_excluded_and_what_was_not_looked_at_is_open() -> None:
    bare = sample.healthy(1)
    bare = replace(bare, spec=replace(bare.spec, mounts=()))
    (result,) = evaluate(BY_ID["mounts"], bare)
    assert (result.verdict, result.because) == (Verdict.EXCLUDED, NONE_DECLARED)
    assert judged(lambda raw: None, Mount("/elsewhere")).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("declared", "kind", "verdict"),
    [("nfs", "nfs4", Verdict.PASS), ("nfs4", "nfs", Verdict.FAIL), ("", "tmpfs", Verdict.PASS),
     ("lustre", "nfs4", Verdict.FAIL)],
)  # fmt: skip
def test_the_type_is_the_declared_one(declared: str, kind: str, verdict: Verdict) -> None:
    def change(raw: seeding.Raw) -> None:
        raw["mounts"][0]["mounted"]["type"] = kind

    assert judged(change, Mount("/data", declared)).verdict is verdict


def test_every_problem_is_told_and_a_server_that_is_silent_has_a_remedy_of_its_own() -> None:
    def change(raw: seeding.Raw) -> None:
        raw["mounts"][0]["touched"].update(timed_out=True, rc=None)
        raw["mounts"][1]["mounted"] = None

    result = judged(change)
    assert result.because == "/data does not answer; /scratch is not mounted"
    assert (result.measured, result.expected) == (0, 2)
    assert "umount -f -l" in result.remedy


def test_the_probe_is_asked_for_what_is_declared() -> None:
    options = _probe_options(sample.spec(1), "gpu01", ())
    assert json.loads(json.dumps(options))["mounts"] == [
        {"path": "/data", "type": "nfs", "user": "trainer"},
        {"path": "/scratch", "type": "xfs", "user": ""},
    ]
