"""Simulated by clusterlab: takes the other containers' syslog on TCP, and writes it where Harbor does."""

from __future__ import annotations

import socketserver
from pathlib import Path


class Lines(socketserver.StreamRequestHandler):
    """One container."""

    def handle(self) -> None:
        """Every line it says, until it ends."""
        with Path("/var/log/docker/harbor.log").open("ab", buffering=0) as log:
            for line in self.rfile:
                log.write(line)


class Collector(socketserver.ThreadingTCPServer):
    """All of them."""

    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    Collector(("0.0.0.0", 10514), Lines).serve_forever()  # noqa: S104 - in a container
