"""Real registries on loopback (Debian's docker-registry), a proxy with faults before them, and images."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml
from tests.support.programs import require_program

from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.manifest import Blob
from clusterctl.registry.oci.retry import RetryPolicy

QUICK = RetryPolicy(attempts=4, first_s=0.01, most_s=0.05)
START_S = 20.0
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def program() -> str:
    """Returns docker-registry, or fails the test."""
    return require_program("docker-registry")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Running:
    """A docker-registry that answers on loopback."""

    storage: Path
    port: int
    configuration: Path
    process: subprocess.Popen[bytes]
    log: Path
    address: str = "127.0.0.1"
    inside: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        return f"{self.address}:{self.port}"

    def blob_file(self, digest: str) -> Path:
        value = digest.removeprefix("sha256:")
        return self.storage / "docker/registry/v2/blobs/sha256" / value[:2] / value / "data"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        self.process = _start(self)

    def client(self, credentials=None) -> Registry:
        return Registry(RegistryEndpoint(self.host, plain=True, credentials=credentials), QUICK)


@contextmanager
def registry(
    root: Path,
    *,
    address: str = "127.0.0.1",
    inside: tuple[str, ...] = (),
    tls: dict[str, str] | None = None,
    **more: object,
) -> Iterator[Running]:
    """One registry with its storage below ``root``; ``more`` goes into its configuration.

    ``inside`` are words before its command that take it elsewhere, such as into a network namespace.
    """
    port = free_port()
    root.mkdir(parents=True, exist_ok=True)
    configuration = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {
            "filesystem": {"rootdirectory": str(root / "data")},
            "delete": {"enabled": True},
        },
        "http": {"addr": f"{address}:{port}", **({"tls": tls} if tls else {})},
        **more,
    }
    file = root / "config.yml"
    file.write_text(yaml.safe_dump(configuration))
    log = root / "log"
    running = Running(root / "data", port, file, None, log, address, inside)  # type: ignore[arg-type]
    running.start_again()
    try:
        yield running
    finally:
        running.kill()


def _start(one: Running) -> subprocess.Popen[bytes]:
    with one.log.open("ab") as stream:
        words = [*one.inside, program(), "serve", str(one.configuration)]
        process = subprocess.Popen(words, stdout=stream, stderr=stream)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((one.address, one.port), 1):
                return process
        except OSError:
            assert process.poll() is None, one.log.read_text()
            threading.Event().wait(0.05)
    raise AssertionError(f"docker-registry did not start: {one.log.read_text()}")


@dataclass
class Fault:
    """``status`` answers instead of the registry; ``cut`` ends the body early; ``flip`` changes a bit."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    flip: bool = False
    slow_bytes_s: float = 0.0


@dataclass
class Proxy:
    """Stands before a registry. ``fault`` decides for each request (method, path, number of it so far)."""

    port: int
    upstream: int
    fault: Callable[[str, str, int], Fault | None] = lambda *_: None
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def blob_bytes(self) -> int:
        """Bytes of blobs that went out through it."""
        return sum(amount for path, amount in self.sent.items() if "/blobs/" in path)


@contextmanager
def proxy(upstream: int) -> Iterator[Proxy]:
    """A proxy before the registry at that port."""
    server: ThreadingHTTPServer
    state = Proxy(0, upstream)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def _any(self) -> None:
            path = self.path
            with lock:
                number = state.counts[self.command, path] = state.counts.get((self.command, path), 0) + 1
                state.seen.append((self.command, path, self.headers.get("Range", "")))
            fault = state.fault(self.command, path, number) or Fault()
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size) if size else None
            if fault.status:
                self.send_response(fault.status)
                for name, value in {"Content-Length": "0", **fault.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                return
            connection = http.client.HTTPConnection("127.0.0.1", state.upstream, timeout=60)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection",)}
            try:
                connection.request(self.command, path, body, headers)
                answer = connection.getresponse()
            except OSError:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "date"):
                    self.send_header(name, value)
            self.end_headers()
            self._body(answer, path, fault)
            connection.close()

        def _body(self, answer, path: str, fault: Fault) -> None:
            done = 0
            while self.command != "HEAD" and (piece := answer.read(1 << 16)):
                if fault.flip and done == 0:
                    piece = bytes([piece[0] ^ 1]) + piece[1:]
                if fault.cut is not None and done + len(piece) > fault.cut:
                    piece = piece[: max(0, fault.cut - done)]
                try:
                    self.wfile.write(piece)
                except OSError:
                    self.close_connection = True
                    return
                done += len(piece)
                with lock:
                    state.sent[path] = state.sent.get(path, 0) + len(piece)
                if fault.slow_bytes_s:
                    threading.Event().wait(len(piece) / fault.slow_bytes_s)
                if fault.cut is not None and done >= fault.cut:
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class Made:
    """An image that was put into a registry."""

    digest: str
    layers: tuple[Blob, ...]
    config: Blob

    @property
    def size(self) -> int:
        return sum({b.digest: b.size for b in self.layers}.values())


def bytes_of(seed: object, size: int) -> bytes:
    """The same bytes for the same seed; nothing in them can be compressed."""
    return random.Random(str(seed)).randbytes(size)  # noqa: S311 - no secret


def put_image(
    host: str | RegistryEndpoint,
    repository: str,
    tag: str,
    layers: list[bytes],
    *,
    environment: tuple[str, ...] = (),
    labels: dict[str, str] | None = None,
    architecture: str = "amd64",
) -> Made:
    """Push an image of these layers; a host alone is asked without TLS."""
    with Registry(RegistryEndpoint(host, plain=True) if isinstance(host, str) else host, QUICK) as client:
        blobs = []
        for content in layers:
            blob = Blob(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
            if not client.has_blob(repository, blob.digest):
                client.put_blob(repository, blob, lambda content=content: iter([content]))
            blobs.append(blob)
        document = json.dumps(
            {
                "architecture": architecture,
                "os": "linux",
                "config": {"Env": list(environment), "Labels": labels or {}},
                "rootfs": {"type": "layers", "diff_ids": [blob.digest for blob in blobs]},
            }
        ).encode()
        config = Blob(manifest.digest_of(document), len(document))
        client.put_blob(repository, config, lambda: iter([document]))
        raw = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": manifest.DOCKER_MANIFEST,
                "config": {
                    "mediaType": "application/vnd.docker.container.image.v1+json",
                    "size": config.size,
                    "digest": config.digest,
                },
                "layers": [{"mediaType": LAYER, "size": b.size, "digest": b.digest} for b in blobs],
            }
        ).encode()
        found = manifest.read(raw, manifest.DOCKER_MANIFEST, "test")
        client.put_manifest(repository, found, tag)
    return Made(found.digest, tuple(blobs), config)


def put_index(host: str, repository: str, tag: str, members: dict[str, Made]) -> str:
    """Push a list of images; its digest."""
    with Registry(RegistryEndpoint(host, plain=True), QUICK) as client:
        entries = []
        for platform, made in members.items():
            one = client.manifest(repository, made.digest)
            system, architecture = platform.split("/")
            entries.append(
                {
                    "mediaType": one.media_type,
                    "size": len(one.raw),
                    "digest": one.digest,
                    "platform": {"os": system, "architecture": architecture},
                }
            )
        raw = json.dumps(
            {"schemaVersion": 2, "mediaType": manifest.DOCKER_LIST, "manifests": entries}
        ).encode()
        found = manifest.read(raw, manifest.DOCKER_LIST, "test")
        client.put_manifest(repository, found, tag)
    return found.digest


def cluster_directory(root: Path, images: list[dict[str, object]], **more: object) -> Path:
    """A cluster directory with one node and these images."""
    (root / "group_vars").mkdir(parents=True, exist_ok=True)
    (root / "hosts.yml").write_text(
        "all:\n  children:\n    gpu_nodes:\n      hosts:\n        gpu01: {ansible_host: 127.0.0.1}\n"
    )
    said = {"images": images, **more}
    (root / "group_vars" / "all.yml").write_text(yaml.safe_dump(said))
    return root


def environment() -> dict[str, str]:
    """For a clusterctl that runs as a process of its own."""
    return {**os.environ, "NO_COLOR": "1"}
