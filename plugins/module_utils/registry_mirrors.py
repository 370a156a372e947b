# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""One model of mirrors, and what each engine wants to read of it: pure, from settings to texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MARK = "# Written by clusterctl.\n"
# The registry behind a name in image references, where it is another.
UPSTREAM_SERVERS = {"docker.io": "https://registry-1.docker.io"}
# For every registry without a file of its own; see docs/hosts.md of containerd.
ANY_OTHER = "_default"
URL = re.compile(r"(https?)://([^/\s\"@]+)(?:/([^\s\"?#]*))?")


@dataclass(frozen=True)
class Mirror:
    """Where images of ``upstream`` come from instead; ``fallback`` asks the upstream itself in the end."""

    upstream: str
    scheme: str
    host: str
    path: str
    fallback: bool

    @property
    def base(self) -> str:
        """The mirror without its path."""
        return f"{self.scheme}://{self.host}"

    @property
    def endpoint(self) -> str:
        """The mirror as hosts.toml wants it: the path stands behind /v2."""
        return f"{self.base}/v2/{self.path}" if self.path else self.base

    @property
    def location(self) -> str:
        """The mirror as registries.conf wants it."""
        return f"{self.host}/{self.path}" if self.path else self.host


def read_mirrors(declared: Iterable[Mapping[str, Any]], *, fail_closed: bool) -> dict[str, list[Mirror]]:
    """The declared mirrors by upstream, in their order. Raises ValueError for one that no engine could use.

    An upstream is a fallback only where all its mirrors say so.
    """
    by_upstream: dict[str, list[Mirror]] = {}
    for one in declared:
        upstream, found = str(one["upstream"]).strip(), URL.fullmatch(str(one["url"]).strip())
        if not found:
            raise ValueError(f"{one['url']} is not an address of a mirror; write https://HOST[:PORT][/PATH]")
        if not re.fullmatch(r"[A-Za-z0-9.-]+(:\d+)?", upstream):
            raise ValueError(
                f"{upstream!r} is not an upstream; write it as images name it, for example docker.io"
            )
        scheme, host, path = found[1], found[2], (found[3] or "").strip("/")
        path = path.removeprefix("v2/")
        fallback = bool(one.get("fallback", True)) and not fail_closed
        by_upstream.setdefault(upstream, []).append(Mirror(upstream, scheme, host, path, fallback))
    return by_upstream


def falls_back(mirrors: Sequence[Mirror]) -> bool:
    """Whether the upstream itself is asked when no mirror has the image."""
    return all(mirror.fallback for mirror in mirrors)


def hosts_toml(upstream: str, mirrors: Sequence[Mirror], ca: str, credentials: Mapping[str, str]) -> str:
    """An upstream's file for containerd, and for Docker where it reads such files.

    ``credentials``: the value of the header `authorization` by host; only that host is sent it, by https.
    Without a fallback the last mirror stands once more where the upstream would: there is nobody else to ask.
    It needs its table `host` all the same: containerd 1.6 takes no file without one, and asks the upstream.
    """
    last = None if falls_back(mirrors) else mirrors[-1]
    if last is None:
        text = f'{MARK}server = "{UPSTREAM_SERVERS.get(upstream, f"https://{upstream}")}"\n'
    else:
        text = f'{MARK}server = "{last.endpoint}"\n' + _how(last, ca, "")
        text += _header("header", _of(credentials, last), "")
    for mirror in mirrors:
        table = f'host."{mirror.endpoint}"'
        text += f"\n[{table}]\n" + _how(mirror, ca, "  ")
        text += _header(f"{table}.header", _of(credentials, mirror), "  ")
    return text


def own_hosts_toml(address: str, ca: str, credentials: Mapping[str, str]) -> str:
    """The file of the registry itself, or of any other registry where this one is asked for all."""
    return hosts_toml(address, [Mirror(address, "https", address, "", fallback=False)], ca, credentials)


def _of(credentials: Mapping[str, str], mirror: Mirror) -> str:
    """The mirror's own header, by https alone; a name with its port is the name without it."""
    if mirror.scheme != "https":
        return ""
    bare = mirror.host.removesuffix(":443")
    return credentials.get(mirror.host) or credentials.get(bare) or credentials.get(f"{bare}:443", "")


def _how(mirror: Mirror, ca: str, indent: str) -> str:
    lines = ['capabilities = ["pull", "resolve"]']
    lines += [f'ca = "{ca}"'] if ca and mirror.scheme == "https" else []
    lines += ["override_path = true"] if mirror.path else []
    return "".join(f"{indent}{line}\n" for line in lines)


def _header(table: str, authorization: str, indent: str) -> str:
    if not authorization:
        return ""
    return f'{indent}[{table}]\n{indent}  authorization = "{authorization}"\n'


def registries_conf(by_upstream: Mapping[str, Sequence[Mirror]]) -> str:
    """A drop-in of registries.conf for Podman, CRI-O and skopeo.

    Without a fallback the last mirror is the location: every reference is rewritten to it.
    """
    text = MARK
    for upstream, mirrors in by_upstream.items():
        hosts, last = (list(mirrors), None) if falls_back(mirrors) else (list(mirrors[:-1]), mirrors[-1])
        text += f'\n[[registry]]\nprefix = "{upstream}"\nlocation = "{last.location if last else upstream}"\n'
        text += "insecure = true\n" if last and last.scheme == "http" else ""
        for mirror in hosts:
            text += f'\n[[registry.mirror]]\nlocation = "{mirror.location}"\n'
            text += "insecure = true\n" if mirror.scheme == "http" else ""
    return text


def unusable_by_daemon(by_upstream: Mapping[str, Sequence[Mirror]]) -> list[str]:
    """Why Docker's registry-mirrors cannot do what is declared; none where they can."""
    reasons = []
    for upstream, mirrors in by_upstream.items():
        if upstream != "docker.io":
            reasons.append(f"it mirrors only docker.io, not {upstream}")
            continue
        reasons += [f"it takes no path in {m.base}/{m.path}" for m in mirrors if m.path]
        if not falls_back(mirrors):
            reasons.append("it always asks docker.io itself in the end")
    return reasons


def daemon_mirrors(by_upstream: Mapping[str, Sequence[Mirror]]) -> list[str]:
    """The value of registry-mirrors in Docker's daemon.json."""
    return [mirror.base for mirror in by_upstream.get("docker.io", ()) if not mirror.path]


def credentials_of(config: str) -> dict[str, str]:
    """The header `authorization` by host, from a Docker client's config.json; {} for a text that is none."""
    try:
        auths = json.loads(config).get("auths", {})
    except (ValueError, AttributeError):
        return {}
    return {host: f"Basic {one['auth']}" for host, one in auths.items() if one.get("auth")}


def without_secrets(text: str) -> str:
    """A file's text as it may be shown."""
    return re.sub(r'(authorization = ")[^"]*', r"\1***", text)
