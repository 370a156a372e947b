"""A connection with a deadline: what has come is read as one piece, and is not lost with a cut."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpcore
import httpx
import pytest
from cryptography import x509
from httpcore._backends.sync import SyncStream
from tests.support.certificates import DAY, own_authority
from tests.support.hostile_server import dripping

from clusterctl.registry.oci import deadline
from clusterctl.registry.oci.deadline import READ_BYTES, TLS_RECORD_BYTES, within

HELD_S = 20
RECORDS = 8


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[deadline._Stream, ssl.SSLSocket]]:
    """Both ends of a TLS connection: ours, and the server's."""
    pem, key = own_authority(x509.IPAddress(ipaddress.ip_address("127.0.0.1")), DAY)
    (tmp_path / "server.crt").write_bytes(pem)
    (tmp_path / "server.key").write_bytes(key)
    served, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    served.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    trusting.load_verify_locations(cadata=pem.decode())
    near, far = socket.socketpair()
    for one in (near, far):
        one.settimeout(HELD_S)
    accepted: list[ssl.SSLSocket] = []
    shaking = threading.Thread(target=lambda: accepted.append(served.wrap_socket(far, server_side=True)))
    shaking.start()
    with trusting.wrap_socket(near, server_hostname="127.0.0.1") as connection:
        shaking.join(HELD_S)
        with accepted[0] as server:
            yield deadline._Stream(SyncStream(connection)), server


def test_records_that_have_come_are_one_piece(ends: tuple[deadline._Stream, ssl.SSLSocket]) -> None:
    ours, server = ends
    sent = bytes(range(256)) * (RECORDS * TLS_RECORD_BYTES // 256)
    server.sendall(sent)
    assert ours.read(TLS_RECORD_BYTES, timeout=HELD_S) == sent


def test_what_came_before_a_connection_was_cut_is_given(
    ends: tuple[deadline._Stream, ssl.SSLSocket],
) -> None:
    ours, server = ends
    server.sendall(b"x" * (RECORDS * TLS_RECORD_BYTES))
    # Without TLS's own goodbye.
    server.shutdown(socket.SHUT_RDWR)
    assert len(ours.read(TLS_RECORD_BYTES, timeout=HELD_S)) == RECORDS * TLS_RECORD_BYTES
    assert ours.read(TLS_RECORD_BYTES, timeout=HELD_S) == b""


def test_nobody_is_waited_for_with_bytes_in_hand(ends: tuple[deadline._Stream, ssl.SSLSocket]) -> None:
    ours, server = ends
    server.sendall(b"first")
    assert ours.read(TLS_RECORD_BYTES, timeout=HELD_S) == b"first"
    # The connection waits again, as long as it may.
    with within(0.05), pytest.raises(httpcore.ReadTimeout):
        ours.read(TLS_RECORD_BYTES, timeout=HELD_S)


def test_a_piece_has_its_bounds(ends: tuple[deadline._Stream, ssl.SSLSocket]) -> None:
    ours, server = ends
    sending = threading.Thread(target=server.sendall, args=(b"y" * (2 * READ_BYTES),))
    sending.start()
    got = 0
    while got < 2 * READ_BYTES:
        piece = ours.read(TLS_RECORD_BYTES, timeout=HELD_S)
        assert 0 < len(piece) <= READ_BYTES
        got += len(piece)
    sending.join(HELD_S)


class Greedy:
    """A connection of which one read goes on while bytes come, as OpenSSL's does with session tickets."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def get_extra_info(self, _info: str) -> socket.socket:
        return self._connection

    def read(self, _most: int, timeout: float | None = None) -> bytes:
        self._connection.settimeout(timeout)
        found = b""
        while chunk := self._connection.recv(100):
            found += chunk
        return found

    def start_tls(self, _context: ssl.SSLContext, _name: str | None, timeout: float | None) -> object:
        self.read(1, timeout)
        return self


@pytest.mark.parametrize("what", ["a read", "a handshake"])
def test_one_read_that_goes_on_and_on_ends_at_the_deadline(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "CUT_S", 0.1, raising=False)
    with dripping() as connection, deadline.within(0.5), pytest.raises(httpx.ReadTimeout):
        stream = deadline._Stream(Greedy(connection))
        if what == "a read":
            stream.read(1, timeout=60)
        else:
            stream.start_tls(ssl.create_default_context(), timeout=60)


def test_a_read_that_ends_in_time_is_not_cut_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "CUT_S", 0.0)
    here, there = socket.socketpair()
    with here, there, deadline.within(60):
        there.sendall(b"one")
        with deadline._cutter.within(here, 0.3):
            assert here.recv(10) == b"one"
        with dripping() as late, pytest.raises(httpx.ReadTimeout):
            deadline._Stream(Greedy(late)).read(1, timeout=0.6)
        there.sendall(b"two")
        assert here.recv(10) == b"two"


@pytest.mark.parametrize("good", [None, 3])
def test_all_addresses_of_a_host_have_one_deadline(good: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [f"192.0.2.{number}" for number in range(1, 200)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    clock, tried = [100.0], []
    monkeypatch.setattr(deadline, "now", lambda: clock[0])

    class Usual:
        def connect_tcp(self, host: str, _port: int, timeout: float) -> object:
            tried.append(host)
            if len(tried) == good:
                return object()
            clock[0] += timeout
            raise httpcore.ConnectTimeout

    backend = deadline._Backend(Usual(), lambda _: None)
    with deadline.within(40):
        if good:
            assert backend.connect_tcp("registry.test", 443, timeout=15)
        else:
            with pytest.raises((httpx.ReadTimeout, httpcore.ConnectTimeout)):
                backend.connect_tcp("registry.test", 443, timeout=15)
    assert tried == addresses[:3]
    if not good:
        tried.clear()
        with pytest.raises(httpcore.ConnectTimeout):
            backend.connect_tcp("registry.test", 443, timeout=15)
        assert tried == addresses[: deadline.MAX_ADDRESSES]
