"""A connection with a deadline: what has come is read as one piece, and is not lost with a cut."""

from __future__ import annotations

import ipaddress
import itertools
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpcore
import pytest
from cryptography import x509
from httpcore._backends.sync import SyncStream
from tests.support.certificates import DAY, own_authority

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


class Endless:
    """A read that goes on by itself, as within OpenSSL while messages come that are no data."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def get_extra_info(self, info: str) -> socket.socket | None:
        return self._connection if info == "socket" else None

    def read(self, _most: int, timeout: float | None = None) -> bytes:
        self._connection.settimeout(HELD_S)
        while self._connection.recv(1):
            pass
        raise httpcore.ReadError("cut")


def test_a_read_that_goes_on_by_itself_is_cut_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "CUT_S", 0.05)
    near, far = socket.socketpair()
    with near, far:
        for _ in range(2):  # the thread that cuts serves the next one, too
            one, other = socket.socketpair()
            with one, other, within(0.05), pytest.raises(httpcore.ReadError):
                deadline._Stream(Endless(one)).read(1, timeout=HELD_S)
        far.sendall(b"x")
        assert near.recv(1) == b"x"


def test_what_ends_in_time_is_not_cut(
    ends: tuple[deadline._Stream, ssl.SSLSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "CUT_S", 0.0)
    ours, server = ends
    server.sendall(b"first")
    with within(0.2):
        assert ours.read(TLS_RECORD_BYTES, timeout=HELD_S) == b"first"
    threading.Event().wait(0.4)
    server.sendall(b"second")
    assert ours.read(TLS_RECORD_BYTES, timeout=HELD_S) == b"second"


def test_many_addresses_of_one_name_have_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, float]] = []

    class Silent:
        def connect_tcp(self, host: str, _port: int, timeout: float, **_more: object) -> None:
            tried.append((host, timeout))
            raise httpcore.ConnectTimeout("silent")

    found = [(0, 0, 0, "", (f"192.0.2.{number}", 443)) for number in range(200)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_words, **_more: found)
    with pytest.raises(httpcore.ConnectTimeout):
        deadline._Backend(Silent()).connect_tcp("many.example", 443, timeout=5.0)
    assert [host for host, _ in tried] == [f"192.0.2.{number}" for number in range(deadline.MAX_ADDRESSES)]
    assert all(later <= earlier <= 5.0 for (_, earlier), (_, later) in itertools.pairwise(tried))
