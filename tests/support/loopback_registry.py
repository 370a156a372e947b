"""The distribution's docker-registry on loopback, with its log, and a tiny image to move."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .registries import program

needs_registry = pytest.mark.needs("docker-registry")


@dataclass(frozen=True)
class Registry:
    """A registry that runs: where, and what it was asked."""

    address: str
    log: Path

    def asked(self) -> list[str]:
        """Method and path of every request so far."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line.split('"')[1].rpartition(" ")[0] for line in lines if '] "' in line and "HTTP/" in line]


@contextmanager
def registry(directory: Path, htpasswd: str = "", tls: tuple[Path, Path] | None = None) -> Iterator[Registry]:
    """Run one over ``directory``, over TLS with a certificate and its key; ends with the block."""
    directory.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        "http": {"addr": address, "secret": "loopback"},
    }
    if htpasswd:
        (directory / "htpasswd").write_text(htpasswd, encoding="utf-8")
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(directory / "htpasswd")}}
    if tls:
        config["http"]["tls"] = {"certificate": str(tls[0]), "key": str(tls[1])}
    (directory / "config.yml").write_text(json.dumps(config), encoding="utf-8")
    log = directory / "log"
    with log.open("wb") as stream:
        running = subprocess.Popen(
            [program(), "serve", str(directory / "config.yml")], stdout=stream, stderr=stream
        )
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
                time.sleep(0.05)
        yield Registry(address, log)
    finally:
        running.terminate()
        running.wait(10)


def tiny_layout(layout: Path, size: int = 2000) -> str:
    """Write an image of one layer with ``size`` random bytes; its manifest's digest."""
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def blob(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        member = tarfile.TarInfo("noise")
        member.size = size
        archive.addfile(member, io.BytesIO(os.urandom(size)))
    layer = blob(gzip.compress(raw.getvalue(), mtime=0))
    oci = "application/vnd.oci.image"
    diff = f"sha256:{hashlib.sha256(raw.getvalue()).hexdigest()}"
    config = blob(
        json.dumps(
            {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff]}}
        ).encode()
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{oci}.manifest.v1+json",
        "config": {"mediaType": f"{oci}.config.v1+json", **config},
        "layers": [{"mediaType": f"{oci}.layer.v1.tar+gzip", **layer}],
    }
    named = blob(json.dumps(manifest).encode())
    index = {"schemaVersion": 2, "manifests": [{"mediaType": f"{oci}.manifest.v1+json", **named}]}
    (layout / "index.json").write_text(json.dumps(index), encoding="utf-8")
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', encoding="utf-8")
    return str(named["digest"])


def push_tiny(target: str, scratch: Path, *credentials: str, size: int = 2000) -> str:
    """Push an image of one layer with ``size`` random bytes; its manifest's digest."""
    layout = scratch / "layout"
    digest = tiny_layout(layout, size)
    subprocess.run(
        ["skopeo", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false", *credentials,
         f"oci:{layout}", f"docker://{target}"],
        check=True, timeout=60,
    )  # fmt: skip
    return digest
