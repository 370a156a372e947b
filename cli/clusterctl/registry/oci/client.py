"""One registry, asked over HTTP: manifests and blobs, with retries, and errors that say who and what."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import httpx

from clusterctl.cluster.image_names import DIGEST
from clusterctl.registry.oci import errors, exchange, manifest, rate
from clusterctl.registry.oci.deadline import time_left, within
from clusterctl.registry.oci.endpoint import TAKING_S, RegistryEndpoint, transport
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.exchange import SHORT_BYTES, Content
from clusterctl.registry.oci.loopback import guard_secrets
from clusterctl.registry.oci.manifest import Blob, Manifest
from clusterctl.registry.oci.retry import RetryPolicy, may_pass
from clusterctl.registry.oci.tokens import Tokens

CONNECT_S = 15.0
# Between two pieces of one answer.
SILENCE_S = 60.0
# One question whose answer is small, with all retries and pauses.
ASK_S = 600.0
# A registry over object storage puts the pieces of a blob together before it answers.
COMMIT_S = 900.0
PIECE = 1 << 20
GOOD = 300

# What httpx calls a connection that has been made.
CONNECTED = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")


class Registry:
    """One registry. Safe from many threads; a context manager.

    What it raises are RegistryErrors, and ClusterctlError (``images.stopped``) after the last retry.
    """

    def __init__(self, endpoint: RegistryEndpoint, retry: RetryPolicy | None = None) -> None:
        self.endpoint = endpoint
        self.retry = retry or RetryPolicy()
        self.pace = rate.Pace()
        self._hidden = endpoint.told()
        self._tokens = Tokens(
            endpoint.host,
            endpoint.credentials,
            plain=endpoint.plain,
            resolve_own=endpoint.resolve_own,
            resolve_redirect=endpoint.resolve_redirect,
        )
        # What our credentials were taken for last: what tells a scope that we may not have from a registry
        # that knows us no longer.
        self._taken: tuple[httpx.URL, str] | None = None
        errors.require_address(endpoint.base, endpoint.host)
        self._client = httpx.Client(
            transport=transport(endpoint),
            # The proxy is the one that the settings name, for the hosts that they name.
            trust_env=False,
            cookies=exchange.NoCookies(),
            timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S, pool=None),
            # Bytes as they lie there: a blob in a proxy's own compression would be none of its digest.
            headers={"User-Agent": "clusterctl", "Accept-Encoding": "identity"},
            event_hooks={"request": [*self._hooks()]},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def _hooks(self) -> Iterator[Callable[[httpx.Request], None]]:
        yield self._call_by_name
        yield self._have_watched
        yield self._hidden.attach_to
        if self.endpoint.socket is None:  # who may open a socket's file is seen to where it is made
            yield guard_secrets

    def _call_by_name(self, request: httpx.Request) -> None:
        """Ask TLS for the registry's own name, and only there: a redirect may lead to another host."""
        here = httpx.URL(self.endpoint.base)
        kept = {key: value for key, value in request.extensions.items() if key != "sni_hostname"}
        if self.endpoint.name and (request.url.host, request.url.port) == (here.host, here.port):
            kept["sni_hostname"] = self.endpoint.name
        request.extensions = kept

    def _have_watched(self, request: httpx.Request) -> None:
        """Have the connection that it goes over cut, should somebody want an end."""

        def note(event: str, about: dict[str, Any]) -> None:
            if event.endswith(CONNECTED):
                self.retry.stop.watch(about["return_value"].get_extra_info("socket"))

        request.extensions = {**request.extensions, "trace": note}

    def manifest(self, repository: str, wanted: str) -> Manifest:
        """The manifest of a tag or a digest; that of a digest is verified."""
        what = f"manifest {repository}{'@' if DIGEST.fullmatch(wanted) else ':'}{wanted}"
        response = self._ask(
            "GET", f"{repository}/manifests/{wanted}", _pull(repository), what,
            headers={"Accept": manifest.ACCEPTED}, most=manifest.LARGEST,
        )  # fmt: skip
        where = f"{self.endpoint.host}: {what}"
        if len(response.content) > manifest.LARGEST:
            raise _too_large("manifest", where)
        if DIGEST.fullmatch(wanted) and manifest.digest_of(response.content) != wanted:
            raise RegistryError(
                "the manifest is not that of its digest", code="images.corrupt", where=where,
                hint="Its storage is damaged, or something stands in between: see clusterctl explain "
                "images.corrupt",
            )  # fmt: skip
        return manifest.read(response.content, response.headers.get("content-type", ""), where)

    def has_manifest(self, repository: str, digest: str) -> bool:
        """Whether it has the manifest, without reading it."""
        return self._has("manifests", repository, digest, headers={"Accept": manifest.ACCEPTED})

    def has_blob(self, repository: str, digest: str) -> bool:
        """Whether it has the blob, without reading it."""
        return self._has("blobs", repository, digest)

    def small_blob(self, repository: str, blob: Blob) -> bytes:
        """A blob that fits the memory (an image's configuration), verified."""
        what = f"blob {repository}@{blob.digest}"
        if blob.size > manifest.LARGEST:
            raise _too_large("configuration", f"{self.endpoint.host}: {what}")
        path = f"{repository}/blobs/{blob.digest}"
        content = self._ask("GET", path, _pull(repository), what, most=blob.size).content
        if manifest.digest_of(content) != blob.digest:
            raise RegistryError(
                "the blob is not that of its digest", code="images.corrupt",
                where=f"{self.endpoint.host}: {what}", hint="Run the same command again.", lasting=False,
            )  # fmt: skip
        return content

    @contextlib.contextmanager
    def blob(self, repository: str, digest: str, offset: int = 0) -> Iterator[tuple[int, Iterator[bytes]]]:
        """A blob's bytes from ``offset``, asked for once: where they really start, and the pieces.

        A registry that knows no ranges starts at 0. One that is too slow is an error (`rate.fast_enough`).
        """
        what = f"blob {repository}@{digest}"
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        url = f"{self.endpoint.base}{repository}/blobs/{digest}"
        try:
            with contextlib.ExitStack() as opened:
                response = self._once("GET", url, _pull(repository), opened=opened, headers=headers)
                if response.status_code >= GOOD:
                    raise self._refused(response, what)
                start = offset if response.status_code == HTTPStatus.PARTIAL_CONTENT else 0
                # As they come: a piece that were filled up first would be lost with a connection that is cut.
                yield start, rate.fast_enough(response.iter_raw(), self.endpoint.host, what)
        except httpx.HTTPError as error:
            raise errors.not_reached(error, self.endpoint.host, what) from None

    def pieces(self, repository: str, digest: str) -> Iterator[bytes]:
        """All of a blob, asked for once, while the registry keeps its pace."""

        def coming() -> Iterator[bytes]:
            with self.blob(repository, digest) as (_, pieces):
                yield from pieces

        return self.pace.kept(coming(), self.endpoint.host, f"blob {repository}@{digest}")

    def hash_blob(self, repository: str, blob: Blob) -> tuple[str, int]:
        """Read all of a blob: the digest and size of what came. Asked again where it was interrupted.

        More than its own size is not read: a larger size that is returned says that there is more.
        """
        attempt = 1
        while True:
            found, size = hashlib.sha256(), 0
            try:
                for piece in self.pieces(repository, blob.digest):
                    found.update(piece)
                    size += len(piece)
                    if size > blob.size:
                        break
            except RegistryError as error:
                if error.lasting or attempt >= self.retry.attempts:
                    raise
                self.retry.pause(attempt, error.after)
                attempt += 1
            else:
                return f"sha256:{found.hexdigest()}", size

    def mount(self, repository: str, digest: str, origin: str) -> bool:
        """Have the blob of one repository in another, without sending it. False where that is not done."""
        scope = f"{_push(repository)} {_pull(origin)}"
        path = f"{repository}/blobs/uploads/?mount={digest}&from={origin}"
        response = self._ask("POST", path, scope, f"mount {repository}@{digest}")
        if response.status_code == HTTPStatus.CREATED:
            return True
        location = response.headers.get("location", "")
        if location:
            # It has started an upload instead, which nobody wants.
            with contextlib.suppress(httpx.HTTPError, RegistryError):
                self._once("DELETE", self._joined("DELETE", location), scope)
        return False

    def put_blob(self, repository: str, blob: Blob, content: Content) -> None:
        """Send a blob as a whole; the registry verifies it. Sent again, whole, where it was interrupted."""
        what = f"upload {repository}@{blob.digest}"
        attempt = 1
        while True:
            try:
                return self._upload(repository, blob, content, what)
            except RegistryError as error:
                if error.lasting or attempt >= self.retry.attempts:
                    raise
                self.retry.pause(attempt, error.after)
            attempt += 1
            if self.has_blob(repository, blob.digest):
                return None

    def put_manifest(self, repository: str, found: Manifest, name: str = "") -> None:
        """Write a manifest under its digest, or under a tag."""
        what = f"write manifest {repository}{f':{name}' if name else f'@{found.digest}'}"
        response = self._ask(
            "PUT", f"{repository}/manifests/{name or found.digest}", _push(repository), what,
            headers={"Content-Type": found.media_type}, content=found.raw,
        )  # fmt: skip
        got = response.headers.get("docker-content-digest", found.digest)
        if got != found.digest:
            raise RegistryError(
                f"the registry keeps it as {errors.hidden_by(response.request).public(got)}",
                code="images.corrupt",
                where=f"{self.endpoint.host}: {what}",
            )

    def delete_manifest(self, repository: str, digest: str) -> bool:
        """Remove a manifest; False where it was not there."""
        what = f"remove manifest {repository}@{digest}"
        response = self._ask(
            "DELETE", f"{repository}/manifests/{digest}", f"repository:{repository}:delete,pull", what,
            also=(HTTPStatus.NOT_FOUND,),
        )  # fmt: skip
        return response.status_code != HTTPStatus.NOT_FOUND

    def _has(self, kind: str, repository: str, digest: str, headers: Mapping[str, str] | None = None) -> bool:
        response = self._ask(
            "HEAD", f"{repository}/{kind}/{digest}", _pull(repository), f"look for {repository}@{digest}",
            headers=headers, also=(HTTPStatus.NOT_FOUND,),
        )  # fmt: skip
        return response.status_code != HTTPStatus.NOT_FOUND

    def _upload(self, repository: str, blob: Blob, content: Content, what: str) -> None:
        scope = _push(repository)
        begun = self._ask("POST", f"{repository}/blobs/uploads/", scope, what)
        location = self._joined("PUT", begun.headers.get("location", ""), {"digest": blob.digest})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        try:
            response = self._once(
                "PUT", location, scope, headers=headers, content=content,
                timeout=httpx.Timeout(COMMIT_S, write=TAKING_S, connect=CONNECT_S, pool=None),
                # Twice: the source may give it as slowly as we may send it.
                seconds=COMMIT_S + 2 * rate.longest_s(blob.size),
            )  # fmt: skip
        except httpx.HTTPError as error:
            raise errors.not_reached(error, self.endpoint.host, what) from None
        if response.status_code >= GOOD:
            raise self._refused(response, what)

    def _refused(self, response: httpx.Response, what: str) -> RegistryError:
        if response.status_code == HTTPStatus.UNAUTHORIZED and self._are_we_forgotten():
            return errors.forgotten(self.endpoint.host, what)
        return errors.refused(response, self.endpoint.host, what)

    def _are_we_forgotten(self) -> bool:
        """Whether it refuses, or cannot say, what it gave us before."""
        if self._taken is None:
            return False
        url, scope = self._taken
        try:
            response = self._once("HEAD", url, scope, headers={"Accept": manifest.ACCEPTED})
        except (httpx.HTTPError, RegistryError):
            return True
        return response.status_code == HTTPStatus.UNAUTHORIZED or may_pass(response.status_code)

    def _joined(self, method: str, location: str, parameters: Mapping[str, str] | None = None) -> httpx.URL:
        base = httpx.URL(self.endpoint.base)
        with self._hidden.kept_out_of_errors():
            joined = errors.place(location, self.endpoint.host, base, self.endpoint.resolve_own, parameters)
            exchange.require_no_downgrade(base, joined)
            exchange.require_may_change(method, base, joined)
        return joined

    def _ask(
        self,
        method: str,
        path: str,
        scope: str,
        what: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        also: tuple[int, ...] = (),
        most: int = SHORT_BYTES,
    ) -> httpx.Response:
        """Ask until there is an answer that will not change, or retries or ASK_S end."""

        def once() -> httpx.Response:
            url = self.endpoint.base + path
            return self._once(method, url, scope, headers=headers, content=content, most=most)

        with within(ASK_S):
            return self._retried(once, what, also)

    def _retried(
        self, once: Callable[[], httpx.Response], what: str, also: tuple[int, ...]
    ) -> httpx.Response:
        for attempt in range(1, self.retry.attempts + 1):
            try:
                response = once()
            except httpx.HTTPError as error:
                failure = errors.not_reached(error, self.endpoint.host, what)
            except RegistryError as error:
                failure = error  # of who gives tokens
                if error.is_of_login and self._are_we_forgotten():
                    failure = errors.forgotten(self.endpoint.host, what)
            else:
                if response.status_code < GOOD or response.status_code in also:
                    return response
                failure = self._refused(response, what)
            # It may have come to itself between its refusal and what we asked it about us.
            is_asked_again = attempt == 1 and failure.is_of_login and self._taken is not None
            if (failure.lasting and not is_asked_again) or not time_left():
                break
            if attempt < self.retry.attempts:
                self.retry.pause(attempt, failure.after)
        # Who asks for more than this begins no retries of its own.
        failure.lasting = True
        raise failure from None

    def _once(
        self,
        method: str,
        url: str | httpx.URL,
        scope: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | Content | None = None,
        timeout: httpx.Timeout | None = None,
        seconds: float | None = None,
        most: int = SHORT_BYTES,
        opened: contextlib.ExitStack | None = None,
    ) -> httpx.Response:
        """Ask once, and once more where it wants to know who we are; of an answer ``most`` bytes are read.

        Of one that is ``opened`` the body is still to be read. Raises httpx.HTTPError, RegistryError of who
        gives tokens, and ClusterctlError (``images.stopped``).
        """
        base, url = httpx.URL(self.endpoint.base), httpx.URL(url)
        for _ in range(2):
            if self.retry.stop.is_set():
                raise errors.stopped(self.endpoint.host)
            used = self._tokens.header(scope) if exchange.has_same_origin(url, base) else ""
            with within(seconds), self._hidden.kept_out_of_errors():
                response = exchange.send(
                    self._client, method, url, authorization=used, headers=headers, content=content,
                    timeout=timeout, resolve=self.endpoint.resolve_redirect,
                )  # fmt: skip
                is_good = response.status_code < GOOD
                if opened is not None and is_good:
                    opened.callback(response.close)
                    return response
                response = exchange.read(response, most if is_good else SHORT_BYTES)
            # Who is asked by a redirect learns nothing of us.
            asks_us = exchange.has_same_origin(response.request.url, base)
            if response.status_code != HTTPStatus.UNAUTHORIZED or not asks_us:
                is_taken = is_good or response.status_code == HTTPStatus.NOT_FOUND
                if is_taken and used and self.endpoint.credentials and method in ("GET", "HEAD"):
                    self._taken = url, scope
                break
            with self._hidden.kept_out_of_errors():
                if not self._tokens.renew(self._client, response, scope, used):
                    break
        return response


def _too_large(kind: str, where: str) -> RegistryError:
    return RegistryError(
        f"the {kind} is too large to be one: more than {manifest.LARGEST} bytes",
        code="images.manifest", where=where,
    )  # fmt: skip


def _pull(repository: str) -> str:
    return f"repository:{repository}:pull"


def _push(repository: str) -> str:
    return f"repository:{repository}:pull,push"
