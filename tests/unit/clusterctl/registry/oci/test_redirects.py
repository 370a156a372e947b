"""Where a registry sends us, and what it is told there: no password elsewhere or in clear, no cookie."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.support.hostile_server import ONCE, WHO, A, asking, hostile, whole

from clusterctl.registry.oci import client as client_module
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Registry]]:
    """A registry behind TLS whose answers a function makes."""

    def made(answer: Callable[[httpx.Request], httpx.Response], **more) -> Registry:
        def streamed(request: httpx.Request) -> httpx.Response:
            whole = answer(request)
            stream = httpx.ByteStream(whole.content)
            return httpx.Response(whole.status_code, headers=whole.headers, stream=stream)

        monkeypatch.setattr(client_module, "transport", lambda _: httpx.MockTransport(streamed))
        return Registry(RegistryEndpoint("registry.example", **more), ONCE)

    yield made


def test_no_redirect_leads_from_https_to_http(played):
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(307, headers={"location": "http://cdn.example/blob"})

    with played(answer, credentials=WHO) as registry:
        for ask in (lambda: registry.manifest("a/b", "1"), lambda: registry.hash_blob("a/b", Blob(A, 1))):
            with pytest.raises(RegistryError) as refused:
                ask()
            assert (refused.value.code, refused.value.lasting) == ("images.redirect", True)
    assert all(url.startswith("https://registry.example/") for url in asked)


def test_an_upload_is_not_sent_from_https_to_http(played):
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.method == "POST"
        return httpx.Response(202, headers={"location": "http://registry.example/upload"})

    with played(answer) as registry, pytest.raises(RegistryError) as refused:
        registry.put_blob("a/b", Blob(A, 1), lambda: iter([b"x"]))
    assert refused.value.code == "images.redirect"


def test_redirects_come_to_an_end(played):
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(302, headers={"location": f"https://registry.example/{len(asked)}"})

    with played(answer) as registry, pytest.raises(RegistryError) as refused:
        registry.manifest("a/b", "1")
    assert refused.value.code == "images.redirect"
    assert len(asked) == 11


def test_credentials_stay_with_their_registry_wherever_it_redirects(played):
    told: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        told.append((str(request.url), request.headers.get("authorization", "")))
        if request.url.host == "other.example":
            # It challenges us, and sends us back.
            challenges = {"www-authenticate": 'Bearer realm="https://other.example/token"'}
            if request.url.path == "/deny":
                return httpx.Response(401, headers=challenges)
            return httpx.Response(307, headers={"location": "https://registry.example/v2/a/b/blobs/back"})
        if request.url.path.endswith("/back"):
            return httpx.Response(404)
        if request.headers.get("authorization") != WHO.basic:
            return httpx.Response(401, headers={"www-authenticate": 'Basic realm="x"'})
        where = "deny" if request.url.path.endswith("1") else "on"
        return httpx.Response(307, headers={"location": f"https://other.example/{where}"})

    with played(answer, credentials=WHO) as registry:
        for tag in ("1", "2"):
            with pytest.raises(RegistryError):
                registry.manifest("a/b", tag)
    assert [url for url, _ in told if "token" in url] == []
    assert {who for url, who in told if not url.startswith("https://registry.example/v2/a/b/manifests/")} == {
        ""
    }
    assert WHO.basic in {who for _, who in told}


def test_an_upload_that_is_redirected_is_sent_again_as_a_whole(played):
    got: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(202, headers={"location": "/upload"})
        got.append(request.read())
        if request.url.path == "/upload":
            return httpx.Response(307, headers={"location": "https://registry.example:443/x"})
        return httpx.Response(201)

    with played(answer) as registry:
        registry.put_blob("a/b", Blob(A, 3), lambda: iter([b"xyz"]))
    assert got == [b"xyz", b"xyz"]


@pytest.mark.parametrize("place", ["https://store.example/x", "https://registry.example:8443/x"])
@pytest.mark.parametrize("is_redirected", [False, True], ids=["begun there", "redirected"])
def test_an_upload_is_sent_to_no_other_server(is_redirected: bool, place: str, played):
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.host}:{request.url.port or 443}")
        if request.method == "POST":
            return httpx.Response(202, headers={"location": "/upload" if is_redirected else place})
        return httpx.Response(307 if request.url.path == "/upload" else 201, headers={"location": place})

    with played(answer) as registry:
        try:
            registry.put_blob("a/b", Blob(A, 3), lambda: iter([b"xyz"]))
        except RegistryError as error:
            assert (error.code, error.where) == ("images.redirect", place)
            assert "https://registry.example/ (Harbor: external_url" in error.hint
    # Where it says that an upload begins at another port of its own, it is asked at the one that we know.
    is_own = place.startswith("https://registry.example") and not is_redirected
    assert asked == ["POST registry.example:443"] + ["PUT registry.example:443"] * (is_own or is_redirected)


@pytest.mark.parametrize("realm", ["http://auth.example/token", "http://10.0.0.7/token"])
def test_credentials_go_in_clear_to_loopback_alone(realm: str):
    def answer(_: str) -> Iterator[bytes]:
        return whole(b"", f'WWW-Authenticate: Bearer realm="{realm}"', status="401 Unauthorized")

    with hostile(answer) as server, asking(server.host, credentials=WHO) as registry:
        with pytest.raises(RegistryError) as refused:
            registry.manifest("a/b", "1")
        assert refused.value.code == "images.login-refused"
        assert "without TLS" in refused.value.what
        assert len(server.asked) == 1


def test_a_realm_that_redirects_gives_no_password_on_and_leads_to_no_http(played):
    told: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        told.append((request.url.host, request.headers.get("authorization", "")))
        if request.url.host == "registry.example":
            realm = 'Bearer realm="https://auth.example/token"'
            return httpx.Response(401, headers={"www-authenticate": realm})
        if request.url.host == "auth.example":
            return httpx.Response(302, headers={"location": "https://elsewhere.example/token"})
        return httpx.Response(302, headers={"location": "http://elsewhere.example/token"})

    with played(answer, credentials=WHO) as registry, pytest.raises(RegistryError) as refused:
        registry.manifest("a/b", "1")
    assert refused.value.code == "images.redirect"
    assert told == [("registry.example", ""), ("auth.example", WHO.basic), ("elsewhere.example", "")]


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b"null", b'{"token": 7}', b'{"token": "a\\r\\nX: y"}', '{"token": "ä"}'.encode(),
     b'{"token": ""}', b'{"token": "' + b"x" * 70_000 + b'"}', b" " * (2 << 20)],
)  # fmt: skip
def test_a_token_that_is_none_is_said(body: bytes, played):
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            return httpx.Response(200, content=body)
        realm = 'Bearer realm="https://registry.example/token"'
        return httpx.Response(401, headers={"www-authenticate": realm})

    with played(answer) as registry, pytest.raises(RegistryError) as refused:
        registry.manifest("a/b", "1")
    assert refused.value.code == "images.login-refused"
    assert "token that cannot be read" in refused.value.what


@pytest.mark.parametrize("cookie", ["a=\xe9; path=/", "a=b; max-age"])
def test_cookies_are_neither_read_nor_sent(
    cookie: str, played: Callable[..., Registry], caplog: pytest.LogCaptureFixture
):
    raw = json.dumps({"mediaType": manifest.OCI_INDEX, "manifests": []}).encode()
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("cookie"))
        headers = [(b"Set-Cookie", cookie.encode("latin-1")), (b"Content-Type", manifest.OCI_INDEX.encode())]
        return httpx.Response(200, headers=headers, content=raw)

    with warnings.catch_warnings(), played(answer) as registry:
        warnings.simplefilter("error")  # http.cookiejar prints its own failure as one
        assert registry.manifest("a/b", "1").raw == raw
        assert registry.manifest("a/b", "1").raw == raw
    assert seen == [None, None]
