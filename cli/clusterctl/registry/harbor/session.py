"""One login for a run: Harbor hashes a password 600,000 times at each call that brings it along."""

from __future__ import annotations

import re
import threading
from typing import Any

import httpx

from clusterctl.registry.oci import exchange
from clusterctl.registry.oci.deadline import locked, within
from clusterctl.registry.oci.errors import SESSION_TOKEN

PATH = "/c/login"
PAIR = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64})=([\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]{1,4096})")
MAX_COOKIES = 8
# Worth another try: too many requests, and a core that is just starting behind its proxy.
TRY_AGAIN = (429, 502, 503)


class HarborSession:
    """A session of Harbor's web pages. Without one, as where Harbor gives none, calls bring the password."""

    def __init__(self, http: httpx.Client, url: httpx.URL, user: str, password: str) -> None:
        self._http = http
        self._url = url.copy_with(path=PATH)
        self._form = {"principal": user, "password": password}
        self._headers: dict[str, str] = {}
        self._lock = threading.Lock()
        self._is_open = self._is_over = False

    def headers(self, extensions: dict[str, Any]) -> dict[str, str]:
        """What a call brings along instead of the password; nothing without a session.

        Raises httpx.TransportError where Harbor does not answer. A login that takes too long is not tried
        again: those who wait for it are many.
        """
        with within(), locked(self._lock):
            if not (self._is_open or self._is_over):
                try:
                    self._log_in(extensions)
                except httpx.ReadTimeout:
                    self._is_over = True
                    raise
            return self._headers

    def end(self) -> None:
        """Harbor takes it no longer: from now on each call brings the password."""
        with self._lock:
            self._is_over, self._headers = True, {}

    def _log_in(self, extensions: dict[str, Any]) -> None:
        """Harbor refuses the first try, and gives the token that it wants with the second."""
        answer = self._posted({}, extensions)
        token = _session_headers(answer)
        if answer.status_code == httpx.codes.FORBIDDEN and token:
            answer = self._posted(token, extensions)
            if answer.status_code == httpx.codes.OK:
                self._headers = _session_headers(answer, token["Cookie"])
        if answer.status_code not in TRY_AGAIN:
            self._is_open, self._is_over = bool(self._headers), not self._headers

    def _posted(self, headers: dict[str, str], extensions: dict[str, Any]) -> httpx.Response:
        sent = {"Accept-Encoding": "identity", **headers}
        request = self._http.build_request(
            "POST", self._url, data=self._form, headers=sent, extensions=extensions
        )
        return exchange.read(exchange.open_answer(self._http, request), exchange.SHORT_BYTES)


def _session_headers(answer: httpx.Response, before: str = "") -> dict[str, str]:
    """The token and the cookies of an answer, after those from ``before``; nothing unless it has both."""
    token = answer.headers.get(SESSION_TOKEN, "")
    pairs = [PAIR.match(text) for text in answer.headers.get_list("set-cookie")[:MAX_COOKIES]]
    # Harbor names its session twice: before and after the login. The later one is open.
    cookies = {found[1]: found[0] for found in pairs if found}
    if not (token and token.isascii() and token.isprintable() and cookies):
        return {}
    return {SESSION_TOKEN: token, "Cookie": "; ".join(filter(None, [before, *cookies.values()]))}
