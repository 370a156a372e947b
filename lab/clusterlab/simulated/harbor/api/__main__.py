"""``python3 -m api --state FILE --port PORT``: the stand-in as a program, until it is told to end."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path

from . import system
from .server import StandIn


def main() -> None:
    """Serve. A password is only taken at the first start, as Harbor does."""
    parser = argparse.ArgumentParser(description="The API of a simulated Harbor.")
    parser.add_argument("--state", type=Path, required=True, help="the file that keeps its state")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=8080, help="the port; 0 takes a free one")
    parser.add_argument("--admin-password-file", type=Path, help="read at the first start alone")
    parser.add_argument("--registry", default="", help="the address of the registry behind, for its health")
    parser.add_argument("--no-scanner", action="store_true", help="as installed without Trivy")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="think so long about each answer")
    asked = parser.parse_args()
    os.umask(0o077)
    is_new = not asked.state.exists()
    server = StandIn((asked.host, asked.port), asked.state, latency_s=asked.latency_ms / 1000)
    if is_new and asked.admin_password_file:
        password = asked.admin_password_file.read_text(encoding="utf-8").splitlines()[0]
        system.configure(server.store, admin_password=password)
    system.configure(server.store, registry=asked.registry, scanner=not asked.no_scanner)
    sys.stdout.write(f"simulated Harbor on {server.url}\n")
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.1)


main()
