"""A Harbor that is played: an API over TLS, and a docker that dumps and loads a database of one file."""

from __future__ import annotations

import hashlib
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate, harbor_backup
from tests.support.tree import ROOT, UTILS

PLUGINS = Path(harbor_backup.__file__).parents[1]
START = (
    f"import os, pathlib, runpy, sys; sys.path.insert(0, {str(ROOT)!r});"
    f"from {UTILS} import harbor_certificate as c, harbor_host as h, bounded as b;"
    "c.OWNER = (os.getuid(), os.getgid());"
    "h.COMPOSE = 'docker-compose'; b.alone.__wrapped__.__defaults__ = (pathlib.Path(sys.argv.pop()),);"
    "runpy.run_path(sys.argv.pop(), run_name='__main__')"
)
HOSTNAME = "registry.example.org"
COMPOSE = """#!/bin/sh
case "$*" in
*--services) printf 'log\npostgresql\nredis\ncore\nproxy\n' ;;
*) echo "compose $*" >>{log}
    [ ! -e {log}.slow ] || sleep 5
    [ ! -e {log}.deaf ] || {{ rm {log}.deaf; echo "failed to initialize logging driver" >&2; exit 1; }} ;;
esac
"""
DOCKER = """#!/bin/sh
echo "docker $*" >>{log}
case "$*" in
*pg_dump*) cat {database}; [ ! -e {log}.cut ] || exit 0
    [ ! -e {log}.loud ] || head -c 200000 /dev/zero | tr '\\0' w >&2
    echo "-- PostgreSQL database dump complete" ;;
*"select 1"*) ;;
*inspect*) exit 1 ;;
*psql*) cat >{database}.loaded && [ ! -e {log}.refuse ] || {{ echo "ERROR: no" >&2; exit 3; }} ;;
esac
"""


@dataclass
class Played:
    """Where it is, and what was asked of it."""

    root: Path
    port: int = 0
    read_only: bool = False
    history: list[bool] = field(default_factory=list)
    refuses: bool = False
    refusals: int = 0

    @property
    def data(self) -> Path:
        """The data volume."""
        return self.root / "data"

    @property
    def backups(self) -> Path:
        """Where backups go."""
        return self.root / "backups"

    def asked(self) -> list[str]:
        """What docker and Compose were asked, in order."""
        log = self.root / "asked"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def did(self) -> list[str]:
        """The same in short, without what only looks."""
        found = []
        for line in self.asked():
            if "select 1" in line or "--services" in line or " ps " in line:
                continue
            words = ("up -d", "pg_dump", "psql", "load", "prepare")
            word = next((one for one in words if one in line), line)
            found.append(f"up {line.partition('up -d ')[2]}" if word == "up -d" else word)
        return found

    def blob(self, content: bytes) -> Path:
        """Store a layer, as the registry does."""
        name = hashlib.sha256(content).hexdigest()
        path = self.data / f"registry/docker/registry/v2/blobs/sha256/{name[:2]}/{name}/data"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        return path

    def params(self) -> dict[str, Any]:
        """What every module is told."""
        return {
            "directory": str(self.root / "opt"),
            "data_dir": str(self.data),
            "backup_dir": str(self.backups),
        }

    def backup(self, *, check: bool = False, **more: Any) -> dict[str, Any]:
        """Run the module that backs up."""
        told = {
            "hostname": HOSTNAME,
            "port": self.port,
            "authority": str(self.root / "ca.crt"),
            "password": "Pw",
            "insist_s": 0,
        }
        return self.module("harbor_backup", {**self.params(), **told, **more}, check=check)

    def taken(self) -> Path:
        """The directory of a backup that was taken."""
        answer = self.backup()
        assert "failed" not in answer, answer["msg"]
        return Path(answer["backup"])

    def restore(self, state: str, *, check: bool = False, **more: Any) -> dict[str, Any]:
        """Run one half of the restore."""
        told = {
            "state": state,
            "release": str(self.root / "opt/release"),
            "version": "v2.15.2",
            "hostname": HOSTNAME,
            "port": self.port,
            "authority": str(self.root / "ca.crt"),
            "password": "Pw",
            "insist_s": 0,
        }
        return self.module("harbor_restore", {**self.params(), **told, **more}, check=check)

    def module(self, name: str, params: dict[str, Any], *, check: bool) -> dict[str, Any]:
        """A module as Ansible runs it: a process, arguments on standard input, JSON out."""
        done = subprocess.run(
            [sys.executable, "-c", START, str(PLUGINS / "modules" / f"{name}.py"), str(self.root / "locks")],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": {**params, "_ansible_check_mode": check}}),
            env={"PATH": f"{self.root}/bin:/usr/bin:/bin"},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@contextmanager
def playing(root: Path) -> Iterator[Played]:
    """An installed Harbor with a little in it, for as long as the block lasts."""
    played = Played(root)
    _lay_out(played)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, {"read_only": {"value": played.read_only}})

        def do_PUT(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["read_only"]
            if not asked and (played.refuses or played.refusals):
                played.refusals = max(0, played.refusals - 1)
                self._answer(503, {"errors": [{"message": "the database is starting"}]})
                return
            played.read_only = asked
            played.history.append(asked)
            self._answer(200, None)

        def _answer(self, status: int, body: Any) -> None:
            content = json.dumps(body).encode() if body is not None else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    now = datetime.now(UTC)
    authority = cluster_certificate.make_authority("site", now)
    pair = cluster_certificate.make_server(authority, [HOSTNAME], now, 10)
    for name, content in (
        ("ca.crt", authority.certificate_pem()), ("c", pair.certificate_pem()), ("k", pair.key_pem())
    ):  # fmt: skip
        (root / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(root / "c", root / "k")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    played.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()


def _lay_out(played: Played) -> None:
    release = played.root / "opt/release"
    release.mkdir(parents=True)
    (release / "harbor.yml").write_text("harbor_admin_password: x\n", encoding="utf-8")
    (release / "harbor.v2.15.2.tar.gz").touch()
    (release / "prepare").write_text(f"#!/bin/sh\necho prepare >>{played.root}/asked\n", encoding="utf-8")
    (release / "prepare").chmod(0o755)
    record = {"version": "v2.15.2", "release": str(release), "state": "installed"}
    (played.root / "opt/installed.json").write_text(json.dumps(record), encoding="utf-8")
    key = played.data / "secret/keys/secretkey"
    key.parent.mkdir(parents=True)
    key.write_text("0123456789abcdef", encoding="utf-8")
    key.chmod(0o600)
    played.blob(b"a layer")
    (played.root / "database.sql").write_text("create table project ();\n", encoding="utf-8")
    bin_ = played.root / "bin"
    bin_.mkdir()
    log, database = played.root / "asked", played.root / "database.sql"
    (bin_ / "docker").write_text(DOCKER.format(log=log, database=database), encoding="utf-8")
    (bin_ / "docker-compose").write_text(COMPOSE.format(log=log), encoding="utf-8")
    for name in ("docker", "docker-compose"):
        (bin_ / name).chmod(0o755)
