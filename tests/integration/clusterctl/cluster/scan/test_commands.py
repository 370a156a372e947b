"""`clusterctl hosts scan|replace|forget|quarantine` as a person or a script calls them."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from click.testing import CliRunner, Result

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.main import cli

from .ssh_servers import Keys, pin, ssh_server


def call(directory: ClusterDirectory, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-C", str(directory.root), "hosts", *arguments], standalone_mode=False)


def records(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


@pytest.fixture
def declared(directory: ClusterDirectory, keys: Keys) -> Callable[[int], None]:
    def declare(port: int) -> None:
        directory.hosts_file.write_text(
            f"gpu_nodes:\n  hosts:\n    gpu01:\n      ansible_host: 127.0.0.1\n      ansible_port: {port}\n"
            f"  vars:\n    ansible_user: ops\n    ansible_ssh_private_key_file: {keys.user_file}\n"
            '    ansible_ssh_common_args: "-F /dev/null"\n'
        )

    return declare


def test_scan_pins_after_the_word_of_the_operator_and_then_logs_in(
    directory: ClusterDirectory, keys: Keys, declared: Callable[[int], None]
) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        declared(served.port)
        unasked = call(directory, "scan", "--json")
        assert unasked.return_value == 1
        assert [r["state"] for r in records(unasked)[:-1]] == ["unpinned"]
        assert keys.host.fingerprint in unasked.stderr
        assert not directory.known_hosts.exists()

        done = call(directory, "scan", "--yes", "--json")
        assert done.return_value == 0
        host, summary = records(done)
        assert (host["state"], host["os"]) == ("ok", "Test OS 1")
        assert summary == {"type": "summary", "hosts": 1, "answering": 1, "exit": 0}
        assert f"[127.0.0.1]:{served.port} ssh-ed25519 " in directory.known_hosts.read_text()

        again = call(directory, "scan", "--json")
        assert again.return_value == 0
        assert keys.host.fingerprint not in again.stderr


def test_an_expected_fingerprint_needs_no_question_and_a_wrong_one_is_refused(
    directory: ClusterDirectory, keys: Keys, declared: Callable[[int], None]
) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        declared(served.port)
        wrong = call(directory, "scan", "--json", "--yes", "--expect", f"gpu01={keys.other.fingerprint}")
        assert (wrong.return_value, records(wrong)[0]["state"]) == (1, "key-unexpected")
        assert served.logins == []
        right = call(directory, "scan", "--json", "--expect", f"gpu01={keys.host.fingerprint}")
        assert (right.return_value, records(right)[0]["state"]) == (0, "ok")


def test_a_person_is_asked_for_the_password_and_shown_the_fingerprint(
    directory: ClusterDirectory, keys: Keys, declared: Callable[[int], None]
) -> None:
    with ssh_server([keys.host], {}, {"ops": "pw-typed"}) as served:
        declared(served.port)
        program = [str(Path(sys.executable).with_name("clusterctl")), "-C", str(directory.root)]
        asked = pexpect.spawn(
            program[0], [*program[1:], "hosts", "scan", "--ask-pass"], timeout=20, encoding="utf-8"
        )
        asked.expect("SSH password: ")
        asked.sendline("pw-typed")
        asked.expect_exact(keys.host.fingerprint)
        asked.expect(r"Trust and pin these keys of 1 host\? \[y/N\]: ")
        asked.sendline("y")
        asked.expect(pexpect.EOF)
        asked.close()
        said = str(asked.before)
    assert asked.exitstatus == 0, said
    assert "pw-typed" not in said
    assert "Test OS 1" in said


def test_replace_takes_the_new_key_and_shows_both(
    directory: ClusterDirectory, keys: Keys, declared: Callable[[int], None]
) -> None:
    with ssh_server([keys.other], {"ops": keys.user}) as served:
        declared(served.port)
        pin(directory, served.port, keys.host)
        refused = call(directory, "replace", "gpu01", "--json")
        assert (refused.return_value, records(refused)[0]["state"]) == (1, "key-changed")
        done = call(directory, "replace", "gpu01", "--yes", "--json")
        assert (done.return_value, records(done)[0]["state"]) == (0, "ok")
        for fingerprint in (keys.host.fingerprint, keys.other.fingerprint):
            assert fingerprint in done.stderr
        assert keys.host.get_base64() not in directory.known_hosts.read_text()
        unchanged = call(directory, "replace", "gpu01")
        assert unchanged.return_value == 0
        assert "Nothing to replace" in unchanged.stderr


@pytest.mark.parametrize("name", ["remove", "forget"])
def test_remove_takes_the_key_too(
    name: str, directory: ClusterDirectory, keys: Keys, declared: Callable[[int], None]
) -> None:
    declared(2222)
    pin(directory, 2222, keys.host)
    own = directory.root / "host_vars/gpu01.yml"
    own.parent.mkdir()
    own.write_text("hardware_gpu_count: 4\n")
    assert call(directory, "quarantine", "gpu01", "--reason", "gone").exception is None
    assert call(directory, "add", "gpu02", "10.0.0.2").exception is None
    assert call(directory, name, "gpu01", "--yes").return_value == 0
    assert directory.known_hosts.read_text() == ""
    assert "gpu01" not in directory.hosts_file.read_text()
    assert own.with_name("gpu01.yml.forgotten").is_file()
    assert [r["host"] for r in records(call(directory, "list", "--json"))] == ["gpu02"]


def test_a_quarantined_host_is_shown_and_does_not_spoil_the_scan(
    directory: ClusterDirectory, keys: Keys, declared: Callable[[int], None]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    declared(port)
    assert call(directory, "scan").return_value == 1
    assert call(directory, "quarantine", "gpu01", "--reason", "dead fan").exception is None
    done = call(directory, "scan", "--json")
    assert done.return_value == 0
    assert records(done)[0]["quarantined"] == "dead fan"
    assert records(call(directory, "list", "--json"))[0]["quarantined"]["reason"] == "dead fan"
    assert call(directory, "release", "gpu01").exception is None
    assert call(directory, "scan").return_value == 1
