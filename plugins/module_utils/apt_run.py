# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""How apt-get is run: no questions, no secret in its environment, and what was interrupted is completed."""

from __future__ import annotations

import fcntl
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies, RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.file_limit import with_file_limit
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import os_release, read_text
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_answer
from ansible_collections.clusterctl.cluster.plugins.module_utils.no_proxy import direct_hosts, quoted
from ansible_collections.clusterctl.cluster.plugins.module_utils.supported_systems import (
    CODE as UNSUPPORTED_SYSTEM,
)

LOCK_WAIT_S = 600
QUIET = {
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_SUSPEND": "1",  # services are restarted by the roles, in order
}
# apt waits for dpkg's lock by itself, and for that of the package lists not at all.
LISTS_LOCKED = re.compile(r"Could not get lock (\S+/lists/lock)")
INTERRUPTED = "dpkg was interrupted"
APT_GET = [
    "apt-get",
    "--quiet",
    "--yes",
    "--no-install-recommends",
    "--allow-downgrades",
    "--allow-change-held-packages",  # our own holds; others are refused before
    "-o", "Dpkg::Options::=--force-confdef",
    "-o", "Dpkg::Options::=--force-confold",
    "-o", "APT::Keep-Downloaded-Packages=true",  # archives drop old versions, and a rollback needs them
    "-o", "Acquire::Retries=3",
]  # fmt: skip
REINSTALL = [*APT_GET, "--no-remove", "--reinstall", "install"]
CONFIGURE = ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"]


def settings(proxies: Proxies, root: Path = Path("/")) -> str:
    """Apt's configuration for one run: how long to wait for dpkg's lock, and the site's proxies.

    Of ``no_proxy`` apt itself knows names and domains: a source at an address of a network is named here.
    """
    lines = [f'DPkg::Lock::Timeout "{LOCK_WAIT_S}";']
    if proxies.http:
        lines.append(f'Acquire::http::Proxy "{quoted(proxies.http)}";')
    # apt's https takes the proxy of http where it has none of its own.
    if proxies.http or proxies.https:
        lines.append(f'Acquire::https::Proxy "{quoted(proxies.https) or "DIRECT"}";')
        lists = [root / "etc/apt/sources.list", *sorted((root / "etc/apt/sources.list.d").glob("*.*"))]
        direct = direct_hosts("\n".join(read_text(path) for path in lists), proxies.no_proxy)
        lines += [
            f'Acquire::{scheme}::Proxy::{host} "DIRECT";' for host in direct for scheme in ("http", "https")
        ]
    return "\n".join(lines) + "\n"


def require_apt(module: AnsibleModule, root: Path = Path("/")) -> None:
    """Ends the module with the system's name where packages do not come by apt."""
    if not (root / "var/lib/dpkg/status").exists():
        module.fail_json(
            msg=f"This host's system is not supported ({os_release(root)['name']}): it has no dpkg. "
            "Run clusterctl preflight: it lists the supported systems.",
            code=UNSUPPORTED_SYSTEM,
        )


@contextmanager
def environment(proxies: Proxies) -> Iterator[dict[str, str]]:
    """The environment to run apt-get in, for as long as its configuration lies in a file of root's alone.

    apt reads APT_CONFIG first: what the node's own configuration says has the last word.
    """
    with tempfile.TemporaryDirectory(prefix="clusterctl-") as directory:
        path = Path(directory) / "apt.conf"
        path.touch(mode=0o600)
        path.write_text(settings(proxies), encoding="utf-8")
        direct = {"no_proxy": proxies.no_proxy} if proxies.no_proxy else {}
        yield {**QUIET, **direct, "APT_CONFIG": str(path)}


def proxies_of(params: Mapping[str, Any]) -> Proxies:
    """The proxies that a module was given."""
    return Proxies(params["http_proxy"], params["https_proxy"], params["no_proxy"])


def mask_done(module: AnsibleModule, argv: list[str], done: tuple[int, str, str]) -> tuple[int, str, str]:
    """What a program did, without the passwords in the module's addresses, which a proxy may say again."""
    code, output, error = done
    addresses = module.params.values()
    if code != 0 or "update" in argv:  # otherwise it is data
        output = mask_answer(output, addresses)
    return code, output, mask_answer(error, addresses)


@contextmanager
def runner(module: AnsibleModule) -> Iterator[RunFull]:
    """Runs programs in apt's environment, by the proxies that the module was given."""
    with environment(proxies_of(module.params)) as variables:

        def run(argv: list[str]) -> tuple[int, str, str]:
            limited = with_file_limit(argv) if "update" in argv else argv
            return mask_done(module, argv, module.run_command(limited, environ_update=variables))

        yield run


def update(run: RunFull, options: Sequence[str] = ()) -> tuple[int, str, str]:
    """Reads the package lists, after whoever reads them now: apt-daily does so after every boot."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        code, output, error = run(["apt-get", "-q", *options, "update"])
        locked = LISTS_LOCKED.search(error)
        if code == 0 or not locked or not _wait_for(Path(locked.group(1).rstrip(".")), deadline):
            return code, output, error


def _wait_for(lock: Path, deadline: float) -> bool:
    """Whether the lock of another program is free before the deadline."""
    while time.monotonic() < deadline:
        try:
            with lock.open("r+b") as stream:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        except BlockingIOError:
            time.sleep(0.5)  # lockf knows no time limit
        except OSError:
            return False
    return False


def completing(run: RunFull, argv: list[str]) -> tuple[int, str, str]:
    """Run apt-get; if an interrupted dpkg stands in its way, complete that one, and run it again."""
    done = run(argv)
    # apt says so with dpkg's lock in hand: nobody else is in the middle of anything.
    interrupted = done[0] != 0 and INTERRUPTED in done[2]
    configured = run(CONFIGURE) if interrupted else (0, "", "")
    unpacked = unpack_again(run)
    if not interrupted and not unpacked:
        return done
    done = run(argv)
    return configured if configured[0] != 0 and INTERRUPTED in done[2] else done


def unpack_again(run: RunFull) -> bool:
    """Have packages unpacked whose unpacking was interrupted; whether there were any.

    dpkg does not configure them, and apt leaves them alone, unless it is asked to reinstall them. After an
    interrupted upgrade dpkg names the version before, which archives may have dropped.
    """
    broken = half_unpacked(run)
    if broken:
        run([*REINSTALL, *(f"{name}={version}" for name, version in broken.items())])
        if left := half_unpacked(run):
            run([*REINSTALL, *left])
    return bool(broken)


def half_unpacked(run: RunFull) -> dict[str, str]:
    """Versions of the packages that dpkg requires to be reinstalled."""
    _, output, _ = run(["dpkg-query", "-W", "-f", "${binary:Package}|${Version}|${Status}\\n"])
    lines = (line.split("|") for line in output.splitlines() if line.count("|") == 2)
    return {name: version for name, version, status in lines if "reinstreq" in status}
