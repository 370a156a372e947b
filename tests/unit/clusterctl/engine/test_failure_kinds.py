"""What ssh, sudo, apt, dpkg and Docker print when they fail, what our modules report, and its code."""

from __future__ import annotations

import json
import re
import time
from collections import Counter

import pytest

from clusterctl.cluster import ssh_failures
from clusterctl.engine.event_reading import parse
from clusterctl.engine.events import TaskResult, TaskStarted
from clusterctl.engine.failure import failure_of
from clusterctl.engine.failure_kinds import KINDS, OTHER, UNREACHABLE, kind_of

# (status, what was said, code)
SAID = [
    ("unreachable", "Failed to connect to the host via ssh: ops@10.0.0.1: Permission denied (publickey).",
     "host.login-refused"),
    ("unreachable", "Failed to connect to the host via ssh: No ED25519 host key is known for 10.0.0.1 "
     "and you have requested strict checking.\r\nHost key verification failed.", "host.key-unknown"),
    ("unreachable", "Failed to connect to the host via ssh: @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n"
     "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n"
     "IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\nHost key verification failed.",
     "host.key-changed"),
    ("unreachable", "Failed to connect to the host via ssh: ssh: connect to host 10.0.0.1 port 22: "
     "Connection refused", "host.unreachable"),
    ("unreachable", "ssh: connect to host 10.0.0.1 port 22: Connection timed out", "host.unreachable"),
    ("unreachable", "ssh: connect to host 10.0.0.1 port 22: No route to host", "host.unreachable"),
    ("unreachable", "something that nobody has met", "host.unreachable"),
    ("unreachable", "ssh: Could not resolve hostname gpu01: Name or service not known",
     "host.address-unknown"),
    ("failed", "Task failed: Missing sudo password", "host.sudo-password"),
    ("failed", "sudo: a terminal is required to read the password; either use the -S option\n"
     "sudo: a password is required", "host.sudo-password"),
    ("failed", "Task failed: Incorrect sudo password", "host.sudo-password"),
    ("failed", "ops is not in the sudoers file.", "host.sudo-refused"),
    ("failed", "Sorry, user ops is not allowed to execute '/bin/sh' as root on gpu01.", "host.sudo-refused"),
    ("failed", "E: You don't have enough free space in /var/cache/apt/archives/.", "host.disk-full"),
    ("failed", "[Errno 28] No space left on device: '/etc/docker/.daemon.json.x.new'", "host.disk-full"),
    ("failed", "[Errno 30] Read-only file system: '/etc/apt/keyrings/.x.new'", "host.read-only"),
    ("failed", "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (30: Read-only file system)",
     "host.read-only"),
    ("failed", "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (apt-get)",
     "packages.locked"),
    ("failed", "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.",
     "packages.interrupted"),
    ("failed", "E: Unable to locate package nvidia-open", "packages.not-offered"),
    ("failed", "E: Version '1.2.3' for 'x' was not found", "packages.not-offered"),
    ("failed", "E: Failed to fetch http://depot/x.deb  Could not connect to depot:80 (10.0.0.2). - connect "
     "(113: No route to host)", "packages.source-down"),
    ("failed", "x could not be installed: E: Unable to locate package x W: Failed to fetch "
     "http://depot/Packages  404  Not Found", "packages.source-down"),
    ("failed", "E: Failed to fetch http://depot/x.deb  Temporary failure resolving 'depot'", "host.dns"),
    ("failed", "W: GPG error: http://depot Release: The following signatures couldn't be verified because "
     "the public key is not available: NO_PUBKEY 1234", "packages.untrusted"),
    ("failed", "Timed out after 900 second(s).", "task.timed-out"),
    ("failed", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "host.docker-down"),
    ("failed", "Task failed.", "task.out-of-memory"),
    ("failed", "Task failed. Read on.", "task.failed"),
    ("failed", "something that nobody has met", "task.failed"),
]  # fmt: skip


# (code that a module reports, what it quotes, code)
REPORTED = [
    ("harbor.refused", "port 443 is held by nginx", "harbor.refused"),
    ("registry.login-refused", "no space left on device", "registry.login-refused"),
    ("harbor.install-failed", "Error response from daemon: bad tar", "harbor.install-failed"),
    ("harbor.install-failed", "write /data: no space left on device", "host.disk-full"),
    ("packages.key-refused", "it holds ABCD, and declared is NO_PUBKEY", "packages.key-refused"),
    ("packages.source-down", "[Errno 111] Connection refused", "packages.source-down"),
    ("packages.source-down", "Temporary failure in name resolution", "host.dns"),
    ("registry.unreachable", "Cannot connect to the Docker daemon", "registry.unreachable"),
    ("engine.leased", "No space left on device", "host.disk-full"),
    ("engine.leased", "something that nobody has met", "task.failed"),
    ("task.failed", "something that nobody has met", "task.failed"),
]


@pytest.mark.parametrize(("reported", "said", "code"), REPORTED)
def test_a_code_that_a_module_reports_comes_before_words_unless_it_is_general(
    reported: str, said: str, code: str
) -> None:
    assert failure_of(TaskResult(1.0, "gpu01", "t", "failed", said, reported), None).code == code


def test_a_loop_has_the_code_of_its_first_item_that_has_one() -> None:
    items = ({"label": "a", "msg": "x", "code": ["no"]}, {"label": "b", "msg": "y", "code": "packages.held"})
    failure = failure_of(TaskResult(1.0, "gpu01", "t", "failed", items=items), None)
    assert (failure.code, "apt-mark unhold" in failure.remedy) == ("packages.held", True)


@pytest.mark.parametrize(
    "msg", ["non-zero return code", "The command exited with a non-zero return code."], ids=["2.19", "2.21"]
)
def test_a_command_of_a_loop_is_told_with_its_last_words(msg: str) -> None:
    items = ({"label": "a", "msg": msg, "rc": 3, "stderr": ["one", "no such unit"]},)
    failure = failure_of(TaskResult(1.0, "gpu01", "t", "failed", items=items), None)
    assert failure.message == "a: the command ended with exit code 3: no such unit"


@pytest.mark.parametrize("code", ["engine.leased", "x" * 5000, ["harbor.refused"], {"a": 1}, 7, None])
def test_an_unknown_code_of_a_node_does_not_enter(code: object) -> None:
    line = {"event": "result", "at": 1.0, "host": "gpu01", "task_id": "t", "status": "failed", "code": code}
    event = parse(json.dumps(line))
    assert isinstance(event, TaskResult)
    assert event.code == ""


@pytest.mark.parametrize(("status", "said", "code"), SAID)
def test_a_message_is_known_by_its_code_and_comes_with_a_cure(status: str, said: str, code: str) -> None:
    failure = failure_of(
        TaskResult(1.0, "gpu01", "t", status, said),
        TaskStarted(1.0, "t", "Install", "a_role", "apt", "x.yml:3"),
    )
    assert failure.code == code
    assert (failure.host, failure.where) == ("gpu01", "x.yml:3")
    assert bool(failure.remedy) is (code != OTHER.code)
    assert "{" not in failure.remedy


def test_codes_are_distinct_and_each_has_been_met() -> None:
    codes = [kind.code for kind in KINDS]
    assert [code for code, count in Counter(codes).items() if count > 1] == []
    assert all(re.fullmatch(r"[a-z]+\.[a-z-]+", code) for code in codes)
    assert {code for _, _, code in SAID} - {OTHER.code} == {kind.code for kind in KINDS if kind.says} - {
        "host.no-python",
        "host.python-too-old",
    }
    assert kind_of("/bin/sh: 1: /usr/bin/python3: not found").code == "host.no-python"  # type: ignore[union-attr]
    said = "ansible-core requires a minimum of Python version 3.8. Current version: 3.6.15"
    assert kind_of(said).code == "host.python-too-old"  # type: ignore[union-attr]


def test_a_host_that_is_not_reached_is_named_in_what_to_do() -> None:
    assert "quarantine gpu01" in UNREACHABLE.remedy.format(host="gpu01")


def test_a_text_of_a_host_is_recognized_in_time_in_proportion_to_its_length() -> None:
    """A host may repeat what a pattern begins with; a report of preflight has a hundred such texts."""
    patterns = [kind.says for kind in KINDS if kind.says]
    patterns += [sign.pattern for sign in (*ssh_failures.OF_SSH, *ssh_failures.OF_SUDO)]
    begins = {
        found[0]
        for pattern in patterns
        for part in pattern.replace("\\", "").split("|")
        if (found := re.match(r"[A-Za-z0-9 '_:(-]{3,}", part))
    }
    assert len(begins) > 40
    for begin in begins:
        for more in ("", "' for '", "x"):
            text = (begin + more) * (8000 // len(begin + more))
            started = time.process_time()
            kind_of(text)
            ssh_failures.code_of(text)
            assert time.process_time() - started < 0.25, begin


@pytest.mark.parametrize(
    "told",
    ["WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!", "WARNING: REVOKED HOST KEY DETECTED!"],
)
def test_the_frame_around_a_changed_key_is_no_reason(told: str) -> None:
    frame = "@" * 59
    said = f"{frame}\r\n@    {told}     @\r\n{frame}\r\nIT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!"
    failure = failure_of(
        TaskResult(1.0, "gpu01", "t", "unreachable", f"Failed to connect to the host via ssh: {said}"), None
    )
    assert failure.headline == f"it cannot be reached: {told}"
