"""Scanning: what a host that is trusted says of itself, and everything that fails on the way there."""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import paramiko
import pytest
from pydantic import SecretStr
from tests.support.hostile import acting_characters

from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.hosts_table import remarks
from clusterctl.cluster.scan import NOT_TRIED, scan

from .ssh_servers import (
    ANSWER,
    LIMIT_S,
    Keys,
    Served,
    Session,
    hosts,
    listening,
    one,
    pin,
    raw_server,
    ssh_server,
)

WANTS = ANSWER.replace("root", "wants password")


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
    passwords = {"ops": "ssh-word"}
    with ssh_server([keys.host], {}, passwords, WANTS, sudo=lambda: "password accepted") as served:
        pin(directory, served.port, keys.host)
        given = Passwords(SecretStr("ssh-word"), SecretStr("sudo-word"))
        good = one(directory, keys, served.port, passwords=given)
        assert (good.state, good.sudo) == ("ok", "password accepted")
        wrong = one(directory, keys, served.port, passwords=Passwords(SecretStr("no")))
    assert wrong.state == "auth"
    assert served.inputs == [b"", b"sudo-word\n"]
    assert not any("word" in command.replace("password", "") for command in served.commands)


def test_a_host_whose_sudo_wants_no_password_is_given_none(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.host)
        given = Passwords(become=SecretStr("sudo-word"))
        assert one(directory, keys, served.port, passwords=given).sudo == "root"
    assert served.inputs == [b""]


@pytest.mark.parametrize(
    ("verdict", "given_to"), [("password refused", 2), ("password accepted", 8)], ids=["wrong", "right"]
)
def test_a_wrong_password_for_sudo_is_tried_on_two_hosts_and_on_one_at_a_time(
    directory: ClusterDirectory, keys: Keys, verdict: str, given_to: int
) -> None:
    """All hosts may share the account, which a few wrong attempts lock."""
    trials, under_way, met = list[int](), list[int](), threading.Event()

    def try_password() -> str:
        trials.append(1)
        under_way.append(1)
        if len(under_way) > 1 and len(trials) <= 2:
            met.set()
        met.wait(0.5)  # for another host that is asked before this one has answered
        under_way.pop()
        return verdict

    with contextlib.ExitStack() as stack:
        users = {"ops": keys.user}
        ports = [
            stack.enter_context(ssh_server([keys.host], users, answer=WANTS, sudo=try_password)).port
            for _ in range(8)
        ]
        for port in ports:
            pin(directory, port, keys.host)
        given = Passwords(become=SecretStr("sudo-word"))
        reached = scan(directory, hosts(directory, keys, *ports), given, limit_s=LIMIT_S)
    said = Counter(each.sudo for each in reached)
    assert {each.state for each in reached} == {"ok"}
    assert said == Counter({verdict: given_to} | ({NOT_TRIED: 8 - given_to} if given_to < 8 else {}))
    assert (len(trials), met.is_set()) == (given_to, False)
    untried = [line for line in remarks(reached) if "was not tried: sudo refused it on other hosts" in line]
    assert len(untried) == 8 - given_to


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
        reached = one(directory, keys, served.port, limit_s=1.0)
    assert reached.state == state, reached


def test_a_shell_that_never_ends_is_left_in_time(directory: ClusterDirectory, keys: Keys) -> None:
    with ssh_server([keys.host], {"ops": keys.user}, answer=None) as served:
        pin(directory, served.port, keys.host)
        reached = one(directory, keys, served.port, limit_s=1.5)
    assert reached.state == "timeout"
    assert "its shell does not end within 2 s" in reached.because


# What a slow server takes: for one answer, and for each of some keys, of which none exceeds the limit alone.
SLOW_S, EACH_KEY_S, KEYS = 30.0, 4.0, 5


class SlowSession(Session):
    """Is slow at one stage: for each key, for the first, or for a request."""

    def __init__(self, served: Served, keys: Keys, stage: str) -> None:
        super().__init__(served, {"ops": keys.user if stage == "exec" else keys.other}, {})
        self.stage = stage

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        time.sleep({"auth": EACH_KEY_S, "first key": SLOW_S}.get(self.stage, 0.0))
        return super().check_auth_publickey(username, key)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        time.sleep(SLOW_S)
        return False


def drip(client: socket.socket, stage: str) -> None:
    """A byte now and then: of a banner that does not end, or of a packet of the key exchange."""
    client.sendall(b"" if stage == "banner" else b"SSH-2.0-Slow\r\n\0\0\x0f\x04")
    with contextlib.suppress(OSError):
        for _ in range(300):
            client.sendall(b"x")
            time.sleep(SLOW_S / 300)


@pytest.mark.parametrize("stage", ["banner", "key exchange", "first key", "auth", "exec"])
def test_one_limit_holds_for_all_stages_of_a_slow_server(
    directory: ClusterDirectory, keys: Keys, tmp_path: Path, stage: str
) -> None:
    def talk(client: socket.socket, served: Served) -> None:
        if stage in ("banner", "key exchange"):
            drip(client, stage)
            return
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport = paramiko.Transport(client)
            transport.add_server_key(keys.host)
            transport.start_server(server=SlowSession(served, keys, stage))
            transport.join(SLOW_S)

    configuration = tmp_path / "config"
    copies = [tmp_path / f"id_{number}" for number in range(KEYS)]
    for copy in copies:
        shutil.copy(keys.user_file, copy)
    configuration.write_text("".join(f"IdentityFile {file}\n" for file in copies))
    options = {"ansible_ssh_private_key_file": "", "ansible_ssh_common_args": f"-F {configuration}"}
    with listening(talk, threading.Event()) as served:
        pin(directory, served.port, keys.host)
        begun = time.monotonic()
        reached = one(directory, keys, served.port, limit_s=1.5 * EACH_KEY_S, **options)
        took = time.monotonic() - begun
    assert reached.state == ("timeout" if stage == "exec" else "silent"), reached
    assert took < 0.8 * (KEYS * EACH_KEY_S if stage == "auth" else SLOW_S)


def test_the_addresses_of_a_name_share_the_limit(
    directory: ClusterDirectory, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that accepts no more connections is at three of the four addresses of its name."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        ssh_server([keys.host], {"ops": keys.user}) as served,
    ):
        place = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(place)
        pin(directory, served.port, keys.host)
        one_of_name = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        places = [(*one_of_name, place)] * 3 + [(*one_of_name, ("127.0.0.1", served.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
        begun = time.monotonic()
        assert one(directory, keys, served.port, limit_s=10.0).state == "ok"
        assert time.monotonic() - begun < 3 * 10.0, "each of the three had the whole limit"
        for each in waiting:
            each.close()


def test_a_resolver_that_does_not_answer_is_left_in_time(
    directory: ClusterDirectory, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: silence.wait(SLOW_S))
    begun = time.monotonic()
    assert one(directory, keys, 22, limit_s=1.0).state == "dns"
    silence.set()
    assert time.monotonic() - begun < SLOW_S / 2


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
    for name in ("ansible_ssh_common_args", "ansible_ssh_private_key_file"):
        reached = one(directory, keys, 22, **{name: "a\0b"})
        assert (reached.state, reached.because) == ("config", f"{name} of gpu01 holds a NUL character")


def test_the_operators_agent_is_asked(
    directory: ClusterDirectory, keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    socket_path = str(tmp_path_factory.mktemp("a") / "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket_path], stdout=subprocess.PIPE) as agent:
        try:
            monkeypatch.setenv("SSH_AUTH_SOCK", socket_path)
            assert agent.stdout is not None
            assert socket_path.encode() in agent.stdout.readline()  # it says so when it listens
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
    relay, places = tmp_path / "relay", tmp_path / "places"
    places.mkdir()
    # Each login has a place as long as its relay lives: the lowest that is free as it starts.
    relay.write_text(
        "import fcntl, itertools, os, socket, sys, threading\n"
        "door = open(__file__)\n"
        "fcntl.flock(door, fcntl.LOCK_EX)\n"
        "for number in itertools.count():\n"
        "    place = open(f'{sys.argv[2]}/{number}', 'w')\n"
        "    try: fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    except BlockingIOError: continue\n"
        "    break\n"
        "fcntl.flock(door, fcntl.LOCK_UN)\n"
        "line = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): line.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := line.recv(65536): os.write(1, data)\n"
    )
    with ssh_server([keys.host], {"ops": keys.user}) as served:
        pin(directory, served.port, keys.host)
        through = f"-F /dev/null -o 'ProxyCommand=/usr/bin/env python3 -S {relay} %p {places}'"
        chosen = hosts(directory, keys, *[served.port] * 12, ansible_ssh_common_args=through)
        reached = scan(directory, chosen, limit_s=20.0)
    assert [host.state for host in reached] == ["ok"] * 12, reached[0]
    assert 0 < len(list(places.iterdir())) <= 8
    assert all(host.jump.startswith("/usr/bin/env python3") for host in reached)


def test_a_way_that_breaks_is_blamed_on_the_jump_host(directory: ClusterDirectory, keys: Keys) -> None:
    broken = "-F /dev/null -o 'ProxyCommand=echo the bastion is closed >&2; exit 1'"
    reached = one(directory, keys, 22, ansible_ssh_common_args=broken)
    assert reached.state == "jump"
    assert reached.because.endswith("the bastion is closed")


@pytest.mark.parametrize(
    "greeting",
    [b"x" * (4 << 20), b"SSH-2.0-\x1b]0;title\x07 hostile\r\n" + b"\x7f\xff\xff\xf0" + b"x" * (4 << 20)],
    ids=["line", "packet"],
)
def test_a_host_that_sends_without_end_before_its_key_is_left(
    directory: ClusterDirectory, keys: Keys, greeting: bytes
) -> None:
    with raw_server(greeting, hang_up=False) as served:
        pin(directory, served.port, keys.host)
        reached = one(directory, keys, served.port)
    # The limit of bytes ends it: with that of time it would be "silent" or "timeout".
    assert reached.state == "closed", reached
    assert acting_characters(reached.because) == []


@pytest.mark.parametrize(
    ("exchange", "state"),
    [
        ("curve25519-sha256@libssh.org", "ok"),
        ("ecdh-sha2-nistp256", "ok"),
        ("ecdh-sha2-nistp521", "ok"),
        ("diffie-hellman-group14-sha256", "incompatible"),
        ("diffie-hellman-group16-sha512", "incompatible"),
    ],
)
def test_no_host_makes_us_compute_a_key_exchange_that_others_wait_for(
    directory: ClusterDirectory, keys: Keys, exchange: str, state: str
) -> None:
    with ssh_server([keys.host], {"ops": keys.user}, exchanges=[exchange]) as served:
        pin(directory, served.port, keys.host)
        assert one(directory, keys, served.port).state == state


def test_no_key_exchange_is_offered_whose_numbers_the_host_chooses(
    directory: ClusterDirectory, keys: Keys
) -> None:
    heard = bytearray()

    def hear(client: socket.socket, served: Served) -> None:
        client.settimeout(LIMIT_S)
        client.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        while b"ssh-ed25519" not in heard and (part := client.recv(4096)):
            heard.extend(part)

    with listening(hear, threading.Event()) as served:
        pin(directory, served.port, keys.host)
        assert one(directory, keys, served.port).state == "closed"
    assert b"curve25519-sha256" in heard
    assert b"diffie-hellman" not in heard


def test_a_host_whose_packets_cannot_be_read_fails_alone(directory: ClusterDirectory, keys: Keys) -> None:
    """paramiko raises anything at all on them, not only its own errors."""
    name_list = struct.pack(">I", 2) + b"\xff\xfe"  # no UTF-8
    payload = bytes([20]) + bytes(16) + name_list * 10 + bytes(5)
    padding = 8 + -(5 + len(payload)) % 8
    packet = struct.pack(">IB", 1 + len(payload) + padding, padding) + payload + bytes(padding)
    with (
        raw_server(b"SSH-2.0-OpenSSH_9.6\r\n" + packet, hang_up=False) as hostile,
        ssh_server([keys.host], {"ops": keys.user}) as good,
    ):
        for port in (hostile.port, good.port):
            pin(directory, port, keys.host)
        found = scan(directory, hosts(directory, keys, hostile.port, good.port), limit_s=LIMIT_S)
    assert [one.state for one in found] == ["incompatible", "ok"]
    assert "what it sends cannot be read: UnicodeDecodeError" in found[0].because


def test_keys_that_paramiko_cannot_use_are_named_and_the_others_tried(
    directory: ClusterDirectory, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key on a FIDO token, a home directory of nobody: ssh's configuration has them for other hosts too."""
    token = tmp_path / "id_ed25519_sk"
    token.write_text(fido_key())
    configuration = tmp_path / "config"
    files = (token, "~nobody-of-that-name/key", keys.user_file)
    configuration.write_text("".join(f"IdentityFile {file}\n" for file in files))
    with ssh_server([keys.host], {"ops": keys.other}) as served:
        pin(directory, served.port, keys.host)
        options = {"ansible_ssh_private_key_file": "", "ansible_ssh_common_args": f"-F {configuration}"}
        reached = one(directory, keys, served.port, **options)
    assert reached.state == "auth"
    assert "(id_ed25519_sk cannot be read: " in reached.because
    assert "(key cannot be read: " in reached.because
    assert reached.because.count("id_user") == 1


def fido_key() -> str:
    def text(content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + content

    kind, public = text(b"sk-ssh-ed25519@openssh.com"), text(b"\1" * 32) + text(b"ssh:")
    private = struct.pack(">II", 7, 7) + kind + public + b"\1" + text(b"h" * 64) + text(b"") + text(b"c")
    private += bytes(range(1, 1 + -len(private) % 8))
    body = b"openssh-key-v1\0" + text(b"none") * 2 + text(b"") + struct.pack(">I", 1)
    encoded = base64.b64encode(body + text(kind + public) + text(private)).decode()
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{encoded}\n-----END OPENSSH PRIVATE KEY-----\n"
