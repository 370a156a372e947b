"""Scanning against real SSH servers on the loopback interface: trust first, then everything that fails."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko
import pexpect
import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from clusterctl.cluster import known_hosts
from clusterctl.cluster.access import Password, Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, from_listing
from clusterctl.cluster.known_hosts import HostKey
from clusterctl.cluster.scan import Reached, look_at_keys, scan
from clusterctl.main import cli

ANSWER = "hello from .bashrc\n@@clusterctl\nos=Test OS 1\nkernel=6.1.0\npython=3.11.2\nsudo=root\n@@end\n"
LIMIT_S = 5.0


@dataclass
class Served:
    """What a server saw, and how to reach it."""

    port: int
    logins: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    inputs: list[bytes] = field(default_factory=list)
    now: int = 0
    most_at_once: int = 0


class Session(paramiko.ServerInterface):
    def __init__(
        self, served: Served, users: Mapping[str, paramiko.PKey], passwords: Mapping[str, str]
    ) -> None:
        self.served, self.users, self.passwords = served, users, passwords
        self.command = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey,password" if self.passwords else "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.served.logins.append(f"{username}:publickey")
        wanted = self.users.get(username)
        good = wanted is not None and wanted.asbytes() == key.asbytes()
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        self.served.logins.append(f"{username}:password")
        good = self.passwords.get(username) == password
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.served.commands.append(command.decode())
        self.command.set()
        return True


@contextlib.contextmanager
def listening(talk: Callable[[socket.socket, Served], None], stop: threading.Event) -> Iterator[Served]:
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.05)
    served = Served(server.getsockname()[1])

    def attend(client: socket.socket) -> None:
        served.now += 1
        served.most_at_once = max(served.most_at_once, served.now)
        try:
            talk(client, served)
        finally:
            served.now -= 1
            client.close()

    def accept() -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = server.accept()
                threading.Thread(target=attend, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        stop.set()
        thread.join(2)
        server.close()


@contextlib.contextmanager
def ssh_server(
    keys: Sequence[paramiko.PKey],
    users: Mapping[str, paramiko.PKey] | None = None,
    passwords: Mapping[str, str] | None = None,
    answer: str | None = ANSWER,
) -> Iterator[Served]:
    """Serve SSH until the block ends. ``answer`` is what any command prints; None: it never ends."""
    stop = threading.Event()

    def talk(client: socket.socket, served: Served) -> None:
        transport = paramiko.Transport(client)
        for key in keys:
            transport.add_server_key(key)
        session = Session(served, users or {}, passwords or {})
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(server=session)
        while transport.is_active() and not stop.is_set():
            channel = transport.accept(0.02)
            if channel is None:
                continue
            session.command.wait(2)
            if answer is None:
                stop.wait(10)
            channel.settimeout(2)
            heard = b""
            with contextlib.suppress(TimeoutError):
                while chunk := channel.recv(1024):
                    heard += chunk
            served.inputs.append(heard)
            with contextlib.suppress(OSError, EOFError):
                channel.sendall((answer or "").encode())
                channel.send_exit_status(0)
                channel.close()
        transport.close()

    with listening(talk, stop) as served:
        yield served


@contextlib.contextmanager
def raw_server(greeting: bytes, *, hang_up: bool) -> Iterator[Served]:
    """A port that says ``greeting``, and then nothing, or hangs up."""
    stop = threading.Event()

    def talk(client: socket.socket, served: Served) -> None:
        if greeting:
            client.sendall(greeting)
        if not hang_up:
            stop.wait(20)

    with listening(talk, stop) as served:
        yield served


@dataclass(frozen=True)
class Keys:
    host: paramiko.PKey
    ecdsa: paramiko.PKey
    other: paramiko.PKey
    user: paramiko.PKey
    user_file: Path
    locked_file: Path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    directory = tmp_path_factory.mktemp("keys")

    def make(name: str, private: Any, passphrase: bytes | None = None) -> Path:
        lock: Any = serialization.NoEncryption()
        if passphrase:
            lock = serialization.BestAvailableEncryption(passphrase)
        path = directory / name
        path.write_bytes(
            private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, lock)
        )
        path.chmod(0o600)
        return path

    def ed(name: str) -> Path:
        return make(name, ed25519.Ed25519PrivateKey.generate())

    return Keys(
        host=paramiko.PKey.from_path(ed("host")),
        other=paramiko.PKey.from_path(ed("other")),
        ecdsa=paramiko.PKey.from_path(make("ecdsa", ec.generate_private_key(ec.SECP256R1()))),
        user=paramiko.PKey.from_path(user := ed("id_user")),
        user_file=user,
        locked_file=make("id_locked", ed25519.Ed25519PrivateKey.generate(), b"secret"),
    )


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    return ClusterDirectory(tmp_path)


def hosts(directory: ClusterDirectory, keys: Keys, *ports: int, **variables: Any) -> tuple[Host, ...]:
    """One host a port, gpu01 first."""
    common = {
        "ansible_host": "127.0.0.1",
        "ansible_user": "ops",
        "ansible_ssh_private_key_file": str(keys.user_file),
        # The machine's own configuration has no say in tests.
        "ansible_ssh_common_args": "-F /dev/null",
        **variables,
    }
    named = {f"gpu{n:02}": {**common, "ansible_port": port} for n, port in enumerate(ports, 1)}
    groups = {"all": {"children": ["gpu_nodes"]}, "gpu_nodes": {"hosts": list(named)}}
    return from_listing(directory, {"_meta": {"hostvars": named}, **groups}).hosts


def pin(directory: ClusterDirectory, port: int, *pinned: paramiko.PKey) -> None:
    known_hosts.pin(directory, f"[127.0.0.1]:{port}", [as_host_key(key) for key in pinned], "gpu01")


def as_host_key(key: paramiko.PKey) -> HostKey:
    return HostKey(key.get_name(), key.get_base64())


def one(directory: ClusterDirectory, keys: Keys, port: int, limit_s: float = LIMIT_S, **more: Any) -> Reached:
    passwords = more.pop("passwords", None)
    (reached,) = scan(directory, hosts(directory, keys, port, **more), passwords, limit_s=limit_s)
    return reached


def test_a_pinned_host_is_asked_what_it_is(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.host)
        reached = one(directory, keys, served.port)
    assert (reached.state, reached.because) == ("ok", "")
    assert (reached.os, reached.kernel) == ("Test OS 1", "6.1.0")
    assert (reached.python, reached.sudo) == ("3.11.2", "root")
    assert reached.login_s is not None
    assert reached.shell_s is not None
    assert 0 <= reached.shell_s <= reached.login_s < LIMIT_S
    assert served.inputs == [b""]


def test_nothing_but_the_keys_is_asked_of_a_host_that_is_not_pinned(
    directory: ClusterDirectory, keys: Keys
) -> None:
    with ssh_server([keys.ecdsa, keys.host], {"ops": keys.user}, {"ops": "pw"}) as served:
        reached = one(directory, keys, served.port, passwords=Passwords(Password("pw"), Password("pw")))
    assert reached.state == "unpinned"
    assert [key.type for key in reached.keys] == ["ssh-ed25519", "ecdsa-sha2-nistp256"]
    assert reached.keys[0].fingerprint == keys.host.fingerprint
    assert (served.logins, served.commands) == ([], [])


def test_a_changed_key_is_refused_with_old_and_new_before_any_login(
    directory: ClusterDirectory, keys: Keys
) -> None:
    with ssh_server([keys.other], {"ops": keys.user}, {"ops": "pw"}) as served:
        pin(directory, served.port, keys.host)
        reached = one(directory, keys, served.port, passwords=Passwords(Password("pw")))
    assert reached.state == "key-changed"
    assert keys.host.fingerprint in reached.because
    assert keys.other.fingerprint in reached.because
    assert "hosts replace gpu01" in reached.remedy
    assert served.logins == []


def test_the_pinned_kind_of_key_is_compared_though_the_host_prefers_another(
    directory: ClusterDirectory, keys: Keys
) -> None:
    with ssh_server([keys.host, keys.ecdsa], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.ecdsa)
        assert one(directory, keys, served.port).state == "ok"


@pytest.mark.parametrize("line", ["@revoked {name} {key}", "@revoked * {key}"])
def test_a_revoked_key_is_refused_though_it_is_pinned(
    directory: ClusterDirectory, keys: Keys, line: str
) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.host)
        key = f"{keys.host.get_name()} {keys.host.get_base64()}"
        with directory.known_hosts.open("a") as stream:
            stream.write(line.format(name=f"[127.0.0.1]:{served.port}", key=key) + "\n")
        reached = one(directory, keys, served.port)
    assert reached.state == "key-revoked"
    assert served.logins == []


def test_lines_that_paramiko_does_not_know_harm_nothing(directory: ClusterDirectory, keys: Keys) -> None:
    directory.ensure_state()
    directory.known_hosts.write_text(
        f"@cert-authority *.elsewhere ssh-ed25519 {keys.other.get_base64()}\n@marker-to-come x y z\n"
        "broken\n\n# words\n|1|bm8=|bm8= ssh-ed25519 AAAA\nhost sk-ssh-ed25519@openssh.com AAAA\n"
        "host x not-base64!\n"
    )
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.host)
        assert one(directory, keys, served.port).state == "ok"
    assert "@cert-authority *.elsewhere" in directory.known_hosts.read_text()


def test_where_an_authority_signs_host_keys_openssh_judges(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        directory.ensure_state()
        directory.known_hosts.write_text(
            f"@cert-authority [127.0.0.1]:{served.port} ssh-ed25519 {keys.other.get_base64()}\n"
        )
        refused = one(directory, keys, served.port)
        assert refused.state == "openssh"
        assert "Host key verification failed" in refused.because
        assert served.logins == []
        with directory.known_hosts.open("a") as stream:
            stream.write(f"[127.0.0.1]:{served.port} {keys.host.get_name()} {keys.host.get_base64()}\n")
        assert one(directory, keys, served.port).state == "ok"


def test_a_refused_login_says_what_was_tried(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.other}) as served:
        pin(directory, served.port, keys.host)
        reached = one(directory, keys, served.port)
    assert reached.state == "auth"
    assert "it refuses ops (tried: id_user" in reached.because
    assert "ssh-copy-id ops@127.0.0.1" in reached.remedy


def test_a_key_with_a_passphrase_is_said_to_be_one(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.host)
        reached = one(directory, keys, served.port, ansible_ssh_private_key_file=str(keys.locked_file))
    assert reached.state == "auth"
    assert "id_locked needs its passphrase: ssh-add it" in reached.because


def test_passwords_for_ssh_and_sudo_go_the_safe_way(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {}, {"ops": "ssh-word"}) as served:
        pin(directory, served.port, keys.host)
        given = Passwords(Password("ssh-word"), Password("sudo-word"))
        assert one(directory, keys, served.port, passwords=given).state == "ok"
        wrong = one(directory, keys, served.port, passwords=Passwords(Password("no")))
    assert wrong.state == "auth"
    assert served.inputs == [b"sudo-word\n"]
    assert not any("word" in command.replace("password", "") for command in served.commands)


@pytest.mark.parametrize(
    ("greeting", "hang_up", "state"),
    [(b"", False, "silent"), (b"SSH-2.0-Tired\r\n", False, "silent"), (b"", True, "closed"),
     (b"SSH-2.0-Full\r\n", True, "closed"), (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 200, True, "closed")],
)  # fmt: skip
def test_servers_that_are_no_good_are_left_in_time(
    directory: ClusterDirectory, keys: Keys, greeting: bytes, hang_up: bool, state: str
) -> None:
    with raw_server(greeting, hang_up=hang_up) as served:
        pin(directory, served.port, keys.host)
        begun = time.monotonic()
        reached = one(directory, keys, served.port, limit_s=1.0)
        assert time.monotonic() - begun < 25
    assert reached.state == state, reached


def test_a_shell_that_never_ends_is_left_in_time(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}, answer=None) as served:
        pin(directory, served.port, keys.host)
        begun = time.monotonic()
        reached = one(directory, keys, served.port, limit_s=1.5)
        assert time.monotonic() - begun < 25
    assert reached.state == "timeout"
    assert "its shell does not end within 2 s" in reached.because


def test_an_account_without_a_shell_is_told_apart(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}, answer="This account is disabled.\n") as served:
        pin(directory, served.port, keys.host)
        reached = one(directory, keys, served.port)
    assert reached.state == "no-shell"
    assert "This account is disabled." in reached.because


def test_names_and_ports_where_nobody_is(directory: ClusterDirectory, keys: Keys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert one(directory, keys, port).state == "refused"
    nowhere = one(directory, keys, port, ansible_host="nobody.invalid", limit_s=20.0)
    assert nowhere.state == "dns"
    assert "nobody.invalid cannot be resolved" in nowhere.because


def test_wrong_words_for_ssh_blame_that_host_alone(directory: ClusterDirectory, keys: Keys) -> None:
    reached = one(directory, keys, 22, ansible_ssh_common_args="-F /dev/null -o NoSuchOption=1")
    assert reached.state == "config"
    assert "gpu01" in reached.because
    assert one(directory, keys, 22, ansible_ssh_common_args="'unclosed").state == "config"


def test_the_operators_agent_is_asked(
    directory: ClusterDirectory, keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    socket_path = str(tmp_path_factory.mktemp("a") / "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket_path], stdout=subprocess.DEVNULL) as agent:
        try:
            monkeypatch.setenv("SSH_AUTH_SOCK", socket_path)
            end = time.monotonic() + 10
            while not Path(socket_path).exists() and time.monotonic() < end:
                time.sleep(0.01)
            subprocess.run(["ssh-add", "-q", str(keys.user_file)], check=True, capture_output=True)
            with ssh_server([keys.host], {"ops": keys.user}) as served:
                pin(directory, served.port, keys.host)
                only_agent = {"ansible_ssh_private_key_file": str(keys.locked_file)}
                assert one(directory, keys, served.port, **only_agent).state == "ok"
                own_keys = "-F /dev/null -o IdentitiesOnly=yes"
                refused = one(directory, keys, served.port, ansible_ssh_common_args=own_keys, **only_agent)
                assert refused.state == "auth"
        finally:
            agent.terminate()


def test_a_jump_host_sees_eight_logins_at_once_and_no_more(
    directory: ClusterDirectory, keys: Keys, tmp_path: Path
) -> None:
    relay = tmp_path / "relay"
    relay.write_text(
        "import os, socket, sys, threading\n"
        "line = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): line.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := line.recv(65536): os.write(1, data)\n"
    )
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.host)
        through = f"-F /dev/null -o 'ProxyCommand=/usr/bin/env python3 -S {relay} %p'"
        chosen = hosts(directory, keys, *[served.port] * 12, ansible_ssh_common_args=through)
        reached = scan(directory, chosen, limit_s=20.0)
    assert [host.state for host in reached] == ["ok"] * 12, reached[0]
    assert served.most_at_once <= 8
    assert all(host.jump.startswith("/usr/bin/env python3") for host in reached)


def test_a_way_that_breaks_is_blamed_on_the_jump_host(directory: ClusterDirectory, keys: Keys) -> None:
    broken = "-F /dev/null -o 'ProxyCommand=echo the bastion is closed >&2; exit 1'"
    reached = one(directory, keys, 22, ansible_ssh_common_args=broken)
    assert reached.state == "jump"
    assert reached.because.endswith("the bastion is closed")


def test_looking_at_keys_compares_them_with_the_pinned(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        (host,) = hosts(directory, keys, served.port)
        states = [look_at_keys(directory, host).state]
        for key in (keys.other, keys.host):
            pin(directory, served.port, key)
            states.append(look_at_keys(directory, host).state)
    assert states == ["unpinned", "key-changed", "ok"]
    assert served.logins == []


def test_one_changed_key_among_two_is_a_changed_host(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.other, keys.ecdsa], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.ecdsa, keys.host)
        (host,) = hosts(directory, keys, served.port)
        assert look_at_keys(directory, host).state == "key-changed"
        assert one(directory, keys, served.port).state == "key-changed"
        pin(directory, served.port, keys.ecdsa)
        assert look_at_keys(directory, host).state == "ok"
    assert served.logins == []


# The commands, whole.


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


def test_forget_takes_the_key_too(
    directory: ClusterDirectory, keys: Keys, declared: Callable[[int], None]
) -> None:
    declared(2222)
    pin(directory, 2222, keys.host)
    own = directory.root / "host_vars/gpu01.yml"
    own.parent.mkdir()
    own.write_text("hardware_gpu_count: 4\n")
    assert call(directory, "quarantine", "gpu01", "--reason", "gone").exception is None
    assert call(directory, "add", "gpu02", "10.0.0.2").exception is None
    assert call(directory, "forget", "gpu01", "--yes").return_value == 0
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
