"""A connection with a deadline: what has come is read as one piece, and is not lost with a cut."""

from __future__ import annotations

import ipaddress
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
