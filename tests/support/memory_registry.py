"""A registry in this process: manifests and blobs that a test lays down, byte for byte, however wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.manifest import Manifest
from clusterctl.registry.oci.retry import RetryPolicy


@dataclass
class MemoryRegistry:
    """What it gives: by path below /v2/. ``asked`` are the paths it was asked for."""

    host: str
    answers: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def client(self) -> Registry:
        """A client that does not wait between attempts."""
        return Registry(RegistryEndpoint(self.host, plain=True), RetryPolicy(attempts=2, first_s=0, most_s=0))

    def put_manifest(self, repository: str, found: Manifest, tag: str = "") -> None:
        """Have a manifest under its digest, and under a tag."""
        for name in filter(None, (found.digest, tag)):
            self.answers[f"{repository}/manifests/{name}"] = (found.media_type, found.raw)

    def put_blob(self, repository: str, content: bytes, digest: str = "") -> None:
        """Have a blob, under another digest than its own if the test says so."""
        path = f"{repository}/blobs/{digest or manifest.digest_of(content)}"
        self.answers[path] = ("application/octet-stream", content)


@contextmanager
def memory_registry() -> Iterator[MemoryRegistry]:
    """One on loopback; it ends with the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.removeprefix("/v2/")
            state.asked.append(path)
            kind, body = state.answers.get(path, ("application/json", b"{}"))
            self.send_response(200 if path in state.answers else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state = MemoryRegistry(f"127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
