"""GPG signatures where the site says that they lie: a web server or a directory, one file a signature.

https://github.com/containers/image/blob/main/docs/signature-protocols.md
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from clusterctl.cluster.bounded_file import UnusableFileError, read_bounded
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.signatures.claim import RefusedSignatureError
from clusterctl.registry.images.signatures.simple_signing import MAX_SIGNATURE_BYTES
from clusterctl.registry.oci import errors, exchange
from clusterctl.registry.oci.client import CONNECT_S
from clusterctl.registry.oci.deadline import within
from clusterctl.registry.oci.endpoint import RegistryEndpoint, transport
from clusterctl.registry.oci.retry import RetryPolicy

# As many as containers/image reads.
MAX_SIGNATURES = 128
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
        cookies=exchange.NoCookies(),
        timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
        headers={"User-Agent": "clusterctl", "Accept-Encoding": "identity"},
        event_hooks={"request": [endpoint.told().attach_to]},
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
            with within(DEADLINE_S):
                response = exchange.read(exchange.send(client, "GET", url), MAX_SIGNATURE_BYTES)
        except httpx.HTTPError as error:
            failure = errors.not_reached(error, url.host, what)
        else:
            if response.status_code == HTTPStatus.NOT_FOUND:
                return None
            if response.status_code != HTTPStatus.OK:
                failure = errors.refused(response, url.host, what)
            elif len(response.content) > MAX_SIGNATURE_BYTES:
                raise RefusedSignatureError(f"has more than {MAX_SIGNATURE_BYTES} bytes")
            else:
                return response.content
        if failure.lasting or attempt >= retry.attempts:
            raise failure
        retry.pause(attempt, failure.after)
        attempt += 1
