"""The training image's copy into the registry: real skopeo, real registries, and who is blamed for what."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import image_digest, skopeo_words
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault
from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate, registry_image
from tests.support.called_module import called
from tests.support.loopback_registry import Registry, push_tiny, registry

needs_programs = pytest.mark.needs("docker-registry", "skopeo")
PATH = "library/tiny"
OCI = "application/vnd.oci.image.manifest.v1+json"
DIGEST = "sha256:" + "ab" * 32
LOGIN = "push:" + bcrypt.hashpw(b"good", bcrypt.gensalt(4)).decode() + "\n"


class Site:
    """A source that has an image, a registry that is to have it, both over TLS; the module between them."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys, self.running = root, capsys, ExitStack()
        now = datetime.now(tz=UTC)
        self.authority = cluster_certificate.make_authority("test", now - timedelta(days=60))
        (root / "ca.pem").write_bytes(self.authority.certificate_pem())
        self.good = self.certificate("good", now)
        self.expired = self.certificate("expired", now - timedelta(days=30))
        with registry(root / "source") as plain:
            self.digest = push_tiny(f"{plain.address}/{PATH}:1", root)

    def certificate(self, name: str, since: datetime) -> tuple[Path, Path]:
        """For two days from then."""
        files = self.root / f"{name}.crt", self.root / f"{name}.key"
        pair = cluster_certificate.make_server(self.authority, ["127.0.0.1"], since, 2)
        cluster_certificate.save(pair, *files, Vault({}))
        return files

    def serve(self, name: str, *, tls: tuple[Path, Path] | None = None, login: str = "") -> Registry:
        """The registry `source`, which has the image, or another, which has none."""
        return self.running.enter_context(registry(self.root / name, login, tls or self.good))

    def auth(self, address: str, password: str) -> str:
        file = self.root / f"{password}-{address.rpartition(':')[2]}.json"
        told = base64.b64encode(f"push:{password}".encode()).decode()
        file.write_text(json.dumps({"auths": {address: {"auth": told}}}), encoding="utf-8")
        return str(file)

    def play(self, source: str, destination: str, *, check: bool = False, **options: Any) -> dict[str, Any]:
        """What the module says."""
        arguments = {
            "source": f"{source}/{PATH}", "destination": f"{destination}/{PATH}", "digest": self.digest,
            "tag": "1", **options,
        }  # fmt: skip
        return called(registry_image, arguments, self.root, self.capsys, check=check)

    def copied(self, *arguments: Any, **options: Any) -> bool:
        """The copy comes, and the next run finds it."""
        return self.play(*arguments, **options)["changed"] and not self.play(*arguments, **options)["changed"]


@pytest.fixture
def site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    made = Site(tmp_path, capsys)
    with made.running:
        yield made


def code(said: dict[str, Any]) -> str:
    """What the operator's machine knows the failure by."""
    assert said["failed"]
    return str(said["code"])


@needs_programs
def test_a_password_is_wrong_where_it_was_refused(site: Site) -> None:
    source, destination = site.serve("source", login=LOGIN), site.serve("destination", login=LOGIN)
    sides = {
        "source_auth_file": site.auth(source.address, "good"),
        "destination_auth_file": site.auth(destination.address, "good"),
    }
    bad = site.auth(source.address, "bad")
    said = site.play(source.address, destination.address, **{**sides, "source_auth_file": bad})
    assert f"the source refuses the credentials in {bad}" in said["msg"]
    assert code(said) == "registry.login-refused"
    said = site.play(source.address, destination.address, **{**sides, "source_auth_file": ""})
    assert "the source asks for a password: set training_image_source_auth_file" in said["msg"]
    bad = site.auth(destination.address, "bad")
    for check in (True, False):
        said = site.play(
            source.address, destination.address, check=check, **{**sides, "destination_auth_file": bad}
        )
        assert f"{destination.address} refuses the credentials in {bad}" in said["msg"]
        assert "source" not in said["msg"]
        assert code(said) == "registry.login-refused"
    assert site.copied(source.address, destination.address, **sides)


@needs_programs
def test_a_certificate_has_expired_where_it_is(site: Site) -> None:
    source, destination = site.serve("source"), site.serve("destination")
    old_source, old = site.serve("source", tls=site.expired), site.serve("old", tls=site.expired)
    said = site.play(old_source.address, destination.address)
    assert "certificate has expired" in said["msg"]
    assert "the source's certificate has expired" in said["msg"]
    assert code(said) == "registry.certificate"
    for check in (True, False):
        said = site.play(source.address, old.address, check=check)
        assert f"the certificate of {old.address} has expired" in said["msg"]
        assert "the source" not in said["msg"]
        assert code(said) == "registry.certificate"
    assert site.copied(source.address, site.serve("old").address)


class Unwell(BaseHTTPRequestHandler):
    """A registry that answers its front page, and all else with one status."""

    status = 503

    def answer(self) -> None:
        self.send_response(200 if self.path == "/v2/" else self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_POST = answer

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def unwell(site: Site) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Unwell)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*site.good)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@needs_programs
def test_an_error_of_a_registrys_own_is_no_missing_image(site: Site, unwell: str) -> None:
    source, destination = site.serve("source"), site.serve("destination")
    said = site.play(unwell, destination.address)
    assert "the source has an error of its own" in said["msg"]
    assert code(said) == "registry.unreachable"
    said = site.play(source.address, unwell, check=True)
    assert f"{unwell} has an error of its own" in said["msg"]
    assert code(said) == "registry.unreachable"
    assert site.copied(source.address, destination.address)


@needs_programs
def test_a_registry_that_is_not_up_yet_is_in_a_plans_way_no_more_than_it_must(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where the controller's own code was imported before, Ansible shows a warning and does not return it.
    heard: list[str] = []
    monkeypatch.setattr(registry_image.AnsibleModule, "warn", lambda _module, text: heard.append(text))
    source = site.serve("source")
    planned = site.play(source.address, "127.0.0.1:1", check=True)
    assert planned["wanted"]
    assert "does not answer yet" in heard[0]
    said = site.play(source.address, "127.0.0.1:1")
    assert "could not be looked for" in said["msg"]
    assert code(said) == "registry.unreachable"
    site.digest = DIGEST
    said = site.play(source.address, site.serve("destination").address)
    assert "the source does not have this digest" in said["msg"]
    assert code(said) == "registry.no-image"


BLOB = "sha256:" + "5" * 64
AT_SOURCE = f"initializing source docker://depot:5000/p@{DIGEST}: "
READING = AT_SOURCE + f"reading manifest {DIGEST} in depot:5000/p: "
REUSING = f"trying to reuse blob {BLOB} at destination: "


# What skopeo 1.9 said of registries that were made so; of Docker Hub and of a token, from its source.
@pytest.mark.parametrize(
    ("reason", "side", "cure", "known_as"),
    [
        (READING + "unauthorized: authentication required", "source", "asks for a password", "login-refused"),
        (READING + "StatusCode: 429, ", "source", "limits how often", "too-many-requests"),
        (READING + "toomanyrequests: You have reached your pull rate limit.", "source", "limits how often",
         "too-many-requests"),
        (f"reading config blob {BLOB}: too many requests to registry", "source", "limits how often",
         "too-many-requests"),
        (READING + "received unexpected HTTP status: 500 Internal Server Error", "source", "error of its own",
         "unreachable"),
        (f"reading config blob {BLOB}: Error fetching blob: invalid status code from registry 503 (Service "
         "Unavailable)", "source", "error of its own", "unreachable"),
        ('writing blob: Patch "https://harbor.lan/v2/p": happened during read: unexpected EOF', "source",
         "reaches the source", "unreachable"),
        (AT_SOURCE + 'pinging container registry depot:5000: Get "https://depot:5000/v2/": x509: certificate '
         "signed by unknown authority", "source", "source's certificate: put its CA", "certificate"),
        (REUSING + f"checking whether a blob {BLOB} exists in harbor.lan/p: unable to retrieve auth token: "
         "invalid username/password: unauthorized", "destination", "harbor.lan refuses", "login-refused"),
        (REUSING + 'pinging container registry harbor.lan: Get "https://harbor.lan/v2/": x509: certificate '
         "signed by unknown authority", "destination", "the certificate of harbor.lan", "certificate"),
        (REUSING + "failed to read from destination repository p: 429 (Too Many Requests)", "destination",
         "harbor.lan limits", "too-many-requests"),
        (REUSING + "failed to read from destination repository p: 503 (Service Unavailable)", "destination",
         "harbor.lan has an error of its own", "unreachable"),
        ("copying image 1/2 from manifest list: writing blob: uploading layer to https://harbor.lan/v2/p: "
         "received unexpected HTTP status: 500 Internal Server Error", "destination", "its disk",
         "unreachable"),
        ("something new", "", "the source, and that the registry serves", "unreachable"),
    ],
)  # fmt: skip
def test_the_side_is_told_by_what_skopeo_was_doing(reason: str, side: str, cure: str, known_as: str) -> None:
    options = {
        "source": "depot:5000/p", "source_auth_file": "", "digest": DIGEST,
        "destination": "harbor.lan/p", "destination_auth_file": "/etc/push.json",
    }  # fmt: skip
    escaped = reason.replace('"', '\\"')
    err = f'time="2026-11-22T01:00:47Z" level=fatal msg="{escaped}"\n'
    assert skopeo_words.side_of(skopeo_words.reason_of(err)) == side
    said = skopeo_words.explain_copy(err, options)
    assert reason.strip() in said
    assert cure in said.removeprefix(f"depot:5000/p@{DIGEST} could not be copied: {reason.strip()}")
    assert image_digest.code_of(err) == f"registry.{known_as}"


class Endless(BaseHTTPRequestHandler):
    """A source whose layer of 1000 bytes has no end."""

    protocol_version = "HTTP/1.1"
    config = json.dumps(
        {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [DIGEST]}}
    )
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": OCI,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": f"sha256:{hashlib.sha256(config.encode()).hexdigest()}",
                "size": len(config),
            },
            "layers": [
                {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": DIGEST, "size": 1000}
            ],
        }
    )

    def do_GET(self) -> None:
        body = (
            None
            if self.path.endswith(DIGEST)
            else self.manifest
            if "/manifests/" in self.path
            else self.config
        )
        self.send_response(200)
        if body is not None:
            self.send_header("Content-Type", OCI)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())
            return
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(bytes(1 << 20))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@needs_programs
def test_a_source_that_sends_more_than_an_image_has_is_left(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_image, "BESIDES_BYTES", 4 << 20)
    destination = site.serve("destination")
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*site.good)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        digest = f"sha256:{hashlib.sha256(Endless.manifest.encode()).hexdigest()}"
        said = site.play(f"127.0.0.1:{server.server_port}", destination.address, digest=digest)
        server.shutdown()
    assert said["failed"]
    assert "the source sends more than the image has" in said["msg"]
