"""The name of an image: registry, repository, and a tag or a digest."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

import httpx

from clusterctl.cluster.image_names import DIGEST, REPOSITORY, TAG
from clusterctl.errors import ClusterctlError

DOCKER_HUB = "docker.io"
# Docker Hub answers under another name than the one in the names of images.
HOSTS = {DOCKER_HUB: "registry-1.docker.io"}
PLAIN = "http://"
LOCAL_NAME = "localhost"
LAST_PORT = 65535
# Labels of a name in DNS have 1 to 63 letters.
HOST = re.compile(
    r"((?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*(?<!-)|\[[0-9a-fA-F:]+\])(:(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Reference:
    """One image as people name it. ``plain`` is http without TLS, which only this machine may be asked by."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""
    plain: bool = False

    def __str__(self) -> str:
        scheme = PLAIN if self.plain else ""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{scheme}{self.registry}/{self.repository}{tag}{digest}"

    @property
    def host(self) -> str:
        """Whom to ask: host and port."""
        return HOSTS.get(self.registry, self.registry)

    @property
    def wanted(self) -> str:
        """What to ask for: the digest if there is one, else the tag."""
        return self.digest or self.tag or "latest"


def parse(text: str) -> Reference:
    """Read the name of an image, in Docker's words. Raises ClusterctlError (``images.reference``)."""
    plain = text.startswith(PLAIN)
    rest = text.removeprefix(PLAIN)
    rest, _, digest = rest.partition("@")
    head, slash, path = rest.partition("/")
    named = slash and (plain or head == LOCAL_NAME or any(mark in head for mark in ".:"))
    registry, path = (head, path) if named else (DOCKER_HUB, rest)
    path, colon, tag = path.partition(":")
    if registry in ("index.docker.io", HOSTS[DOCKER_HUB]):
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    wrong = _wrong(registry, path, tag if colon else None, digest if "@" in text else None)
    if wrong:
        raise ClusterctlError(
            f"{text[:300]!r} is not a name of an image: {wrong}",
            code="images.reference",
            hint="For example: docker.io/paddlepaddle/paddle:3.3.1-gpu-cuda12.9-cudnn9.9",
        )
    if plain and not is_this_machine(registry):
        raise ClusterctlError(
            f"{registry} would be asked without TLS",
            code="images.reference",
            where=text,
            hint="Plain http is only for a registry on this machine; name the image without http://.",
        )
    return Reference(registry, path, tag, digest, plain)


def is_this_machine(host: str) -> bool:
    """Whether the host (and port) is a loopback address."""
    name = host.rpartition(":")[0] if re.search(r":[0-9]+$", host) else host
    try:
        return name == LOCAL_NAME or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def in_url(host: str) -> str:
    """A name or address as it stands in a URL: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def is_address(url: str) -> bool:
    """Whether this is a URL of a host with a name that can be looked up, by http or https."""
    try:
        found = httpx.URL(url)
        host, port = found.host.removesuffix("."), found.port
        host.encode("idna")
    except (httpx.InvalidURL, ValueError):
        return False
    is_port = port is None or 0 < port <= LAST_PORT
    return found.scheme in ("http", "https") and all(host.split(".")) and is_port


def _wrong(registry: str, path: str, tag: str | None, digest: str | None) -> str:
    host = HOST.fullmatch(registry)
    if not host or not is_address(f"https://{registry}"):
        return f"{registry[:300]!r} is not a host"
    if not REPOSITORY.fullmatch(path):
        return f"{path[:300]!r} is not a path (at most 255 small letters, digits, and . _ - between them)"
    if tag is not None and not TAG.fullmatch(tag):
        return f"{tag!r} is not a tag"
    if digest is not None and not DIGEST.fullmatch(digest):
        return f"{digest!r} is not a digest (sha256: and 64 hexadecimal digits)"
    return ""
