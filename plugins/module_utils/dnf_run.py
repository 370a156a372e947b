# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""How dnf is run: no questions, no secret in its environment, and by the site's proxies."""

from __future__ import annotations

import configparser
import io
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import mask_done, proxies_of
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies, RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.file_limit import with_file_limit
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import os_release, read_text
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import MASK, mask_urls, without_login
from ansible_collections.clusterctl.cluster.plugins.module_utils.no_proxy import direct_hosts
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import has_rpm
from ansible_collections.clusterctl.cluster.plugins.module_utils.supported_systems import (
    CODE as UNSUPPORTED_SYSTEM,
)

CONFIGURATION = "etc/dnf/dnf.conf"
REPOSITORIES = "etc/yum.repos.d"
CACHE = "/var/cache/dnf"
OURS = {
    "best": "True",  # what was asked for, or an error
    "clean_requirements_on_remove": "False",  # nothing goes that was not named
    "install_weak_deps": "False",
    "keepcache": "True",  # a rollback needs the old packages
    "localpkg_gpgcheck": "True",  # a package that is named by a file or an address must be signed, too
    "module_stream_switch": "True",
    "strict": "True",
}
# What dnf's files can have as the value of an option: `$` would begin one of its variables there. curl ends a
# user at a colon, and libdnf takes a pair of quotes away.
USER = re.compile(r"(?!(['\"]).*\1$)[^\s$:\x00-\x1f\x7f]+")
PASSWORD = re.compile(r"(?!(['\"]).*\1$)[^\s$\x00-\x1f\x7f]*")
LOGIN = re.compile(r"^(\s*(?:username|password)\s*[=:][ \t]*).+", re.MULTILINE)
VIEW = "clusterctl-view"
# A warning of dnf on every host without the versionlock plugin.
NO_PLUGIN = "No matches found for the following disable plugin patterns"
# Messages of dnf that mean that it could not read a repository.
UNREAD = ("Failed to download metadata", "Errors during downloading metadata", "Cannot download repomd.xml")


def configuration(proxies: Proxies, root: Path = Path("/"), view: Path | None = None) -> str:
    """dnf's configuration for one run: the node's own with our options and the site's proxy.

    `view` is a directory with repositories that are not configured yet.
    """
    parser = _configured(root)
    main = parser["main"]
    main.update(OURS)
    proxy = proxies.https or proxies.http
    if proxy and not main.get("proxy"):
        main["proxy"] = proxy
    if view:
        main["reposdir"] = f"{main.get('reposdir', f'/{REPOSITORIES}')},{view}"
    stream = io.StringIO()
    parser.write(stream)
    return stream.getvalue()


def caches(name: str, root: Path = Path("/")) -> list[Path]:
    """Where dnf keeps what it has read of a repository, and the keys of those who sign its index."""
    directory = _configured(root)["main"].get("cachedir", CACHE)
    return list((root / directory.lstrip("/")).glob(f"{name}-{'[0-9a-f]' * 16}"))


def _configured(root: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(read_text(root / CONFIGURATION))
    if not parser.has_section("main"):
        parser.add_section("main")
    return parser


def direct(proxies: Proxies, root: Path = Path("/")) -> str:
    """The site's no_proxy for curl, with the hosts of repositories that it names by their network."""
    files = sorted((root / REPOSITORIES).glob("*.repo"))
    hosts = direct_hosts("\n".join(read_text(path) for path in files), proxies.no_proxy)
    return ",".join(dict.fromkeys([*filter(None, [proxies.no_proxy]), *sorted(hosts)]))


@contextmanager
def environment(
    proxies: Proxies, root: Path = Path("/"), view: Path | None = None
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """How to call dnf and in which environment, while its configuration lies in a file of root's alone."""
    with tempfile.TemporaryDirectory(prefix="clusterctl-") as directory:
        path = Path(directory) / "dnf.conf"
        path.touch(mode=0o600)
        path.write_text(configuration(proxies, root, view), encoding="utf-8")
        hosts = direct(proxies, root)
        yield (
            # Our own locks would be in the way; a lock of somebody else's is refused before.
            ["dnf", "-c", str(path), "--disableplugin=versionlock"],
            {"LC_ALL": "C.UTF-8", **({"no_proxy": hosts} if hosts else {})},
        )


@contextmanager
def dnf_runner(module: AnsibleModule, root: Path = Path("/"), view: Path | None = None) -> Iterator[RunFull]:
    """Runs programs, dnf with our configuration and by the proxies that the module was given."""
    with environment(proxies_of(module.params), root, view) as (dnf, variables):

        def run(argv: list[str]) -> tuple[int, str, str]:
            argv = [*dnf, *argv[1:]] if argv[0] == "dnf" else argv
            # What installs writes packages, which may be longer than any index.
            limited = argv if {"--assumeyes", "shell"} <= set(argv) else with_file_limit(argv)
            return mask_done(module, argv, module.run_command(limited, environ_update=variables))

        yield run


def require_dnf(module: AnsibleModule, root: Path = Path("/")) -> None:
    """Ends the module with the system's name where packages do not come by RPM."""
    if not has_rpm(root):
        module.fail_json(
            msg=f"This host's system is not supported ({os_release(root)['name']}): it has no RPM database. "
            "Run clusterctl preflight: it lists the supported systems.",
            code=UNSUPPORTED_SYSTEM,
        )


def repository(name: str, options: Mapping[str, str]) -> str:
    """One repository as a file of yum.repos.d has it."""
    lines = [f"[{name}]", *(f"{key}={value}" for key, value in options.items()), ""]
    return "\n".join(lines)


def address_options(url: str) -> dict[str, str]:
    """An address as options of a repository, with its login beside it: dnf logs the address for everybody.

    Those that a file of dnf cannot have as an option stay in it.
    """
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not USER.fullmatch(user) or not PASSWORD.fullmatch(password):
        return {"baseurl": url}
    return {"baseurl": without_login(url), "username": user, **({"password": password} if password else {})}


def mask_repository(text: str) -> str:
    """A file of yum.repos.d with all users and passwords in it masked."""
    return LOGIN.sub(rf"\1{MASK}", mask_urls(text))


@dataclass(frozen=True)
class Repository:
    """An enabled repository: its file, and its name there."""

    file: str
    name: str


def find_repository(root: Path, url: str, but_not: str = "") -> Repository | None:
    """The repository that is enabled with this URL and its login, by any key; `but_not` is a file's name."""
    wanted = _comparable(url)
    for path in sorted((root / REPOSITORIES).glob("*.repo")):
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(read_text(path))
        except configparser.Error:
            continue
        for name in parser.sections() if path.name != but_not else []:
            urls = parser.get(name, "baseurl", fallback="").replace(",", " ").split()
            enabled = parser.get(name, "enabled", fallback="1").strip().lower() in ("1", "yes", "true", "on")
            login = [parser.get(name, option, fallback="") for option in ("username", "password")]
            if enabled and wanted in (_comparable(one, *login) for one in urls):
                return Repository(str(path), name)
    return None


@contextmanager
def repository_view(root: Path, url: str, another: str = "") -> Iterator[tuple[Path | None, str]]:
    """A directory with the repositories as they are to be, None where they are there already.

    The name of the first one comes with it; each may be empty.
    """
    found = {one: find_repository(root, one) for one in (url, another) if one}
    absent = [one for one, there in found.items() if not there]
    names = {one: f"{VIEW}-{number}" for number, one in enumerate(absent)}
    names |= {one: there.name for one, there in found.items() if there}
    if not absent:
        yield None, names.get(url, "")
        return
    with tempfile.TemporaryDirectory(prefix="clusterctl-") as directory:
        for one in absent:
            # Nothing is installed from it.
            options = {"name": names[one], **address_options(one), "gpgcheck": "0"}
            text = repository(names[one], options)
            (Path(directory) / f"{names[one]}.repo").write_text(text, encoding="utf-8")
        yield Path(directory), names.get(url, "")


def _comparable(url: str, username: str = "", password: str = "") -> tuple[str, ...]:
    """A URL without what may differ in spelling, and its login, which may stand beside it.

    dnf's variables have their values of RHEL 9.
    """
    machine = os.uname().machine
    url = url.replace("$releasever", "9").replace("$basearch", machine).replace("$arch", machine)
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    if login:
        username, password = unquote(parts.username or ""), unquote(parts.password or "")
    return parts.scheme.lower(), host.lower(), parts.path.strip("/"), username, password


def explain(output: str) -> str:
    """The lines of dnf's complaint that say something, shortened to fit a message."""
    lines = [line.strip() for line in mask_urls(output).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(NO_PLUGIN)]
    problems = [
        line for line in lines if line.startswith(("Error:", "Problem", "- ", "No match", "nothing "))
    ]
    return "; ".join(problems[:6] or lines[-4:])
