"""A registry at the far end of a link with a set speed, whose bytes are counted: a network namespace."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from tests.support.certificates import DAY, own_authority
from tests.support.registries import Running, registry

# Of the block that is set aside for measuring network devices (RFC 2544): no network of anybody's.
NEAR, FAR = "198.18.111.1", "198.18.111.2"
SPACE, DEVICE = "cctl-bench", "cctl-bench0"
FRAME = 1538  # bytes on the wire for 1448 of TCP's payload
PAYLOAD = 1448


@dataclass
class Link:
    """Its registry, and the directory with the authority that its certificate is of."""

    source: Running
    host: str
    certificates: Path

    def bytes_received(self) -> int:
        """What has come over the link, headers included."""
        return int(Path(f"/sys/class/net/{DEVICE}/statistics/rx_bytes").read_text())

    def shape(self, mbit: int) -> None:
        """Let the far end send so much and no more."""
        run("ip", "netns", "exec", SPACE, "tc", "qdisc", "replace", "dev", "far0", "root", "tbf",
            "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms")  # fmt: skip


def run(*words: str) -> None:
    """A command that must do."""
    subprocess.run(words, check=True, capture_output=True, timeout=30)


def payload_rate(mbit: int) -> float:
    """Bytes of content a second that a link of so many Mbit/s can carry."""
    return mbit * 1e6 / 8 * PAYLOAD / FRAME


@contextmanager
def link(root: Path) -> Iterator[Link]:
    """The link, with a registry over TLS at its far end."""
    certificates = root / "certs"
    certificates.mkdir(parents=True)
    _certificate(certificates)
    subprocess.run(["ip", "netns", "del", SPACE], capture_output=True, check=False, timeout=30)
    run("ip", "netns", "add", SPACE)
    try:
        run("ip", "link", "add", DEVICE, "type", "veth", "peer", "name", "far0", "netns", SPACE)
        run("ip", "addr", "add", f"{NEAR}/30", "dev", DEVICE)
        run("ip", "link", "set", DEVICE, "up")
        inside = ("ip", "netns", "exec", SPACE)
        run(*inside, "ip", "addr", "add", f"{FAR}/30", "dev", "far0")
        run(*inside, "ip", "link", "set", "far0", "up")
        tls = {"certificate": str(certificates / "server.crt"), "key": str(root / "server.key")}
        with registry(root / "source", address=FAR, inside=inside, tls=tls) as source:
            yield Link(source, f"{FAR}:{source.port}", certificates)
    finally:
        run("ip", "netns", "del", SPACE)


def _certificate(directory: Path) -> None:
    """One that is its own authority."""
    pem, key = own_authority(x509.IPAddress(ipaddress.ip_address(FAR)), DAY)
    for file in ("server.crt", "ca.crt"):
        (directory / file).write_bytes(pem)
    # Not next to the certificates: skopeo would take it for a client's.
    (directory.parent / "server.key").write_bytes(key)
