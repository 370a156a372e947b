"""Repeating calls: with the code that nodes get, and on the controller."""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import sys
import time
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate

from clustercheck.launch.transport import Completed
from clusterctl.content import content_root, shared_module
from clusterctl.interpreter import ansible_environment, python_environment
from clusterctl.rollout.drift import payload, replay
from clusterctl.rollout.drift.calls import Call

CANARY = "correct-horse-canary"
ENCODED = b64encode(CANARY.encode()).decode()


def replay_packed(place, calls):
    """What a node answers that has nothing of ours but the code that it is sent, kept at ``place``."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", payload.launcher(), str(place), payload.digest()],
        input=f"{replay._order(calls)}\n{payload.pack()}\n",
        capture_output=True, text=True, timeout=120, check=False,
        env={**python_environment(), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return replay.read_answers(Completed(done.returncode, done.stdout, done.stderr, 0.0), calls)


def replay_here(tmp_path, *calls, limit_s=None, monkeypatch=None):
    if monkeypatch:
        monkeypatch.setattr(replay, "CALL_LIMIT_S", limit_s)
    answers = replay_packed(tmp_path / "code", calls)
    assert not isinstance(answers, str), answers
    return [answers[c.identity] for c in calls]


def has_ended(pid, within_s):
    """Wait for the end of a process that is not our child; whether it came."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], within_s)[0])
    finally:
        os.close(process)


def module_call(module, *, check=True, **arguments):
    return Call("", f"role: {module}", "module", module, arguments, check=check)


def test_a_probe_leaves_no_temporary_directory_behind(tmp_path, monkeypatch):
    room = tmp_path / "tmp"
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    (answer,) = replay_here(tmp_path, module_call("uri", check=False, url="http://127.0.0.1:9/", timeout=5))
    assert answer["failed"]
    assert list(room.iterdir()) == []


def test_modules_that_ask_a_program_the_same_share_its_answer(tmp_path, monkeypatch):
    asked, docker = tmp_path / "asked", tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$1" >> {asked}\necho \'{{"ServerVersion": "28.2.1"}}\'\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    calls = [module_call("container_engine_facts", adopt=names) for names in ([], ["docker-ce"], ["podman"])]
    answers = replay_here(tmp_path, *calls)
    assert [answer["engine"]["version"] for answer in answers] == ["28.2.1"] * 3
    assert asked.read_text() == "info\n"
    assert [answer["engine"]["version"] for answer in replay_here(tmp_path, *calls)] == ["28.2.1"] * 3
    assert asked.read_text() == "info\n" * 2, "the next probe must ask again"


def test_modules_answer_in_check_mode_and_change_nothing(tmp_path):
    (tmp_path / "there").mkdir(mode=0o700)
    calls = [
        module_call("file", path=str(tmp_path / "there"), state="directory", mode="0700"),
        module_call("file", path=str(tmp_path / "gone"), state="directory"),
        module_call("lineinfile", path="/etc/hosts", line="192.0.2.1 nowhere"),
        module_call("stat", path=str(tmp_path / "gone")),
        module_call("command", check=False, _raw_params="sh -c 'exit 3'", _uses_shell=False),
        module_call("debian_packages", packages=["no-such-package-anywhere"]),
    ]
    there, gone, line, stat, command, packages = replay_here(tmp_path, *calls)
    assert [there["changed"], gone["changed"], line["changed"]] == [False, True, True]
    assert not (tmp_path / "gone").exists()
    assert "nowhere" not in Path("/etc/hosts").read_text()
    assert stat["stat"]["exists"] is False
    assert command["rc"] == 3
    assert packages.get("changed") or packages.get("failed")


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_secret_is_compared_by_its_digest_alone(tmp_path, end):
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    file = {
        "path": str(path),
        "secret_base64": {"sha256": hashlib.sha256(b64encode((CANARY + end).encode())).hexdigest()},
        "mode": "0600",
    }
    asked = module_call("service_files", files=[file], units=[])
    path.write_text(f"{CANARY}\n")
    assert replay_here(tmp_path, asked)[0]["changed"] is False
    path.write_text(f"{CANARY}!\n")
    assert replay_here(tmp_path, asked)[0]["changed"] is True
    path.unlink()
    assert replay_here(tmp_path, asked)[0]["changed"] is True


def test_a_rendered_file_is_compared_by_content_mode_and_owner(tmp_path):
    path = tmp_path / "conf"
    path.write_text("a = 1\n")
    path.chmod(0o644)
    checksum = hashlib.sha1(b"a = 1\n", usedforsecurity=False).hexdigest()
    left = {
        "dest": str(path),
        "checksum": checksum,
        "mode": "0644",
        "owner": path.owner(),
        "group": path.group(),
    }
    asked = Call("", "role: template", "file", "template", left)
    assert replay_here(tmp_path, asked) == [{"changed": False, "differs": []}]
    path.chmod(0o600)
    assert replay_here(tmp_path, asked) == [{"changed": True, "differs": ["mode"]}]
    path.chmod(0o644)
    path.write_text("a = 2\n")
    assert replay_here(tmp_path, asked) == [{"changed": True, "differs": ["checksum"]}]
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert replay_here(tmp_path, asked)[0]["changed"] is True


def test_a_call_that_hangs_is_ended_with_all_that_it_began_and_the_others_answer(tmp_path, monkeypatch):
    mark = tmp_path / "pid"
    hangs = module_call(
        "command", check=False, _raw_params=f"sh -c 'echo $$ > {mark}; sleep 600'", _uses_shell=False
    )
    answers = replay_here(tmp_path, hangs, module_call("stat", path="/"), limit_s=3, monkeypatch=monkeypatch)
    assert answers[0] == {"failed": True, "msg": "it did not answer in time"}
    assert answers[1]["stat"]["exists"] is True
    assert has_ended(int(mark.read_text()), within_s=10)


def test_the_code_on_a_node_must_be_its_users_alone(tmp_path):
    call = module_call("stat", path="/")
    replay_here(tmp_path, call)
    place = tmp_path / "code"
    assert place.stat().st_mode & 0o077 == 0
    (place / payload.digest()).chmod(0o777)
    answers = replay_packed(place, [call])
    assert isinstance(answers, str)
    assert "writable by others" in answers


def test_nothing_is_removed_or_put_where_a_link_leads(tmp_path):
    home, place = tmp_path / "home", tmp_path / "code"
    (home / "old").mkdir(parents=True)
    os.utime(home / "old", (1, 1))
    place.symlink_to(home)
    answers = replay_packed(place, [module_call("stat", path="/")])
    assert answers == f"the drift probe exited with 1: {place} is a link, or writable by others"
    assert [path.name for path in home.iterdir()] == ["old"]


def test_code_of_another_version_stays_while_somebody_may_use_it(tmp_path, monkeypatch):
    """Two controllers of different versions would remove each other's code at every probe."""
    call = module_call("stat", path="/")
    replay_here(tmp_path, call)
    first = payload.digest()
    room = tmp_path / "code"
    monkeypatch.setattr(payload, "digest", lambda: "1" * 32)
    replay_here(tmp_path, call)
    assert {path.name for path in room.iterdir()} == {first, "1" * 32}
    long_ago = time.time() - 60 * 86400
    os.utime(room / first, (long_ago, long_ago))
    monkeypatch.setattr(payload, "digest", lambda: "2" * 32)
    replay_here(tmp_path, call)
    assert {path.name for path in room.iterdir()} == {"1" * 32, "2" * 32}


def test_keys_that_ansible_vault_encrypted_are_inspected_like_others(tmp_path, monkeypatch):
    (tmp_path / "word").write_text("golden\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "word"))
    vault = shared_module("vaulted").Vault(ansible_environment(content_root()))
    pair = cluster_certificate.make_authority("lab", datetime.now(UTC))
    cluster_certificate.save(pair, tmp_path / "ca/ca.crt", tmp_path / "ca/ca.key", vault)
    vault.close()
    call = module_call("cluster_certificate", directory=str(tmp_path / "ca"))
    (answer,) = replay.replay_on_controller([call]).values()
    assert (answer["changed"], answer["because"]) == (False, [])
    (tmp_path / "ca/ca.key").write_bytes(pair.key_pem())
    (answer,) = replay.replay_on_controller([call]).values()
    assert answer["because"] == ["ca.key was not encrypted"], "so that the next apply encrypts it"
