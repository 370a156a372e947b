"""Does the registry that the training image comes from answer this node?"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from typing import Any

HTTPS_PORT = 443
CERTIFICATES = "/etc/docker/certs.d"
ANSWER_S = 10.0


def endpoint_of(image: str) -> tuple[str, int] | None:
    """Host and port of the registry in an image's name; None where the name has none."""
    first, slash, _ = image.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        return None
    host, _, port = first.partition(":")
    return host, int(port) if port.isdigit() else HTTPS_PORT


def registry(image: str) -> dict[str, Any]:
    """The status of GET /v2/, or the ``stage`` where it failed (name, connect, tls, http) and ``because``.

    Looked at as Docker does: the certificate must be good by the system's authorities or the registry's own.
    """
    endpoint = endpoint_of(image)
    if endpoint is None:
        return {"skipped": "the training image names no registry"}
    host, port = endpoint
    record: dict[str, Any] = {"host": host, "port": port, "status": None, "stage": "", "because": ""}
    connection: http.client.HTTPConnection | None = None
    try:
        record["stage"] = "name"
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        record["stage"] = "connect"
        with socket.create_connection((host, port), timeout=ANSWER_S):
            pass
        record["stage"] = "tls"
        connection = http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=trust(host, port))
        connection.connect()
        record["stage"] = "http"
        connection.request("GET", "/v2/")
        record["status"] = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        record["because"] = str(
            getattr(error, "verify_message", "") or getattr(error, "strerror", "") or error
        )
    finally:
        if connection is not None:
            connection.close()
    return record


def trust(host: str, port: int) -> ssl.SSLContext:
    """The authorities that Docker trusts for this registry."""
    context = ssl.create_default_context()
    own = os.path.join(CERTIFICATES, f"{host}:{port}", "ca.crt")  # noqa: PTH118
    if os.path.exists(own):  # noqa: PTH110
        context.load_verify_locations(own)
    return context
