# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""A view of apt as it would be: sources, preferences and lists in a directory of its own."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ansible_collections.clusterctl.cluster.plugins.module_utils.no_proxy import is_direct, quoted

# argv -> (exit code, standard output, standard error)
RunFull = Callable[[list[str]], tuple[int, str, str]]


# Passwords of sources may stand there.
PRIVATE = ("sources.list.d", "preferences.d")


@dataclass(frozen=True)
class Proxies:
    """How the site reaches the world; empty where it does so directly."""

    http: str = ""
    https: str = ""
    no_proxy: str = ""

    def for_url(self, url: str) -> str:
        """The proxy for a URL; empty for direct."""
        parts = urlsplit(url)
        if is_direct(parts.hostname or "", self.no_proxy):
            return ""
        return self.https if parts.scheme == "https" else self.http


def proxy_configuration(url: str, proxies: Proxies) -> str:
    """The apt configuration that sends one host's traffic through the site's proxy; empty for direct."""
    parts = urlsplit(url)
    proxy = quoted(proxies.for_url(url))
    return f'Acquire::{parts.scheme}::Proxy::{parts.hostname} "{proxy}";\n' if proxy else ""


def source_stanza(url: str, suite: str, components: str, options: str) -> str:
    """One deb822 source; `options` are its further lines."""
    lines = ["Types: deb", f"URIs: {url}", f"Suites: {suite}"]
    lines += [f"Components: {components}"] if components else []
    return "\n".join([*lines, options, ""])


def _sandbox(directory: Path) -> dict[str, str]:
    """What has apt's own user read the network, as where lists are kept: it gets to what it writes.

    So may others: sources and preferences, which root reads, are nobody else's.
    """
    try:
        user = pwd.getpwnam("_apt")
    except KeyError:
        return {"APT::Sandbox::User": "root"}
    for name in PRIVATE:
        (directory / name).chmod(0o700)
    for place in (directory, *(directory / name for name in ("cache", "cache/archives", "lists"))):
        place.chmod(0o711)
    for name in ("cache/archives/partial", "lists/partial"):
        (directory / name).chmod(0o700)
        with suppress(PermissionError):  # apt then reads the network as whoever runs it
            os.chown(directory / name, user.pw_uid, -1)
    return {}


def make_view(
    root: Path,
    directory: Path,
    *,
    preferences: str = "",
    source: str = "",
    proxy: str = "",
    fresh_lists: bool,
) -> list[str]:
    """Writes the view under `directory` and returns the arguments that make apt use it.

    `preferences` and `source` are added to the node's own; `fresh_lists` starts from no package lists.
    """
    apt = root / "etc/apt"
    for name in (*PRIVATE, "cache/archives/partial", "lists/partial"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    sandbox = _sandbox(directory)
    for name in PRIVATE:
        for path in sorted((apt / name).glob("*")):
            if path.is_file():
                shutil.copy(path, directory / name / path.name)
    if source:
        (directory / "sources.list.d" / "view.sources").write_text(source)
    if preferences:
        (directory / "preferences.d" / "clusterctl-nvidia-driver").write_text(preferences)
    settings = {
        "Dir::Etc::sourceparts": directory / "sources.list.d",
        "Dir::Etc::preferencesparts": directory / "preferences.d",
        "Dir::Cache": directory / "cache",
        **sandbox,
    }
    if fresh_lists:
        settings["Dir::State::lists"] = directory / "lists"
    configuration = directory / "apt.conf"
    configuration.touch(mode=0o600)
    configuration.write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()) + proxy)
    return ["-c", str(configuration)]
