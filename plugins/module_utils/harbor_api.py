# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Harbor's API on the host that runs it: over TLS that is checked, judged by what the answer says."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.http_fetch import ConnectionWatch
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_forms, secret_forms

# Harbor's own default for a request, and a database that is busy with a dump.
ANSWER_S = 60
# Of an answer, and of what is said of it.
ANSWER_BYTES, SAID = 1 << 20, 500
MASK = "(masked)"
HEALTHY = "healthy"
LONGEST_PAUSE_S = 15.0


class HarborError(Exception):
    """Harbor did not do what it was asked, in its own words."""


class _Here(http.client.HTTPSConnection):
    """A connection to this very host, which must show a certificate for Harbor's name."""

    def __init__(self, address: str, port: int, hostname: str, context: ssl.SSLContext) -> None:
        super().__init__(hostname, port, timeout=ANSWER_S, context=context)
        self._address, self._tls = address, context
        self._watch: ConnectionWatch | None = None

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), self.timeout)
        # What wraps it may fail, or never end: it is closed and cut by then.
        self.sock, self._watch = plain, ConnectionWatch(plain, ANSWER_S)
        self.sock = self._secured(plain)

    def _secured(self, plain: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(plain, server_hostname=self.host)

    def is_late(self) -> bool:
        """Whether it was cut."""
        return self._watch is not None and self._watch.late

    def end(self) -> None:
        """Close it; `close` alone is called before an answer is read."""
        if self._watch is not None:
            self._watch.end()
        self.close()


@dataclass(frozen=True)
class Harbor:
    """Where Harbor answers, and who asks. ``authority`` is a file; empty means the system's."""

    hostname: str
    port: int
    authority: str = ""
    user: str = ""
    password: str = ""
    address: str = "127.0.0.1"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request to /api/v2.0; the answer's JSON, None where it has none. Raises HarborError.

        Harbor has ANSWER_S for the connection, and as long for TLS and the answer together. No error says the
        password, whatever Harbor says.
        """
        try:
            return self._ask(method, path, body)
        except HarborError as error:
            raise HarborError(self._public(str(error))) from None

    def _ask(self, method: str, path: str, body: Any) -> Any:
        headers = {"Accept": "application/json"}
        if self.user:
            token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        sent = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            sent = json.dumps(body)
        connection = _Here(self.address, self.port, self.hostname, self._context())
        late = f"no whole answer in {ANSWER_S} seconds"
        try:
            connection.connect()
            connection.request(method, f"/api/v2.0{path}", sent, headers)
            answer = connection.getresponse()
            text = answer.read(ANSWER_BYTES).decode(errors="replace")
        except (OSError, ValueError, http.client.HTTPException) as error:
            because = late if connection.is_late() else error
            raise HarborError(f"{self.hostname}:{self.port} does not answer: {because}") from error
        finally:
            connection.end()
        if connection.is_late():
            raise HarborError(f"{self.hostname}:{self.port} gave {late}")
        if answer.status >= 300:
            raise HarborError(f"{method} {path}: {answer.status} {error_text(text) or answer.reason}")
        try:
            return json.loads(text) if text.strip() else None
        except (ValueError, RecursionError):
            raise HarborError(f"{method} {path}: an answer that is not JSON") from None

    def served(self) -> str:
        """SHA-256 of the certificate that is shown now, whoever signed it. Raises HarborError."""
        context = ssl.create_default_context()
        # One that ended, or of an authority that was replaced, is shown as well as the right one is.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = _Here(self.address, self.port, self.hostname, context)
        try:
            connection.connect()
            shown = connection.sock.getpeercert(binary_form=True)
        except OSError as error:
            because = f"no certificate in {ANSWER_S} seconds" if connection.is_late() else error
            raise HarborError(f"{self.hostname}:{self.port}: {because}") from error
        finally:
            connection.end()
        return hashlib.sha256(shown or b"").hexdigest()

    def unhealthy(self) -> list[str]:
        """Parts that are not healthy, by the body of the answer; none where all are. Raises HarborError."""
        answer = _mapping(self.ask("GET", "/health"))
        components = answer.get("components")
        parts = [
            self._public(f"{part.get('name')} ({part.get('error') or part.get('status')})")
            for part in map(_mapping, components if isinstance(components, list) else [])
            if part.get("status") != HEALTHY
        ]
        return parts or (
            [] if answer.get("status") == HEALTHY else [self._public(f"Harbor ({answer.get('status')})")]
        )

    def read_only(self) -> bool:
        """Whether nothing can be pushed now. Raises HarborError."""
        return bool(_mapping(_mapping(self.ask("GET", "/configurations")).get("read_only")).get("value"))

    def set_read_only(self, value: bool) -> None:
        """Allow pushes, or not. Raises HarborError."""
        self.ask("PUT", "/configurations", {"read_only": value})

    def _public(self, text: str) -> str:
        """Words of Harbor's without the password, in any form in which it was sent or would be quoted."""
        return mask_forms(text, secret_forms(self.password, self.user), MASK)[:SAID]

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.authority or None)
        except OSError as error:
            raise HarborError(f"{self.authority} cannot be read as an authority: {error}") from error


def error_text(text: str) -> str:
    """Harbor's own message in the body of a refusal."""
    try:
        errors = json.loads(text).get("errors") or []
        return "; ".join(f"{error.get('message')}" for error in errors)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return text.strip()


def _mapping(value: Any) -> dict[str, Any]:
    """A part of an answer; nothing where it is something else."""
    return value if isinstance(value, dict) else {}


def insist(action: Callable[[], None], seconds: float) -> None:
    """Try again, ever more seldom, for `seconds`; then raises the last HarborError."""
    deadline, wait = time.monotonic() + seconds, 1.0
    while True:
        try:
            return action()
        except HarborError:
            if time.monotonic() + wait > deadline:
                raise
        time.sleep(wait)  # who refused tells nobody when it would no more
        wait = min(wait * 2, LONGEST_PAUSE_S)


def wait_until_healthy(harbor: Harbor, seconds: float, pause: Callable[[float], None] = time.sleep) -> str:
    """Empty once every part is healthy; else what is wrong after that time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            wrong = ", ".join(harbor.unhealthy())
        except HarborError as error:
            wrong = str(error)
        if not wrong or time.monotonic() > deadline:
            return wrong
        pause(2)
