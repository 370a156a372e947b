"""Names: does every name server answer, and is the registry's name known?"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

from clustercheck.probe.programs import read
from clustercheck.probe.registry import endpoint_of

PORT = 53
ANSWER_S = 2.0
TRIES = 2
MOST_SERVERS = 3  # the resolver uses no more


def name_service(image: str) -> dict[str, Any]:
    """Each name server of /etc/resolv.conf, and the addresses of the registry's name (else of our own)."""
    endpoint = endpoint_of(image)
    name = endpoint[0] if endpoint else socket.gethostname()
    record: dict[str, Any] = {"name": name, "addresses": [], "because": ""}
    record["servers"] = [ask(server, name) for server in servers()[:MOST_SERVERS]]
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        record["addresses"] = sorted({str(each[4][0]) for each in found})
    except (OSError, UnicodeError) as error:
        record["because"] = str(getattr(error, "strerror", "") or error)
    return record


def servers() -> list[str]:
    """The addresses of the name servers, in the resolver's order."""
    lines = [line.split() for line in (read("/etc/resolv.conf") or "").splitlines()]
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


def ask(server: str, name: str) -> dict[str, Any]:
    """Whether a name server answers a question at all, whatever it says: ``rcode``, or ``because``."""
    record: dict[str, Any] = {"address": server, "rcode": None, "because": ""}
    number = os.urandom(2)
    try:
        family, _, _, _, place = socket.getaddrinfo(server, PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as line:
            line.settimeout(ANSWER_S)
            line.connect(place)
            for _ in range(TRIES):
                line.send(question(number, name))
                try:
                    answer = line.recv(4096)
                except socket.timeout:
                    record["because"] = f"no answer within {ANSWER_S:g} s, asked {TRIES} times"
                    continue
                if answer[:2] == number and len(answer) >= 12:
                    return dict(record, rcode=answer[3] & 15, because="")
                record["because"] = "its answer makes no sense"
    except (OSError, UnicodeError) as error:
        record["because"] = str(getattr(error, "strerror", "") or error)
    return record


def question(number: bytes, name: str) -> bytes:
    """The bytes that ask for the IPv4 address of a name (RFC 1035, 4.1)."""
    labels = [label.encode("idna") for label in name.rstrip(".").split(".")]
    head = number + struct.pack(">HHHHH", 0x0100, 1, 0, 0, 0)
    return head + b"".join(bytes([len(label)]) + label for label in labels) + b"\0" + struct.pack(">HH", 1, 1)
