# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Manifests of the cluster's registry, asked for as this host's Docker would: authorities, user, token."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.http_fetch import Deadline, opened, pieces

MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ASK_S = 10
# A manifest is some kilobytes; whatever is larger is none.
MOST_BYTES = 4 << 20
UNAUTHORIZED = 401
# https://distribution.github.io/distribution/spec/auth/token/
CHALLENGE = re.compile(r'(realm|service|scope)="([^"]*)"')


def fetcher(repository: str, client_config: str, certificates: Path) -> Callable[[str], bytes]:
    """How to read a manifest of ``repository`` (host:port/path) by its digest.

    It raises OSError where nobody answers in time, or not with 200, and ValueError where a token is none, a
    manifest larger than any, or not what has the digest.
    """
    host, _, path = repository.partition("/")
    context = ssl.create_default_context()
    for ca in sorted((certificates / host).glob("*.crt")):
        context.load_verify_locations(ca)
    user = _user(host, client_config)

    def read(url: str, headers: Mapping[str, str]) -> bytes:
        asked = urllib.request.Request(url)  # noqa: S310 (https alone, both places)
        for name, value in headers.items():
            # Who we are is for whom we asked, and for nobody whom that one names.
            add = asked.add_unredirected_header if name == "Authorization" else asked.add_header
            add(name, value)
        deadline = Deadline(ASK_S)
        # A registry of the cluster is never behind the proxy.
        with opened(asked, deadline, context=context) as answer:
            return b"".join(pieces(answer, deadline, MOST_BYTES))

    def fetch(digest: str) -> bytes:
        content = ask(digest)
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise ValueError("the registry answers with what has another digest")
        return content

    def ask(digest: str) -> bytes:
        url = f"https://{host}/v2/{path}/manifests/{digest}"
        accept = {"Accept": ", ".join(MANIFESTS)}
        try:
            return read(url, {**accept, **user})
        except urllib.error.HTTPError as error:
            place = _token_place(error) if error.code == UNAUTHORIZED else ""
            if not place:
                raise
        # Harbor asks even strangers for a token.
        reply = json.loads(read(place, user))
        token = reply.get("token") or reply.get("access_token")
        return read(url, {**accept, "Authorization": f"Bearer {token}"})

    return fetch


def _token_place(refusal: urllib.error.HTTPError) -> str:
    """Where a registry needs a token to be had; empty where it wants none, or one without TLS."""
    challenge = refusal.headers.get("WWW-Authenticate", "")
    words = dict(CHALLENGE.findall(challenge))
    realm = words.pop("realm", "")
    if not challenge.lower().startswith("bearer") or not realm.startswith("https://"):
        return ""
    return f"{realm}?{urllib.parse.urlencode(words)}"


def _user(host: str, client_config: str) -> dict[str, str]:
    try:
        auths = json.loads((Path(client_config) / "config.json").read_text(encoding="utf-8"))["auths"]
        user = base64.b64decode(auths[host]["auth"]).decode()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
