"""What a registry refused, as errors that say who refused what, and what to do."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Mapping
from http import HTTPStatus

import httpx

from clustercheck.parse.plain_text import one_line
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_INTERRUPTED, EXIT_USAGE, ClusterctlError
from clusterctl.registry.oci.answers import RegistryAnswer, UnreadableError, read_document
from clusterctl.registry.oci.hidden import EXTENSION, HiddenSecrets
from clusterctl.registry.oci.reference import LAST_PORT
from clusterctl.registry.oci.retry import may_pass, retry_after

# Signed addresses of storage have some thousand characters.
LONGEST_ADDRESS = 8192
# Errors of one answer that are told.
SOME = 10
# https://github.com/opencontainers/distribution-spec/blob/main/spec.md#error-codes
WRONG_BYTES = ("DIGEST_INVALID", "SIZE_INVALID")

# Of Harbor's web pages, beside the cookie.
SESSION_TOKEN = "X-Harbor-CSRF-Token"  # noqa: S105 - a header's name

Resolve = Callable[[httpx.URL], httpx.URL]


class NoHostNameError(httpx.TransportError):
    """What is asked has no name of a host: nobody can be asked, however often."""


class RegistryError(ClusterctlError):
    """A registry did not do what it was asked.

    ``lasting``: asking again is of no use; else ``after`` so many seconds, where it has said so.
    """

    def __init__(
        self,
        what: str,
        *,
        code: str,
        where: str = "",
        hint: str = "",
        lasting: bool = True,
        after: float | None = None,
        exit_code: int = EXIT_CLUSTER_BAD,
    ) -> None:
        super().__init__(what, code=code, where=where, hint=hint, exit_code=exit_code)
        self.lasting = lasting
        self.after = after

    @property
    def is_of_login(self) -> bool:
        """Whether it does not know us, or does not let us."""
        return self.code == "images.login-refused"


def stopped(where: str = "") -> ClusterctlError:
    """What is raised instead of continuing, once somebody needs an end."""
    return ClusterctlError(
        "it was stopped in the middle",
        code="images.stopped",
        where=where,
        hint="Run the same command again: what has come is kept, and it continues where it stopped.",
        exit_code=EXIT_INTERRUPTED,
    )


def refused(response: httpx.Response, host: str, what: str) -> RegistryError:
    """The error for an answer that is none of those wanted."""
    status, output = response.status_code, message(response)
    where = f"{host}: {what}"
    after = retry_after(response.headers.get("retry-after", ""))
    # Harbor answers 403 for a quota, too, which no credentials change.
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and "quota exceeded" not in output.lower():
        hint = "Name a file with credentials: images_auth_file for sources, images_push_auth_file for ours."
        return RegistryError(
            f"{host} refuses our credentials, or wants some: {output}",
            code="images.login-refused", where=where, hint=hint, exit_code=EXIT_USAGE,
        )  # fmt: skip
    if status == HTTPStatus.NOT_FOUND:
        return RegistryError(
            f"{host} does not have it: {output}", code="images.not-found", where=where,
            hint="Compare path, tag and digest with what the registry lists; private images may look absent.",
        )  # fmt: skip
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RegistryError(
            f"{host} lets us ask no more for now: {output}", code="images.rate-limited", where=where,
            hint="Run it again later: it continues where it stopped. Credentials often raise the limit.",
            lasting=False, after=after,
        )  # fmt: skip
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return RegistryError(
            f"{host} fails with {status}: {output}", code="images.registry-fails", where=where,
            hint="See the registry's own log, and its disk; then run the same command again.",
            lasting=not may_pass(status), after=after,
        )  # fmt: skip
    if any(word in output for word in WRONG_BYTES):
        return RegistryError(
            f"{host} got other bytes than the digest says: {output}", code="images.corrupt", where=where,
            hint="Run the same command again: what was wrong is not kept.",
        )  # fmt: skip
    return RegistryError(
        f"{host} refuses with {status}: {output}", code="images.refused", where=where,
        hint="Is there a quota, a read-only mode, or a rule for immutable tags?",
        lasting=not may_pass(status), after=after,
    )  # fmt: skip


def forgotten(host: str, what: str) -> RegistryError:
    """The error for a registry that refuses credentials which it took before, for the same.

    A Harbor whose database does not respond takes everybody for a stranger.
    """
    return RegistryError(
        f"{host} refuses the credentials that it took before", code="images.registry-fails",
        where=f"{host}: {what}", lasting=False,
        hint="Its database may be down (a Harbor then knows nobody), or the credentials were changed: see "
        "the registry's own log; then run the same command again.",
    )  # fmt: skip


class _ErrorEntry(RegistryAnswer):
    # Registries behind proxies say numbers, too.
    code: str | int | None = None
    message: str | None = None


class _ErrorAnswer(RegistryAnswer):
    errors: tuple[_ErrorEntry, ...]


def place(
    text: str,
    host: str,
    base: httpx.URL | None,
    resolve: Resolve,
    parameters: Mapping[str, str | list[str]] | None = None,
) -> httpx.URL:
    """Where a registry sends us, from ``base`` on, with our ``parameters``.

    Raises RegistryError where that is not an address.
    """
    try:
        return resolve(_address(text, base).copy_merge_params(dict(parameters or {})))
    except httpx.InvalidURL as error:
        because = one_line(str(error))
        raise RegistryError(
            f"{one_line(host)} sends us to a place that is none: {because}", code="images.registry-fails",
            where=one_line(text),
            hint="See the registry's own address (Harbor: hostname, external_url), and proxies before it.",
        ) from None  # fmt: skip


def require_address(base: str, host: str) -> None:
    """Refuse what nobody can be asked at. Raises RegistryError (``images.unreachable``)."""
    try:
        _address(base, None)
    except httpx.InvalidURL as error:
        raise RegistryError(
            f"{one_line(host)} is no address of a registry: {one_line(str(error))}",
            code="images.unreachable", where=one_line(host), exit_code=EXIT_USAGE,
            hint="Host and port, as in harbor.example:443. Correct it where it is set: "
            "images_source_addresses, registry_address, or the command's own option.",
        ) from None  # fmt: skip


def _address(text: str, base: httpx.URL | None) -> httpx.URL:
    if len(text) > LONGEST_ADDRESS:
        raise httpx.InvalidURL(f"an address of {len(text)} characters")
    try:
        found = httpx.URL(text) if base is None else base.join(text)
        if not (found.scheme in ("http", "https") and found.host):
            raise httpx.InvalidURL("neither http:// nor https:// with a host")
        if (found.port or 0) > LAST_PORT:
            raise httpx.InvalidURL(f"no port {found.port}")
        found.host.encode("idna")
    except UnicodeError as error:
        raise httpx.InvalidURL(f"its host has no name that can be looked up: {error}") from None
    except ValueError as error:
        raise httpx.InvalidURL(str(error)) from None
    # Who we are is not for it to say.
    return found.copy_with(userinfo=b"")


def message(response: httpx.Response) -> str:
    """The registry's own words, cut to a line."""
    try:
        errors = read_document(_ErrorAnswer.model_validate_json, response.content).errors
    except UnreadableError:
        errors = ()
    words = "; ".join(
        f"{'' if entry.code is None else entry.code} {entry.message or ''}".strip() for entry in errors[:SOME]
    )
    return hidden_by(response.request).public(words) or f"HTTP {response.status_code}"


def hidden_by(request: httpx.Request) -> HiddenSecrets:
    """What went to a server with the request, and what its client has told it before."""
    known = request.extensions.get(EXTENSION)
    hidden = HiddenSecrets(known if isinstance(known, HiddenSecrets) else None)
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    hidden.add(sent)
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            hidden.add(base64.b64decode(sent).decode().partition(":")[2])
    hidden.add(request.headers.get(SESSION_TOKEN, ""))
    for pair in request.headers.get("cookie", "").split("; "):
        hidden.add(pair.partition("=")[2])
    return hidden


def words_of(error: Exception) -> str:
    """What an exchange failed with, in a line: it may quote what a server sent."""
    hidden = HiddenSecrets()
    with contextlib.suppress(RuntimeError, AttributeError):  # one of before anything was sent
        hidden = hidden_by(error.request)  # type: ignore[attr-defined]
    return hidden.public(str(error)) or type(error).__name__


def not_reached(error: httpx.HTTPError, host: str, what: str) -> RegistryError:
    """The error for a registry that gave no whole answer."""
    answer = words_of(error)
    if "CERTIFICATE_VERIFY_FAILED" in answer:
        return RegistryError(
            f"the certificate of {host} is not one that we trust: {answer}", code="images.certificate",
            where=f"{host}: {what}",
            hint="Expired, or of an authority that is not known here: images_ca_file names one more.",
        )  # fmt: skip
    if isinstance(error, NoHostNameError):
        return RegistryError(
            f"{host} cannot be asked: {answer}", code="images.unreachable", where=f"{host}: {what}",
            hint="Correct the address of the proxy: site_https_proxy.",
        )  # fmt: skip
    return RegistryError(
        f"{host} gives no whole answer: {answer}", code="images.unreachable", where=f"{host}: {what}",
        hint="Is it up, and is there a way to it (DNS, a proxy, a firewall)? Then run it again.",
        lasting=False,
    )  # fmt: skip
