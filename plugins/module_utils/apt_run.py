# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""How apt-get is run: no questions, no secret in its environment, and what was interrupted is completed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies, RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text
from ansible_collections.clusterctl.cluster.plugins.module_utils.no_proxy import direct_hosts

LOCK_WAIT_S = 600
QUIET = {
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_SUSPEND": "1",  # services are restarted by the roles, in order
}
INTERRUPTED = "dpkg was interrupted"
CONFIGURE = ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"]


def settings(proxies: Proxies, root: Path = Path("/")) -> str:
    """Apt's configuration for one run: how long to wait for dpkg's lock, and the site's proxies.

    Of ``no_proxy`` apt itself knows names and domains: a source at an address of a network is named here.
    """
    lines = [f'DPkg::Lock::Timeout "{LOCK_WAIT_S}";']
    if proxies.http:
        lines.append(f'Acquire::http::Proxy "{proxies.http}";')
    # apt's https takes the proxy of http where it has none of its own.
    if proxies.http or proxies.https:
        lines.append(f'Acquire::https::Proxy "{proxies.https or "DIRECT"}";')
        lists = [root / "etc/apt/sources.list", *sorted((root / "etc/apt/sources.list.d").glob("*.*"))]
        direct = direct_hosts("\n".join(read_text(path) for path in lists), proxies.no_proxy)
        lines += [
            f'Acquire::{scheme}::Proxy::{host} "DIRECT";' for host in direct for scheme in ("http", "https")
        ]
    return "\n".join(lines) + "\n"


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


def completing(run: RunFull, argv: list[str]) -> tuple[int, str, str]:
    """Run apt-get; if an interrupted dpkg stands in its way, complete that one, and run it again."""
    code, output, error = run(argv)
    # apt says so with dpkg's lock in hand: nobody else is in the middle of anything.
    if code == 0 or INTERRUPTED not in error:
        return code, output, error
    code, output, error = run(CONFIGURE)
    return (code, output, error) if code != 0 else run(argv)
