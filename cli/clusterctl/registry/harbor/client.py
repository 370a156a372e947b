"""Harbor's API: requests with retries, lists page by page, and errors in Harbor's own words."""

from __future__ import annotations

import random
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.harbor.answers import ErrorsAnswer, HarborObject, read, read_count, read_list
from clusterctl.registry.harbor.api_errors import READ_ONLY, denied, of_certificate, read_only, unreachable
from clusterctl.registry.harbor.kept import Kept
from clusterctl.registry.harbor.session import TRY_AGAIN, HarborSession
from clusterctl.registry.oci import exchange
from clusterctl.registry.oci.answers import UnreadableError
from clusterctl.registry.oci.deadline import time_left, with_deadlines, within
from clusterctl.registry.oci.endpoint import trust
from clusterctl.registry.oci.errors import NoHostNameError, RegistryError, hidden_by
from clusterctl.registry.oci.hidden import EXTENSION, HiddenSecrets
from clusterctl.registry.oci.loopback import guard_secrets
from clusterctl.registry.oci.retry import retry_after

PATH = "/api/v2.0"
PAGE = 100
# Of one answer, and of a list. Sites have thousands of robots at most, of some kilobytes each.
ANSWER_BYTES, MAX_PAGES = 8 << 20, 200
CONNECTIONS = 8
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
TRIES = 6
# One call with its login, its retries and the pauses between them; a list with all its pages.
CALL_S, LIST_S = 480.0, 900.0
# Harbor's own trouble, as two that wait for each other in its database, is over at once or not soon.
TRIES_OF_ERROR = 3
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
DENIED = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)
# A page may shift under a reader while someone else makes objects.
READS_OF_A_LIST = 3
# A project may be named 2026, which is not a number then.
HEADERS = {"X-Is-Resource-Name": "true", "Accept-Encoding": "identity"}
# The proxy in front of Harbor answers with a page.
TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True)
class Access:
    """Where Harbor is, and who we are there."""

    url: str
    user: str
    password: SecretStr
    authority: Path | None = None
    # What the certificate is for, where the address is a number.
    name: str = ""


class Refused(Exception):
    """Harbor's answer to one request that it did not serve."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: {message} (HTTP {status})")
        self.what = what
        self.status = status
        self.message = message

    @property
    def sentence(self) -> str:
        """Harbor's own words, with the status."""
        return f"{self.message} (HTTP {self.status})"


class BrokenAnswer(Refused):
    """An answer that is not as Harbor's API describes it."""


class TooMuch(BrokenAnswer):
    """More than is read or kept, or what changes faster than it is read."""


class Stopped(Exception):
    """Nobody wants the answer any more: it ends a call, and is told to nobody."""


class Client:
    """One Harbor. Safe to use from several threads; counts its calls.

    Once ``stop`` is set nothing is tried again, and who waits to try again gives up.
    """

    def __init__(
        self,
        access: Access,
        *,
        wait: Callable[[float], object] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.access = access
        self.calls = 0
        self.stop = stop or threading.Event()
        self._wait = wait or self.stop.wait
        self._counting = threading.Lock()
        self._kept: Kept | None = None
        self._own = threading.local()
        password = access.password.get_secret_value()
        # What Harbor was told, and must not tell others by our mouth.
        self.hidden = HiddenSecrets()
        self.hidden.add(password, access.user)
        name = {"sni_hostname": access.name} if access.name else {}
        self._extensions: dict[str, Any] = {EXTENSION: self.hidden, **name}
        self._auth = httpx.BasicAuth(access.user, password)
        self._http = httpx.Client(
            base_url=access.url.rstrip("/") + PATH,
            transport=transport(access),
            timeout=TIMEOUT,
            # The session is brought along by hand.
            cookies=exchange.NoCookies(),
            trust_env=False,
            event_hooks={"request": [guard_secrets]},
        )
        self._session = HarborSession(self._http, httpx.URL(access.url), access.user, password)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """All that is read meanwhile, by any thread, is kept, and bounded together."""
        self._kept = Kept()
        try:
            yield
        finally:
            self._kept = None

    @contextmanager
    def confined(self) -> Iterator[None]:
        """What this thread reads meanwhile has a share of all that is kept; where it breaks off, nothing."""
        self._own.kept = kept = Kept(self._kept or Kept())
        try:
            yield
        except BrokenAnswer:
            kept.give_back()
            raise
        finally:
            self._own.kept = None

    def _keeper(self) -> Kept | None:
        return getattr(self._own, "kept", None) or self._kept

    def get(
        self, what: str, path: str, model: type[HarborObject] = HarborObject, **query: Any
    ) -> dict[str, Any]:
        """One object. Raises Refused."""
        found = self.find(what, path, model, **query)
        if found is None:
            raise BrokenAnswer(what, httpx.codes.OK, "the answer is empty")
        return found

    def find(
        self, what: str, path: str, model: type[HarborObject] = HarborObject, **query: Any
    ) -> dict[str, Any] | None:
        """One object; None where the answer is empty, as Harbor's is for no schedule."""
        answer = self._served("GET", what, path, query=query)
        if kept := self._keeper():
            _keep(kept, what, answer)
        return _content(what, answer, model) if _has_content(answer) else None

    def ask(self, what: str, path: str, **query: Any) -> None:
        """Ask for something that need not be read. Raises Refused."""
        self._served("GET", what, path, query=query)

    def post(
        self,
        what: str,
        path: str,
        body: Mapping[str, Any],
        *,
        model: type[HarborObject] | None = None,
        timeouts: int = TRIES,
    ) -> Created:
        """Make an object, of which Harbor says what ``model`` reads.

        ``timeouts``: after so many tries of a minute without an answer, or with an error of its own, it is
        given up.
        """
        answer = self._served("POST", what, path, body=body, timeouts=timeouts)
        content = _content(what, answer, model) if model else {}
        return Created(what, answer.headers.get("location", ""), content)

    def put(self, what: str, path: str, body: Mapping[str, Any], *, timeouts: int = TRIES) -> None:
        """Replace an object; ``timeouts`` as with ``post``."""
        self._served("PUT", what, path, body=body, timeouts=timeouts)

    def patch(self, what: str, path: str, body: Mapping[str, Any]) -> None:
        """Change a part of an object."""
        self._served("PATCH", what, path, body=body)

    def delete(self, what: str, path: str) -> None:
        """Delete an object; one that is already gone is as wanted."""
        try:
            self._served("DELETE", what, path)
        except Refused as refused:
            if refused.status != httpx.codes.NOT_FOUND:
                raise

    def knows(self, user: str, password: SecretStr) -> bool:
        """Whether someone else may log in with this password. Raises Refused."""
        # Harbor takes a wrong password for an anonymous user, who may not ask this.
        what, path = f"the password of {user}", "/users/current/permissions"
        secret = password.get_secret_value()
        self.hidden.add(secret, user)
        answer = self._asked("GET", what, path, auth=httpx.BasicAuth(user, secret))
        if answer.status_code not in (httpx.codes.OK, httpx.codes.UNAUTHORIZED):
            raise Refused(what, answer.status_code, self._message(answer))
        return answer.is_success

    def is_known(self) -> bool:
        """Whether Harbor still takes our own user and password. Raises Refused."""
        return self.knows(self.access.user, self.access.password)

    def every(
        self, what: str, path: str, model: type[HarborObject], key: str = "id", **query: Any
    ) -> list[dict[str, Any]]:
        """All objects of a list, over all its pages. ``key`` is the field that tells them apart."""
        with within(LIST_S):
            return self._every(what, path, model, key, query)

    def _every(
        self, what: str, path: str, model: type[HarborObject], key: str, query: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        found: dict[Any, dict[str, Any]] = {}
        totals: list[int] = []
        for _ in range(READS_OF_A_LIST):
            found, totals, kept = {}, [], self._keeper() or Kept()
            while not totals or len(totals) * PAGE < totals[-1]:
                if len(totals) == MAX_PAGES:
                    raise TooMuch(what, httpx.codes.OK, f"the list has no end: {len(found)} were read")
                asked = {**query, "page": len(totals) + 1, "page_size": PAGE}
                answer = self._served("GET", what, path, query=asked)
                _keep(kept, what, answer)
                items = _list(what, answer, model)
                found |= {item[key]: item for item in items}
                totals.append(_total(what, answer, len(found)))
                if not items:
                    break
            if set(totals) == {len(found)}:
                return list(found.values())
        seen = f"{len(found)} of {totals[-1]} were seen"
        raise TooMuch(what, httpx.codes.OK, f"the list changed while it was read: {seen}; run it again")

    def _served(
        self,
        method: str,
        what: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        timeouts: int = TRIES,
    ) -> httpx.Response:
        self.hidden.add_from(body or {})
        what = self.hidden.public(what)
        answer = self._asked(method, what, path, query=query, body=body, timeouts=timeouts)
        if answer.is_success:
            return answer
        refused = Refused(what, answer.status_code, self._message(answer))
        if answer.status_code in DENIED:
            if READ_ONLY in refused.message:
                raise read_only(self.access.url) from refused
            raise denied(self.access.url, self.access.user, what, refused.sentence) from refused
        raise refused

    def _asked(
        self,
        method: str,
        what: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        auth: httpx.BasicAuth | None = None,
        timeouts: int = TRIES,
    ) -> httpx.Response:
        """One request, asked again while there is hope and time.

        A POST may have been served though its answer was lost: Harbor then says 409, and is read again.
        """
        with within(CALL_S), self.hidden.kept_out_of_errors():
            return self._retried(lambda: self._sent(method, path, query, body, auth), what, timeouts)

    def _retried(self, send: Callable[[], httpx.Response], what: str, timeouts: int) -> httpx.Response:
        left, mute, broken = TRIES, 0, 0
        while True:
            left -= 1
            with self._counting:
                self.calls += 1
            try:
                answer = send()
            except httpx.TransportError as error:
                mute += isinstance(error, httpx.ReadTimeout)
                cannot_pass = of_certificate(error) or isinstance(error, NoHostNameError)
                if cannot_pass or not left or mute >= timeouts or not time_left():
                    raise unreachable(self.access.url, what, error) from error
                self._rest(_pause(TRIES - left))
                continue
            if not time_left():
                return answer
            if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
                broken += 1
                if not left or broken >= min(TRIES_OF_ERROR, timeouts):
                    return answer
            elif answer.status_code not in TRY_AGAIN or not left:
                return answer
            self._rest(_pause(TRIES - left, answer.headers.get("retry-after", "")))

    def _sent(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        auth: httpx.BasicAuth | None,
    ) -> httpx.Response:
        """The answer to one request, read to its bound. Raises httpx.TransportError."""

        def answered(auth: httpx.BasicAuth | None, session: Mapping[str, str]) -> httpx.Response:
            headers = {**HEADERS, **session}
            request = self._http.build_request(
                method, path, params=query, json=body, headers=headers, extensions=self._extensions
            )
            with within():
                answer = exchange.open_answer(self._http, request, auth)
                return exchange.read(answer, ANSWER_BYTES if answer.is_success else exchange.SHORT_BYTES)

        session = {} if auth else self._session.headers(self._extensions)
        if not session:
            return answered(auth or self._auth, {})
        answer = answered(None, session)
        if answer.status_code not in DENIED:
            return answer
        # Over, or not enough here: the password itself decides.
        answer = answered(self._auth, {})
        if answer.status_code not in DENIED:
            self._session.end()
        return answer

    def _message(self, answer: httpx.Response) -> str:
        """Harbor's own words, from its list of errors; else the beginning of whatever came."""
        hidden = hidden_by(answer.request)
        try:
            words = "; ".join(error["message"] for error in read(ErrorsAnswer, answer.content)["errors"])
        except UnreadableError:
            said = hidden.mask(answer.content.decode(errors="replace"))
            return hidden.public(TAG.sub(" ", said), 200) or answer.reason_phrase
        return hidden.public(words) or answer.reason_phrase

    def _rest(self, seconds: float) -> None:
        """Wait until the next try. Raises Stopped."""
        self._wait(min(seconds, time_left()))
        if self.stop.is_set():
            raise Stopped


@dataclass(frozen=True)
class Created:
    """What Harbor says of an object that it has made."""

    what: str
    location: str
    content: dict[str, Any]

    @property
    def id(self) -> int:
        """The number at the end of its location, by which Harbor knows it. Raises Refused."""
        number = read_count(self.location.rstrip("/").rpartition("/")[2])
        if number is None:
            raise BrokenAnswer(self.what, httpx.codes.CREATED, "its location has no number")
        return number


def transport(access: Access) -> httpx.BaseTransport:
    """Connections to it. Raises ClusterctlError (``registry.api-certificate``)."""
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    made = httpx.HTTPTransport(verify=_trust(access), limits=limits, trust_env=False)
    return with_deadlines(made)


def _trust(access: Access) -> ssl.SSLContext:
    try:
        return trust((access.authority,) if access.authority else ())
    except RegistryError as error:
        raise ClusterctlError(
            f"Harbor's certificate cannot be judged: {error.what}",
            code="registry.api-certificate",
            where=error.where,
            hint="Set registry_api_ca_file to a file in PEM.",
            exit_code=EXIT_CLUSTER_BAD,
        ) from error


def _pause(failed: int, asked: str = "") -> float:
    """Seconds until the next try: what Harbor asks for, else longer each time, never all at once."""
    told = retry_after(asked)
    if told is not None:
        return min(told, LONGEST_WAIT_S)
    ceiling = min(FIRST_WAIT_S * 2 ** (failed - 1), LONGEST_WAIT_S)
    return random.uniform(ceiling / 2, ceiling)  # noqa: S311 - spreads load, guards nothing


def _has_content(answer: httpx.Response) -> bool:
    return bool(answer.content.strip())


def _keep(kept: Kept, what: str, answer: httpx.Response) -> None:
    if why := kept.add(answer.content):
        raise TooMuch(what, answer.status_code, why)


def _content(what: str, answer: httpx.Response, model: type[HarborObject]) -> dict[str, Any]:
    _require_size(what, answer)
    try:
        return read(model, answer.content)
    except UnreadableError as error:
        raise _broken(what, answer, error) from None


def _list(what: str, answer: httpx.Response, model: type[HarborObject]) -> list[dict[str, Any]]:
    _require_size(what, answer)
    try:
        return read_list(model, answer.content) if _has_content(answer) else []
    except UnreadableError as error:
        raise _broken(what, answer, error) from None


def _total(what: str, answer: httpx.Response, seen: int) -> int:
    text = answer.headers.get("x-total-count")
    total = seen if text is None else read_count(text)
    if total is None:
        raise BrokenAnswer(what, answer.status_code, "the answer does not say how many there are")
    return total


def _require_size(what: str, answer: httpx.Response) -> None:
    if len(answer.content) > ANSWER_BYTES:
        raise BrokenAnswer(what, answer.status_code, f"the answer has more than {ANSWER_BYTES} bytes")


def _broken(what: str, answer: httpx.Response, error: UnreadableError) -> BrokenAnswer:
    because = (
        f"the answer is not as Harbor's API describes it: {hidden_by(answer.request).public(str(error))}"
        if error.is_json
        else "the answer is not JSON; is this Harbor's address?"
    )
    return BrokenAnswer(what, answer.status_code, because)
