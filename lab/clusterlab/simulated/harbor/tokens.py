"""Simulated by clusterlab: Harbor's token service. Who may pull and push is what the stand-in's API knows."""

from __future__ import annotations

import base64
import hmac
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .api import projects, robots, system
from .api.store import Store

KEY, CERTIFICATE = "/etc/core/private_key.pem", "/etc/token/root.crt"
LIFE_S = 1800
ADMIN = "admin"


def granted(store: Store, user: str, robot: dict[str, Any] | None, scope: str) -> dict[str, Any] | None:
    """What of one scope (`repository:library/paddle:pull,push`) is allowed; None where nothing is."""
    kind, _, rest = scope.partition(":")
    name, _, actions = rest.rpartition(":")
    if kind != "repository":
        return None
    project = projects.named(store, name.partition("/")[0])
    if project is None:
        return None
    allowed = set(actions.split(","))
    if user != ADMIN:
        given = {"pull"} if str(project["metadata"].get("public")) == "true" else set()
        denied: set[str] = set()
        for permission in robots._permissions(store, robot["scopes"]) if robot else []:
            if permission["namespace"] in ("*", project["name"]):
                for access in permission["access"]:
                    if access["resource"] == "repository":
                        (denied if access.get("effect") == "deny" else given).add(access["action"])
        allowed &= given - denied
    if system.configuration(store)["read_only"]:
        allowed -= {"push", "delete"}
    return {"type": kind, "name": name, "actions": sorted(allowed)} if allowed else None


def part(value: Any) -> str:
    """One part of a token."""
    raw = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token(user: str, service: str, access: list[dict[str, Any]]) -> str:
    """Signed with the key whose certificate the registry trusts."""
    pem = Path(CERTIFICATE).read_text(encoding="ascii")
    der = "".join(line for line in pem.splitlines() if not line.startswith("-----"))
    now = int(time.time())
    head = {"typ": "JWT", "alg": "RS256", "x5c": [der]}
    claims = {"iss": "harbor-token-issuer", "sub": user, "aud": service, "exp": now + LIFE_S,
              "nbf": now - 30, "iat": now, "jti": os.urandom(8).hex(), "access": access}  # fmt: skip
    said = f"{part(head)}.{part(claims)}"
    signed = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", KEY], input=said.encode(), capture_output=True, check=True
    )
    return f"{said}.{part(signed.stdout)}"


class Handler(BaseHTTPRequestHandler):
    """GET /service/token?service=...&scope=..."""

    store: Store
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Anonymous is somebody; a wrong password is nobody."""
        asked = parse_qs(urlsplit(self.path).query)
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        name, password, robot = "", "", None
        if kind.lower() == "basic":
            name, _, password = base64.b64decode(encoded).decode().partition(":")
            known = system.configuration(self.store)["admin_password"]
            is_admin = name == ADMIN and hmac.compare_digest(known.encode(), password.encode())
            robot = None if is_admin else robots.who(self.store, name, password)
            if not is_admin and robot is None:
                self._answer(401, {"errors": [{"code": "UNAUTHORIZED", "message": "unauthorized"}]})
                return
        scopes = [one for text in asked.get("scope", []) for one in text.split(" ")]
        access = [one for scope in scopes if (one := granted(self.store, name, robot, scope))]
        said = token(name, asked.get("service", [""])[0], access)
        self._answer(200, {"token": said, "expires_in": LIFE_S})

    def _answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Simulated", "clusterlab")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until told to end."""
    Handler.store = Store(sys.argv[1])
    ThreadingHTTPServer(("0.0.0.0", 8081), Handler).serve_forever()  # noqa: S104 - in a container


if __name__ == "__main__":
    main()
