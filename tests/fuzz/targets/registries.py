"""What registries and Harbor answer: good, or refused with an error that names it; never more."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from pydantic import SecretStr
from tests.fuzz.refusals import MAX_WORDS, explained, require_sentences, seeds
from tests.fuzz.target import Target
from tests.support.harbor_play import PASSWORD, applied, everything

from clusterctl.commands.registry import rotate
from clusterctl.registry.harbor import client as harbor_client
from clusterctl.registry.harbor import reconcile, robots
from clusterctl.registry.harbor.change import Deferred
from clusterctl.registry.harbor.client import Access, Client, Refused
from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.harbor.site import Site
from clusterctl.registry.harbor.vault import Vault
from clusterctl.registry.images.declared import DeclaredImage
from clusterctl.registry.images.resolve import closure, resolve
from clusterctl.registry.oci import client as oci_client
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.credentials import Credentials
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.manifest import Blob
from clusterctl.registry.oci.reference import parse
from clusterctl.registry.oci.retry import RetryPolicy
from clusterlab.simulated.harbor.api.server import serving

HOME, REALM = "registry.example", "auth.example"
WHO = Credentials("robot$pull", SecretStr("s3cret"))
ONCE = RetryPolicy(attempts=1, first_s=0, most_s=0)

# What Harbor says of a robot that it has made.
CREATED = b'{"id": 7, "name": "robot$new", "creation_time": "2026-01-01T00:00:00Z"}'

Answer = Callable[[httpx.Request], httpx.Response]


def digest_of(raw: bytes) -> str:
    return f"sha256:{sha256(raw).hexdigest()}"


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


# An image, as a registry has it.
CONFIG = dumped(
    {"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": [digest_of(b"layer")]},
     "config": {"Env": ["CUDA_VERSION=12.9.1", "NVIDIA_REQUIRE_CUDA=cuda>=12.9 driver>=535,driver<536"],
                "Labels": {"org.clusterctl.cudnn": "9.9"}}}
)  # fmt: skip
LAYER = {"digest": digest_of(b"layer"), "size": 5, "mediaType": "application/vnd.oci.image.layer.v1.tar"}


def image_of(config: bytes) -> bytes:
    described = {"digest": digest_of(config), "size": len(config), "mediaType": "application/json"}
    return dumped({"mediaType": manifest.OCI_MANIFEST, "config": described, "layers": [LAYER]})


IMAGE = image_of(CONFIG)
LIST = dumped(
    {"mediaType": manifest.OCI_INDEX, "manifests": [
        {"digest": digest_of(IMAGE), "size": len(IMAGE), "platform": platform}
        for platform in ({"os": "linux", "architecture": "amd64"}, {"os": "linux", "variant": "v8"})
    ]}
)  # fmt: skip
DECLARED = DeclaredImage("one", parse(f"{HOME}/a/b:1"), "a/b", "1")


def streamed(response: httpx.Response) -> httpx.Response:
    """As it comes from a connection: still to be read."""
    return httpx.Response(
        response.status_code, headers=response.headers, stream=httpx.ByteStream(response.content)
    )


@contextmanager
def played(answer: Answer, credentials: Credentials | None = WHO) -> Iterator[Registry]:
    """A registry behind TLS that answers so. Credentials go there and to its realm alone."""

    def guarded(request: httpx.Request) -> httpx.Response:
        assert request.url.scheme == "https", f"{request.url} is asked without TLS"
        if request.headers.get("authorization", "").startswith("Basic"):
            assert request.url.host in (HOME, REALM), f"{request.url.host} gets the password"
        return streamed(answer(request))

    with patch.object(oci_client, "transport", lambda _: httpx.MockTransport(guarded)):
        registry = Registry(RegistryEndpoint(HOME, credentials=credentials), ONCE)
    with registry:
        yield registry


def documents(by_tag: bytes, config: bytes = CONFIG, media_type: str = manifest.OCI_INDEX) -> Answer:
    """A registry with this under its only tag."""

    def answer(request: httpx.Request) -> httpx.Response:
        wanted = request.url.path.rpartition("/")[2]
        found = {"1": by_tag, digest_of(by_tag): by_tag, digest_of(IMAGE): IMAGE, digest_of(config): config}
        if wanted not in found:
            return httpx.Response(404)
        return httpx.Response(200, headers={"content-type": media_type}, content=found[wanted])

    return answer


def resolve_from(answer: Answer) -> None:
    with played(answer) as registry:
        locked = explained(lambda: resolve(DECLARED, registry))
        if locked is not None:
            require_sentences(
                *locked.platforms, locked.cuda, locked.cudnn, locked.nccl, locked.minimum_driver
            )


def run_manifest(data: bytes) -> None:
    for media_type in (manifest.OCI_INDEX, manifest.OCI_MANIFEST):
        with played(documents(data, media_type=media_type)) as registry:
            explained(lambda registry=registry: closure(registry, "a/b", digest_of(data)))
            explained(lambda registry=registry: registry.manifest("a/b", "1"))


def run_index(data: bytes) -> None:
    resolve_from(documents(data))


def run_config(data: bytes) -> None:
    resolve_from(documents(image_of(data), data))


def header_of(data: bytes) -> bytes:
    """What a server can send as one: others would not pass its own parser."""
    return bytes(one for one in data if one not in b"\r\n\0")[:100_000]


def run_challenge(data: bytes) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == HOME:
            return httpx.Response(401, headers=[(b"www-authenticate", header_of(data))])
        return httpx.Response(200, content=b'{"token": "t0ken"}')

    # Where a realm lies is the registry's to say, so long as it is reached over TLS.
    with played(answer, credentials=None) as registry:
        explained(lambda: registry.manifest("a/b", "1"))


def challenged(request: httpx.Request, other: httpx.Response) -> httpx.Response:
    if request.url.host == REALM:
        return other
    return httpx.Response(401, headers={"www-authenticate": f'Bearer realm="https://{REALM}/token"'})


def run_token(data: bytes) -> None:
    with played(lambda request: challenged(request, httpx.Response(200, content=data))) as registry:
        explained(lambda: registry.manifest("a/b", "1"))


def run_error(data: bytes) -> None:
    status = (400, 401, 403, 404, 412, 429, 500, 501, 503)[data[0] % 9 if data else 0]
    headers = [(b"retry-after", header_of(data[1:200]))]
    with played(lambda _: httpx.Response(status, headers=headers, content=data[1:])) as registry:
        explained(lambda: registry.manifest("a/b", "1"))
    with played(lambda request: challenged(request, httpx.Response(status, content=data[1:]))) as registry:
        explained(lambda: registry.has_blob("a/b", digest_of(data)))


def run_location(data: bytes) -> None:
    headers = [(b"location", header_of(data))]
    blob = Blob(digest_of(b"x"), 1)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(202 if request.method == "POST" else 307, headers=headers)

    def signed(request: httpx.Request) -> httpx.Response:
        basic = request.headers.get("authorization") == WHO.basic
        challenge = {"www-authenticate": 'Basic realm="x"'}
        return (
            answer(request) if basic or request.url.host != HOME else httpx.Response(401, headers=challenge)
        )

    for one in (answer, signed):
        with played(one) as registry:
            explained(lambda registry=registry: registry.manifest("a/b", "1"))
            explained(lambda registry=registry: registry.hash_blob("a/b", blob))
            explained(lambda registry=registry: registry.put_blob("a/b", blob, lambda: iter([b"x"])))
            explained(lambda registry=registry: registry.mount("a/b", blob.digest, "c/d"))


@cache
def harbor() -> tuple[list[tuple[str, httpx.Response]], tempfile.TemporaryDirectory[str], dict[str, Any]]:
    """What a good Harbor answers to each question, in order; with the vault of its robots."""
    place = tempfile.TemporaryDirectory()
    found: list[tuple[str, httpx.Response]] = []
    with serving(":memory:") as upstream, serving(":memory:") as server:
        raw = everything(upstream.url)
        applied(server.url, Path(place.name), raw)

        def passed(request: httpx.Request) -> httpx.Response:
            url = request.url.copy_with(scheme="http", host="127.0.0.1", port=server.server_address[1])
            answer = httpx.request(request.method, url, headers=request.headers, content=request.read())
            if request.method in ("GET", "HEAD"):
                found.append((request.url.raw_path.decode(), answer))
            return streamed(answer)

        reconcile_with(passed, Path(place.name), raw)
    return found, place, raw


def reconcile_with(answer: Answer, directory: Path, raw: dict[str, Any]) -> None:
    """Plan, apply and rotate, with a copy of the directory's vault."""
    access = Access("https://harbor.example", "admin", SecretStr(PASSWORD))
    declared = DeclaredHarbor.model_validate(raw)
    with patch.object(harbor_client, "transport", lambda _: httpx.MockTransport(answer)):
        client = Client(access, wait=lambda _: None)
    with client, tempfile.TemporaryDirectory() as own:
        vault = shutil.copy(directory / "robots.json", own)
        site = Site(client, Vault(Path(vault)), directory, prune=True, prove=True, adopt=True)
        try:
            reconcile.configure(site)
            apply(site, reconcile.plan(site, declared))
            there = rotate._look(site, declared.registry_robots)
            renewed = reconcile.ReconcilePlan()
            renewed.add(robots.renewals(site, declared.registry_robots, there, named=False))
            apply(site, renewed)
        except Refused as refused:
            raise reconcile.failed(site, refused) from refused
        except Deferred:
            return


def apply(site: Site, made: reconcile.ReconcilePlan) -> None:
    """Apply a plan, and require that what is told of it is plain."""
    for change in made.changes:
        require_sentences(change.name, *(part.as_text()[:MAX_WORDS] for part in change.differences))
    for remark in made.remarks:
        require_sentences(remark.name)
    reconcile.apply(site, made, lambda outcome: require_sentences(outcome.why))


def run_harbor(data: bytes, *, lists: bool) -> None:
    """One answer is another; the first byte says which."""
    recorded, place, raw = harbor()
    kinds = [path for path, answer in recorded if ("x-total-count" in answer.headers) is lists]
    chosen = kinds[data[0] % len(kinds)] if data else kinds[0]
    good = dict(recorded)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method not in ("GET", "HEAD"):
            return streamed(httpx.Response(200, headers={"location": "/7"}, content=CREATED))
        path = request.url.raw_path.decode()
        known = good.get(path, httpx.Response(404))
        if path == chosen:
            return streamed(httpx.Response(200, headers=known.headers, content=data[1:]))
        return streamed(known)

    explained(lambda: reconcile_with(answer, Path(place.name), raw))


def harbor_seeds(*, lists: bool) -> list[bytes]:
    recorded, _, _ = harbor()
    bodies = [answer.content for _, answer in recorded if ("x-total-count" in answer.headers) is lists]
    return [
        bytes([number]) + body
        for number, good in enumerate(bodies)
        for body in (good, differing(good))
        if body.strip() not in (b"[]", b"")
    ]


def differing(body: bytes) -> bytes:
    """The same with other switches and other days, so that its objects are written."""
    return re.sub(rb'("duration": )-?\d+', rb"\g<1>1", body.replace(b"false", b"true"))


def run_harbor_redirect(data: bytes) -> None:
    _, place, raw = harbor()
    headers = [(b"location", header_of(data))]
    explained(
        lambda: reconcile_with(
            lambda _: streamed(httpx.Response(302, headers=headers)), Path(place.name), raw
        )
    )


def run_harbor_login(data: bytes) -> None:
    """A login gives this token and this cookie, each on a line, and all else is as usual."""
    recorded, place, raw = harbor()
    good = dict(recorded)
    token, _, cookie = data.partition(b"\n")
    headers = [(b"x-harbor-csrf-token", header_of(token)), (b"set-cookie", header_of(cookie))]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return streamed(httpx.Response(200 if "cookie" in request.headers else 403, headers=headers))
        return streamed(good.get(request.url.raw_path.decode(), httpx.Response(404)))

    explained(lambda: reconcile_with(answer, Path(place.name), raw))


def run_count(data: bytes) -> None:
    recorded, place, raw = harbor()
    good = dict(recorded)

    def answer(request: httpx.Request) -> httpx.Response:
        known = good.get(request.url.raw_path.decode(), httpx.Response(404))
        other = [(b"x-total-count", header_of(data))] if "x-total-count" in known.headers else []
        return streamed(httpx.Response(known.status_code, headers=other, content=known.content))

    explained(lambda: reconcile_with(answer, Path(place.name), raw))


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("manifest", seeds(IMAGE, LIST), run_manifest),
        Target("index", seeds(LIST, IMAGE), run_index),
        Target("configuration", seeds(CONFIG), run_config),
        Target(
            "challenge",
            seeds(
                f'Bearer realm="https://{REALM}/token",service="a \\"b",scope="repository:a/b:pull"'.encode(),
                b'Basic realm="x"',
            ),
            run_challenge,
        ),
        Target(
            "token", seeds(b'{"token": "abc.def", "expires_in": 300}', b'{"access_token": "abc"}'), run_token
        ),
        Target(
            "error",
            seeds(
                *(bytes([n]) + b'{"errors":[{"code":"DENIED","message":"quota"}]}' for n in range(9)),
                b"\x05120", b"\x08Thu, 01 Jan 2099 00:00:00 GMT",
            ),
            run_error,
        ),
        Target(
            "location",
            seeds(b"/v2/a/b/blobs/uploads/1?state=x", b"https://cdn.example:8443/x?y=%20z", b"http://cdn.example/x"),
            run_location,
        ),
        Target("harbor-lists", partial(harbor_seeds, lists=True), partial(run_harbor, lists=True)),
        Target("harbor-objects", partial(harbor_seeds, lists=False), partial(run_harbor, lists=False)),
        Target("harbor-login", seeds(b"token\nsid=1234; Path=/; HttpOnly"), run_harbor_login),
        Target("harbor-redirect", seeds(b"https://harbor.example/c/oidc/login", b"/x"), run_harbor_redirect),
        Target("harbor-count", seeds(b"1", b"250", b"0"), run_count),
    )
}  # fmt: skip
