"""GPG signatures where the site says that they lie: a web server or a directory, one file a signature.

https://github.com/containers/image/blob/main/docs/signature-protocols.md
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from clusterctl.cluster.bounded_file import UnusableFileError, read_bounded
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.signatures.claim import RefusedSignatureError
from clusterctl.registry.images.signatures.simple_signing import MAX_SIGNATURE_BYTES
from clusterctl.registry.oci import errors
from clusterctl.registry.oci.client import CONNECT_S
from clusterctl.registry.oci.endpoint import RegistryEndpoint, transport
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.retry import RetryPolicy

# As many as containers/image reads.
MAX_SIGNATURES = 128
MAX_REDIRECTS = 3
SILENCE_S = 30.0
# For one signature as a whole, however slowly it comes.
DEADLINE_S = 60.0


def read_signatures(
    base: str, repository: str, digest: str, endpoint: RegistryEndpoint, retry: RetryPolicy
) -> Iterator[bytes]:
    """Each signature of a manifest below ``base``, until there are no more.

    Raises RegistryError where the server fails, RefusedSignatureError for a file that is too large, and
    ClusterctlError (``images.signature-location``) for a directory that cannot be read.
    """
    folder = f"{base}/{repository}@{digest.replace(':', '=')}"
    if urlsplit(base).scheme == "file":
        yield from _from_directory(Path(unquote(urlsplit(folder).path)))
        return
    client = httpx.Client(
        transport=transport(endpoint),
        trust_env=False,
        timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
        headers={"User-Agent": "clusterctl", "Accept-Encoding": "identity"},
    )
    with client:
        for number in range(1, MAX_SIGNATURES + 1):
            content = _download(client, httpx.URL(f"{folder}/signature-{number}"), retry)
            if content is None:
                return
            yield content


def _from_directory(folder: Path) -> Iterator[bytes]:
    for number in range(1, MAX_SIGNATURES + 1):
        file = folder / f"signature-{number}"
        try:
            yield read_bounded(file, MAX_SIGNATURE_BYTES)
        except FileNotFoundError:
            return
        except UnusableFileError as error:
            raise RefusedSignatureError(f"in {file.name} {error}") from None
        except OSError as error:
            raise ClusterctlError(
                f"signatures of images cannot be read: {error.strerror}",
                code="images.signature-location",
                where=str(file),
                hint="images_signatures_lookaside names the directory; is it there, and may we read it?",
                exit_code=EXIT_CLUSTER_BAD,
            ) from None


def _download(client: httpx.Client, url: httpx.URL, retry: RetryPolicy) -> bytes | None:
    """One file; None if it is not there. Asked again as registries are."""
    what = f"signature {url.path}"
    attempt = 1
    while True:
        if retry.stop.is_set():
            raise errors.stopped(url.host)
        try:
            response = _get(client, url, what)
        except httpx.HTTPError as error:
            failure = errors.not_reached(error, url.host, what)
        else:
            if response.status_code == HTTPStatus.NOT_FOUND:
                return None
            if response.status_code == HTTPStatus.OK:
                return response.content
            failure = errors.refused(response, url.host, what)
        if failure.lasting or attempt >= retry.attempts:
            raise failure
        retry.pause(attempt, failure.after)
        attempt += 1


def _get(client: httpx.Client, url: httpx.URL, what: str) -> httpx.Response:
    """Ask once, redirects followed, and read no more than a signature has."""
    deadline = time.monotonic() + DEADLINE_S
    asked = url
    for _ in range(MAX_REDIRECTS + 1):
        with client.stream("GET", asked) as response:
            if response.has_redirect_location:
                asked = _target(asked, response.headers["location"], what)
                if asked.scheme != "https" and (asked.scheme, asked.host) != (url.scheme, url.host):
                    raise _failed(url, what, "it sends us to a place without TLS")
                continue
            content = bytearray()
            for piece in response.iter_raw(4096):
                content += piece
                if len(content) > MAX_SIGNATURE_BYTES:
                    raise RefusedSignatureError(f"has more than {MAX_SIGNATURE_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise _failed(url, what, f"it took more than {DEADLINE_S:.0f} s")
            after = {name: response.headers[name] for name in ("retry-after",) if name in response.headers}
            return httpx.Response(response.status_code, headers=after, content=bytes(content))
    raise _failed(url, what, f"it redirects more than {MAX_REDIRECTS} times")


def _target(url: httpx.URL, location: str, what: str) -> httpx.URL:
    try:
        return url.join(location)
    except httpx.InvalidURL:
        raise _failed(url, what, "it sends us to a place that is none") from None


def _failed(url: httpx.URL, what: str, because: str) -> RegistryError:
    return RegistryError(
        f"{url.host} does not give a signature: {because}",
        code="images.signature-location",
        where=f"{url.host}: {what}",
        hint="See the server that images_signatures_lookaside names.",
    )
