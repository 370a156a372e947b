"""The client of registries against answers made by hand: tokens, redirects, and who gets its password."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from ansible_collections.clusterctl.cluster.plugins.modules.cluster_certificate import make_authority
from pydantic import SecretStr

from clusterctl.cluster.inventory import Host
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.building import there_already
from clusterctl.registry.images.declared import DeclaredImage
from clusterctl.registry.images.registries import proxy_for
from clusterctl.registry.images.resolve import resolve
from clusterctl.registry.oci import errors, manifest, retry
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.credentials import Credentials
from clusterctl.registry.oci.endpoint import RegistryEndpoint, trust
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob
from clusterctl.registry.oci.reference import parse
from clusterctl.registry.oci.retry import RetryPolicy
from clusterctl.registry.oci.tokens import Tokens

QUICK = RetryPolicy(attempts=3, first_s=0, most_s=0)
WHO = Credentials("robot$pull", SecretStr("s3cret"))
CONTENT = b"a configuration"
BLOB = Blob(f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", len(CONTENT))

Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def server(answer: Callable[[str, str, dict[str, str]], Answer]) -> Iterator[tuple[str, list]]:
    """A server on loopback that answers as it is told; its host, and what it was asked."""
    asked: list[tuple[str, str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def _any(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.command, self.path, self.headers.get("Authorization", "")))
            status, headers, body = answer(self.command, self.path, dict(self.headers))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _any

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    threading.Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{made.server_address[1]}", asked
    finally:
        made.shutdown()
        made.server_close()


def client(host: str, credentials: Credentials | None = WHO, **more) -> Registry:
    return Registry(RegistryEndpoint(host, plain=True, credentials=credentials, **more), QUICK)


def bearer(valid: list[str]) -> Callable[[str, str, dict[str, str]], Answer]:
    """A registry with a realm of its own; only the newest token is valid."""

    def answer(method: str, path: str, headers: dict[str, str]) -> Answer:
        if path.startswith("/token"):
            if headers.get("Authorization") != WHO.basic:
                return 401, {}, b""
            valid.append(f"token{len(valid)}")
            return 200, {}, json.dumps({"token": valid[-1]}).encode()
        if not valid or headers.get("Authorization") != f"Bearer {valid[-1]}":
            realm = f'Bearer realm="http://{headers["Host"]}/token",service="harbor-registry"'
            return 401, {"WWW-Authenticate": realm}, b""
        return 200, {}, CONTENT

    return answer


def test_a_token_is_asked_for_once_and_again_when_it_has_expired():
    valid: list[str] = []
    with server(bearer(valid)) as (host, asked), client(host) as registry:
        assert registry.small_blob("a/b", BLOB) == CONTENT
        assert registry.small_blob("a/b", BLOB) == CONTENT
        tokens = [path for _, path, _ in asked if path.startswith("/token")]
        assert tokens == ["/token?scope=repository%3Aa%2Fb%3Apull&service=harbor-registry"]
        valid.append("another")
        assert registry.small_blob("a/b", BLOB) == CONTENT
        # The password goes to the realm alone.
        assert {path.partition("?")[0] for _, path, who in asked if who == WHO.basic} == {"/token"}


def test_a_token_is_for_one_repository():
    with server(bearer([])) as (host, asked), client(host) as registry:
        registry.has_blob("a/b", BLOB.digest)
        registry.has_blob("c/d", BLOB.digest)
        scopes = [path for _, path, _ in asked if path.startswith("/token")]
        assert len(scopes) == 2


def test_wrong_credentials_are_said_and_not_shown():
    with server(bearer([])) as (host, _), client(host, Credentials("x", SecretStr("wr0ng"))) as registry:
        with pytest.raises(RegistryError) as refused:
            registry.has_blob("a/b", BLOB.digest)
        assert refused.value.code == "images.login-refused"
        assert "wr0ng" not in f"{refused.value.what}{refused.value.where}{refused.value.hint}"


def test_an_upload_that_cannot_begin_is_tried_no_more_often_than_any_other_request() -> None:
    """Otherwise each of its attempts would be as many, and minutes pass before the error."""
    with server(lambda *_: (503, {}, b"")) as (host, asked), client(host) as registry:
        with pytest.raises(RegistryError) as failed:
            registry.put_blob("a/b", BLOB, lambda: iter([CONTENT]))
        assert failed.value.code == "images.registry-fails"
    assert [method for method, _, _ in asked] == ["POST"] * QUICK.attempts


@pytest.mark.parametrize("status", [401, 200], ids=["no token", "a token for nobody"])
def test_credentials_that_were_taken_before_are_tried_again_when_refused(status: int) -> None:
    """So answers a Harbor whose database is away: it takes everybody for a stranger."""
    valid: list[str] = []
    registered, away, closed = bearer(valid), [0], ["/v2/closed/"]

    def answer(method: str, path: str, headers: dict[str, str]) -> Answer:
        if away[0]:
            away[0] -= 1
            valid.append("another")
            if path.startswith("/token"):
                return status, {}, json.dumps({"token": f"nobody{away[0]}"}).encode()
        elif path.startswith(closed[0]):
            headers = {**headers, "Authorization": ""}
        return registered(method, path, headers)

    with server(answer) as (host, _), client(host) as registry:
        for repository in ("closed/one", "a/b", "closed/two"):
            if repository == "a/b":
                assert registry.has_blob(repository, BLOB.digest)
                continue
            with pytest.raises(RegistryError) as refused:
                registry.has_blob(repository, BLOB.digest)
            assert (refused.value.code, refused.value.exit_code) == ("images.login-refused", 2)
        for repository in ("a/b", "c/d"):
            away[0] = 4
            assert registry.has_blob(repository, BLOB.digest)
        for repository in ("a/b", "e/f"):
            away[0] = 100
            with pytest.raises(RegistryError) as refused:
                registry.has_blob(repository, BLOB.digest)
            assert (refused.value.code, refused.value.exit_code) == ("images.registry-fails", 1)
            assert "that it took before" in refused.value.what


def test_a_redirect_to_another_host_is_followed_and_told_nothing():
    with server(lambda *_: (200, {}, CONTENT)) as (cdn, told):

        def answer(_method: str, path: str, headers: dict[str, str]) -> Answer:
            if headers.get("Authorization") != WHO.basic:
                return 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""
            return 307, {"Location": f"http://localhost:{cdn.rpartition(':')[2]}/signed?x=1"}, b""

        with server(answer) as (host, _), client(host) as registry:
            assert registry.small_blob("a/b", BLOB) == CONTENT
    assert told == [("GET", "/signed?x=1", "")]


def test_no_token_is_fetched_without_tls_for_a_registry_with_it():
    answer = httpx.Response(401, headers={"www-authenticate": 'Bearer realm="http://auth.example/token"'})
    tokens = Tokens("registry.example", WHO, plain=False)
    with pytest.raises(RegistryError) as refused, httpx.Client() as never:
        tokens.renew(never, answer, "repository:a/b:pull", "")
    assert refused.value.code == "images.login-refused"
    assert refused.value.where == "http://auth.example/token"


def test_a_registry_that_names_itself_is_asked_by_its_address():
    endpoint = RegistryEndpoint("10.0.0.5:443", name="harbor.lan")
    assert (
        str(endpoint.resolve_redirect(httpx.URL("https://harbor.lan/service/token")))
        == "https://10.0.0.5/service/token"
    )
    # Its external address may be another port than the one we ask.
    assert str(endpoint.resolve_own(httpx.URL("https://harbor.lan:8443/t"))) == "https://10.0.0.5/t"
    for other in ("https://auth.example/t", "https://harbor.lan:9000/bucket", "http://harbor.lan/bucket"):
        assert str(endpoint.resolve_redirect(httpx.URL(other))) == other


@pytest.mark.parametrize("named", ["127.0.0.1", "localhost"])
def test_a_blob_is_fetched_from_another_port_of_the_same_host_without_credentials(named: str):
    def stored(_method: str, path: str, _headers: dict[str, str]) -> Answer:
        return (200, {}, CONTENT) if path == "/there" else (307, {"Location": "/there"}, b"")

    with server(stored) as (storage, told):
        place = {"Location": f"http://{named}:{storage.rpartition(':')[2]}/bucket"}

        def answer(_method: str, _path: str, headers: dict[str, str]) -> Answer:
            if headers.get("Authorization") != WHO.basic:
                return 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""
            return 307, place, b""

        with server(answer) as (host, _), client(host, name=named) as registry:
            assert registry.small_blob("a/b", BLOB) == CONTENT
            with registry.blob("a/b", BLOB.digest) as (_start, pieces):
                assert b"".join(pieces) == CONTENT
    assert told == [("GET", path, "") for path in ("/bucket", "/there") * 2]


@pytest.mark.parametrize("status", [202, 307])
def test_nothing_is_changed_at_another_server_that_a_registry_names(status: int):
    with server(lambda *_: (201, {}, b"")) as (elsewhere, told):
        place = {"Location": f"http://localhost:{elsewhere.rpartition(':')[2]}/upload?state=1"}
        with server(lambda *_: (status, place, b"")) as (host, _), client(host) as registry:
            with pytest.raises(RegistryError) as refused:
                registry.put_blob("a/b", BLOB, lambda: iter([CONTENT]))
            assert refused.value.code == "images.redirect"
            with contextlib.suppress(RegistryError):
                registry.mount("a/b", BLOB.digest, "a/c")
            with pytest.raises(RegistryError) if status == 307 else contextlib.nullcontext():
                registry.delete_manifest("a/b", BLOB.digest)
    assert told == []


@pytest.mark.parametrize(
    ("status", "code", "times"),
    [(429, "images.rate-limited", 3), (503, "images.registry-fails", 3), (501, "images.registry-fails", 1),
     (404, "images.not-found", 1), (403, "images.login-refused", 1), (412, "images.refused", 1)],
)  # fmt: skip
def test_only_what_may_pass_is_asked_again(status: int, code: str, times: int):
    said = json.dumps({"errors": [{"code": "X", "message": "quota\x1b[31m used up"}]}).encode()
    with server(lambda *_: (status, {}, said)) as (host, asked), client(host, None) as registry:
        with pytest.raises(RegistryError) as refused:
            registry.manifest("a/b", "1")
        assert refused.value.code == code
        assert "X quota used up" in refused.value.what
        assert len(asked) == times


def test_a_manifest_that_is_not_that_of_its_digest_is_not_taken():
    with server(lambda *_: (200, {}, b"{}")) as (host, _), client(host) as registry:
        with pytest.raises(RegistryError) as refused:
            registry.manifest("a/b", f"sha256:{'a' * 64}")
        assert refused.value.code == "images.corrupt"


def test_nobody_there_is_said_after_the_last_attempt():
    with server(lambda *_: (200, {}, b"")) as (host, _):
        pass
    with client(host) as registry:
        with pytest.raises(RegistryError) as refused:
            registry.has_blob("a/b", BLOB.digest)
        assert refused.value.code == "images.unreachable"
        assert refused.value.exit_code == 1


def test_an_authority_that_cannot_be_read_is_said(tmp_path: Path):
    (tmp_path / "ca.crt").write_text("no certificate")
    (tmp_path / "empty.crt").write_text("")
    for file in (tmp_path / "ca.crt", tmp_path / "empty.crt", tmp_path / "none"):
        with pytest.raises(RegistryError) as refused:
            trust((file,))
        assert refused.value.code == "images.certificate"
        assert refused.value.where == str(file)


def test_an_authority_that_others_could_have_written_is_not_trusted(tmp_path: Path):
    file = tmp_path / "ca.crt"
    file.write_bytes(make_authority("test", datetime.now(tz=UTC)).certificate_pem())
    file.chmod(0o644)
    assert len(trust((file,)).get_ca_certs()) == len(trust(()).get_ca_certs()) + 1
    file.write_bytes("# Főtanúsítvány\n".encode() + file.read_bytes())  # as in the list of Mozilla
    assert len(trust((file,)).get_ca_certs()) == len(trust(()).get_ca_certs()) + 1
    file.chmod(0o666)
    with pytest.raises(RegistryError, match="is not trusted: it is world-writable") as refused:
        trust((file,))
    assert (refused.value.code, refused.value.where) == ("images.certificate", str(file))


@pytest.mark.parametrize(
    ("asked", "proxied"),
    [
        ("ghcr.io", True),
        ("harbor.example.com:443", False),
        ("example.com", False),
        ("badexample.com", True),
        ("10.1.2.3:5000", False),
        ("192.168.1.9", True),
        ("[fd00::7]:443", False),
    ],
)
def test_the_site_s_proxy_is_for_those_it_is_for(asked: str, proxied: bool):
    said = {
        "site_https_proxy": "http://proxy:3128",
        "site_no_proxy": "localhost, .example.com, 10.0.0.0/8, fd00::/8",
    }
    host = Host("gpu01", "10.0.0.1", 22, "root", ("gpu_nodes",), said, None, {})
    assert proxy_for(host, asked) == ("http://proxy:3128" if proxied else "")


@pytest.mark.parametrize(
    "proxy", ["u:hunter2@127.0.0.1:1", "ftp://u:hunter2@proxy:1", "http://u:hunter2@xn--a.example.com:1"]
)
def test_a_proxy_without_its_scheme_is_refused_and_not_quoted(proxy: str):
    host = Host("gpu01", "10.0.0.1", 22, "root", ("gpu_nodes",), {"site_https_proxy": proxy}, None, {})
    with pytest.raises(ClusterctlError) as refused:
        proxy_for(host, "example.com")
    assert refused.value.code == "settings.value"
    assert refused.value.where == "gpu01: site_https_proxy"
    assert "hunter2" not in f"{refused.value.what} {refused.value.hint}"


@pytest.mark.parametrize("host", ["a..b:5000", f"{'a' * 64}.example", "a:99999"])
def test_a_registry_whose_address_is_none_is_said_with_it(host: str):
    with pytest.raises(RegistryError) as refused:
        client(host)
    assert (refused.value.code, refused.value.where, refused.value.exit_code) == (
        "images.unreachable", host, 2
    )  # fmt: skip
    assert "images_source_addresses" in refused.value.hint


def test_a_proxy_whose_name_is_none_is_said_and_asked_once():
    endpoint = RegistryEndpoint("registry.example", proxy="http://proxy..example:3128")
    with Registry(endpoint, QUICK) as registry, pytest.raises(RegistryError) as refused:
        registry.manifest("a/b", "1")
    assert (refused.value.code, refused.value.lasting) == ("images.unreachable", True)
    assert "site_https_proxy" in refused.value.hint


@pytest.mark.parametrize(
    ("code", "told"), [(7, "7 no"), (0, "0 no"), (None, "no"), ("DENIED", "DENIED no"), (2.5, "HTTP 400")]
)
def test_a_registrys_words_are_told_whatever_it_numbers_them_with(code: object, told: str):
    body = json.dumps({"errors": [{"code": code, "message": "no", "detail": None}]}).encode()
    with server(lambda *_: (400, {}, body)) as (host, _), client(host) as registry:
        with pytest.raises(RegistryError) as refused:
            registry.manifest("a/b", "1")
        assert refused.value.what.endswith(f": {told}")


@pytest.mark.parametrize("empty", ["token", "access_token"])
def test_the_token_that_is_not_empty_is_used(empty: str):
    good = {"token": "t0ken", "access_token": "t0ken"} | {empty: ""}

    def answer(_method: str, path: str, headers: dict[str, str]) -> Answer:
        if path.startswith("/token"):
            return 200, {}, json.dumps(good).encode()
        if headers.get("Authorization") != "Bearer t0ken":
            return 401, {"WWW-Authenticate": f'Bearer realm="http://{headers["Host"]}/token"'}, b""
        return 200, {}, CONTENT

    with server(answer) as (host, _), client(host) as registry:
        assert registry.small_blob("a/b", BLOB) == CONTENT


def test_bytes_are_asked_for_as_they_lie_there():
    asked: list[str] = []

    def answer(_method: str, _path: str, headers: dict[str, str]) -> Answer:
        asked.append(headers.get("Accept-Encoding", ""))
        return 200, {"Content-Type": manifest.OCI_MANIFEST}, b"{}"

    with server(answer) as (host, _), client(host, None) as registry:
        registry.hash_blob("a/b", Blob("sha256:" + "a" * 64, 2))
        registry.has_manifest("a/b", "sha256:" + "a" * 64)
    assert asked == ["identity", "identity"]


@pytest.mark.parametrize(
    "raw", [b"<html>", b"[1]", b'{"config": 7}', b'{"config": {"Labels": 7}}', b'{"rootfs": [1]}', b"\xff"]
)
def test_a_configuration_that_is_none_is_said(raw: bytes):
    config = {"mediaType": "c", "digest": manifest.digest_of(raw), "size": len(raw)}
    kind = manifest.OCI_MANIFEST
    said = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": []})

    def answer(_method: str, path: str, _headers: dict[str, str]) -> Answer:
        if "/blobs/" in path:
            return 200, {}, raw
        return 200, {"Content-Type": kind}, said.encode()

    with server(answer) as (host, _), client(host, None) as registry:
        image = DeclaredImage("one", parse(f"http://{host}/a/b:1"), "a/b", "1")
        with pytest.raises(ClusterctlError) as refused:
            resolve(image, registry)
        assert (refused.value.code, refused.value.exit_code) == ("images.manifest", 1)
        # Asked whether it is a build of ours already.
        recipe = SimpleNamespace(repository="a/b", tag="1")
        with pytest.raises(ClusterctlError) as refused:
            known = SimpleNamespace(target="a/b", tag="1", digest=manifest.digest_of(said.encode()))
            there_already(SimpleNamespace(recipe=recipe, context={}), registry, known)
        assert (refused.value.code, refused.value.exit_code) == ("images.manifest", 1)


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_a_registry_that_says_our_credentials_again_is_not_quoted(scheme: str):
    asks = {"Basic": 'Basic realm="x"', "Bearer": ""}

    def answer(_method: str, path: str, headers: dict[str, str]) -> Answer:
        if path.startswith("/token"):
            return 200, {}, b'{"token": "t0ken-of-the-realm"}'
        sent = headers.get("Authorization", "")
        if not sent:
            return (
                401,
                {"WWW-Authenticate": asks[scheme] or f'Bearer realm="http://{headers["Host"]}/token"'},
                b"",
            )
        words = f"no: {sent} {base64.b64decode(sent.split()[1]).decode() if scheme == 'Basic' else ''}"
        return 403, {}, json.dumps({"errors": [{"code": "DENIED", "message": words}]}).encode()

    with server(answer) as (host, _), client(host, WHO) as registry, pytest.raises(RegistryError) as refused:
        registry.manifest("a/b", "1")
    assert refused.value.code == "images.login-refused"
    assert "DENIED no: " in refused.value.what
    for secret in ("s3cret", WHO.basic.split()[1], "t0ken"):
        assert secret not in str(vars(refused.value))


def test_what_is_no_answer_does_not_quote_our_credentials():
    request = httpx.Request("GET", "http://127.0.0.1:9/v2/", headers={"Authorization": WHO.basic})
    error = httpx.RemoteProtocolError(f"illegal status line: {WHO.basic} s3cret", request=request)
    said = errors.not_reached(error, "127.0.0.1:9", "manifest").what
    assert "illegal status line" in said
    assert "s3cret" not in said
    assert WHO.basic.split()[1] not in said
    assert (
        "no request" in errors.not_reached(httpx.ConnectError("no request"), "127.0.0.1:9", "manifest").what
    )


@pytest.mark.parametrize("trouble", ["429", "503", "a cut connection"])
def test_who_gives_tokens_is_asked_again_and_when_it_says(trouble: str, monkeypatch: pytest.MonkeyPatch):
    waited: list[float] = []
    monkeypatch.setattr(retry, "_wait", lambda _, seconds: waited.append(seconds))
    good, refusals = bearer([]), iter([True, True])

    def answer(method: str, path: str, headers: dict[str, str]) -> Answer:
        if path.startswith("/token") and next(refusals, False):
            if trouble == "a cut connection":
                raise ConnectionAbortedError
            return int(trouble), {"Retry-After": "12"}, b""
        return good(method, path, headers)

    with (
        server(answer) as (host, _),
        Registry(RegistryEndpoint(host, plain=True, credentials=WHO)) as registry,
    ):
        assert registry.small_blob("a/b", BLOB) == CONTENT
    assert len(waited) == 2
    assert trouble == "a cut connection" or waited == [12.0, 12.0]


def test_a_quota_is_no_refused_login():
    said = json.dumps({"errors": [{"code": "DENIED", "message": "Quota exceeded when processing"}]}).encode()
    with (
        server(lambda *_: (403, {}, said)) as (host, _),
        client(host, None) as registry,
        pytest.raises(RegistryError) as refused,
    ):
        registry.manifest("a/b", "1")
    assert (refused.value.code, refused.value.exit_code) == ("images.refused", 1)


@pytest.mark.parametrize("which", ["realm", "location"])
@pytest.mark.parametrize(
    "nowhere",
    [
        "https://nowhere:port/v2/",
        "http://a..b/v2/",
        "http://a:99999/",
        f"http://{'a' * 64}/v2/",
        "https://xn--a/v2/",
        "http://[::1/v2/",
        # Only with our parameters, for which "/" is encoded, it is longer than any address may be.
        "http://127.0.0.1:9/v2/?x=" + "\u20ac" * 7_000 + "/" * 1_000,
    ],
    ids=lambda one: one[:40],
)
def test_a_place_that_is_none_is_the_registrys_fault_and_said(which: str, nowhere: str) -> None:
    sent = nowhere.encode().decode("latin-1")

    def answer(method: str, _path: str, _headers: dict[str, str]) -> Answer:
        if which == "realm":
            return 401, {"WWW-Authenticate": f'Bearer realm="{sent}",service="s"'}, b""
        return (202, {"Location": sent}, b"") if method == "POST" else (404, {}, b"")

    with server(answer) as (host, _), Registry(RegistryEndpoint(host, plain=True), QUICK) as client:
        with pytest.raises(RegistryError) as caught:
            client.put_blob("t/one", BLOB, lambda: iter([CONTENT]))
        assert caught.value.code == "images.registry-fails"
        assert "sends us to a place that is none" in caught.value.what
