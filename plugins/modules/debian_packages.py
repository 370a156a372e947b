#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian packages in one transaction, with exact versions and holds; honest in check mode."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import Change, explain
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import (
    proxies_of,
    require_apt,
    runner,
    update,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_sources import find_source
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import (
    foreign_holds,
    install,
    mark,
    removals,
    simulate,
    simulate_whole,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import (
    RunFull,
    make_view,
    proxy_configuration,
    source_stanza,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_managers import APT
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_task import (
    ARGUMENTS,
    Status,
    ensure_packages,
    fail_if_held,
    held_of,
    our_holds,
)

DOCUMENTATION = r"""
module: debian_packages
short_description: Install Debian packages in one transaction, with versions and holds
description:
  - Installs what is missing or of another version in one transaction, keeps conffiles, removes nothing else.
  - In check mode the same transaction is simulated, with package lists of its own, also over a repository
    that is not configured yet; if these cannot be read, it reports what it would ask for, and warns.
  - The transaction is simulated first. A hold that someone else put is respected, also on what comes along.
  - A transaction that was interrupted half-way, by a reboot say, is completed first.
options:
  packages:
    description: Package names, or C(name=version) for one of a version of its own
    type: list
    elements: str
    required: true
  version:
    description: Version that all packages must have, with or without Debian's revision.
    type: str
    default: ""
  hold:
    description: Hold the packages at what is installed; false releases holds of ours.
    type: bool
    default: false
  busy:
    description: Why a package that is installed must not change now; "" where it may. It is said, and left.
    type: str
    default: ""
  adopt:
    description: Packages of another source that do the same; when one is installed nothing is done.
    type: list
    elements: str
    default: []
  repository_url:
    description: Repository that the packages come from, for check mode; "" for those that are configured.
    type: str
    default: ""
  repository_suite: {description: Suite of this repository, type: str, default: "/"}
  repository_components: {description: Components of this repository, type: str, default: ""}
  http_proxy: {description: Proxy for http, type: str, default: ""}
  https_proxy: {description: Proxy for https, type: str, default: ""}
  no_proxy: {description: Hosts to reach without a proxy, type: str, default: ""}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Install the toolkit
  clusterctl.cluster.debian_packages:
    packages: [nvidia-container-toolkit, nvidia-container-toolkit-base]
    version: 1.18.1
    hold: true
"""

RETURN = r"""
installed: {description: Packages that the transaction installs or changes, returned: always, type: list}
held: {description: Packages that are newly held, returned: always, type: list}
released: {description: Packages that we held and hold no more, returned: always, type: list}
changes: {description: Versions before and after by package, returned: always, type: dict}
adopted: {description: Installed package that does the same, returned: always, type: str}
versions: {description: Version of each package afterwards, returned: always, type: dict}
code:
  description: "Stable code of the failure: host.unsupported-system, packages.held or packages.locked"
  returned: when the cause is known
  type: str
"""

ROOT = Path("/")


def parse_status(text: str) -> Status:
    """Lines `package|version|want status` of dpkg-query -> {package: (version, held)}, installed ones."""
    packages = {}
    for line in text.splitlines():
        name, version, status = line.split("|")
        want, _, state = status.split(" ")
        if state == "installed":
            packages[name] = (version, want == "hold")
    return packages


def complaints(out: str, err: str) -> list[str]:
    """apt's own lines about what went wrong."""
    return [mask_urls(line) for line in (err + out).splitlines() if line.startswith(("E:", "Err:", "W:"))]


class AptPackages:
    """apt and dpkg, as the packages' task uses them."""

    manager = APT

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    def status(self, names: list[str]) -> Status:
        """dpkg's view of `names`; unknown ones are absent."""
        query = ["dpkg-query", "-W", "-f", "${Package}|${Version}|${Status}\n", *names]
        return parse_status(self.module.run_command(query)[1])

    def request(self, name: str, version: str) -> str:
        """`name` or `name=version`; a version without a revision is one of any."""
        return f"{name}={version}" if "-" in version else f"{name}={version}-*" if version else name

    def foretell(self, asked: dict[str, str]) -> tuple[dict[str, Change], str]:
        """Simulates over lists of its own, as an apply would read them, else over those that the node has."""
        params, wanted, complaint = self.module.params, list(asked.values()), ""
        url, suite = params["repository_url"], params["repository_suite"]
        absent = bool(url) and not find_source(ROOT, url, suite)
        source = source_stanza(url, suite, params["repository_components"], "Trusted: yes")
        for fresh in (True, False):
            with tempfile.TemporaryDirectory(prefix="clusterctl-") as directory, runner(self.module) as run:
                options = make_view(
                    ROOT,
                    Path(directory),
                    source=source if absent else "",
                    proxy=proxy_configuration(url, proxies_of(params)) if absent else "",
                    fresh_lists=fresh,
                )
                if fresh:
                    update(run, options)
                changes, error = simulate(run, wanted, options)
                if error:
                    self._refuse_over_holds(run, wanted, options)
            if not error:
                self._refuse(wanted, changes, held_of(self.status(list(changes))))
                return changes, ""
            complaint = complaint or explain(error)
        return {}, complaint

    def transact(self, asked: dict[str, str]) -> dict[str, Change]:
        """Updates the lists and installs what is asked for at once; our holds stay."""
        with runner(self.module) as run:
            # A source that has nothing to do with us may be down: it matters only if packages are missed.
            _, update_out, update_err = update(run)
            wanted = list(asked.values())
            changes, complaint = simulate_whole(run, wanted)
            rc, out, err = 1, "", complaint
            if complaint:
                self._refuse_over_holds(run, wanted, [])
            else:
                held = held_of(self.status(list(changes)))
                self._refuse(wanted, changes, held)
                rc, out, err = install(run, wanted, ["--no-remove"])
                mark(run, "hold", held)
        if rc != 0:
            self._fail(wanted, (complaints(out, err) + complaints(update_out, update_err)), err or out)
        return changes

    def _refuse_over_holds(self, run: RunFull, wanted: list[str], options: list[str]) -> None:
        """Ends the module if apt finds no way only since it leaves alone what somebody else holds."""
        changes, _ = simulate(run, wanted, [*options, "-o", "APT::Ignore-Hold=true"])
        held = held_of(self.status(list(changes))) if changes else set()
        fail_if_held(self.module, self, wanted, foreign_holds(changes, held, our_holds()))

    def _refuse(self, wanted: list[str], changes: dict[str, Change], held: set[str]) -> None:
        """Ends the module if somebody else holds what would change, or something would be removed."""
        fail_if_held(self.module, self, wanted, foreign_holds(changes, held, our_holds()))
        if lost := removals(changes):
            self._fail(wanted, [f"E: apt would remove {', '.join(lost)}"], "")

    def _fail(self, wanted: list[str], answer: Iterable[str], output: str) -> None:
        said = list(answer) or [output.strip()]
        self.module.fail_json(
            msg=f"{', '.join(wanted)} could not be installed: {' '.join(said[:4])}. "
            "See that this host reaches its package sources and that they have this version.",
            stderr_lines=mask_urls(output).splitlines()[-30:],
        )

    def hold(self, names: list[str]) -> None:
        """Holds packages at what is installed."""
        self.module.run_command(["apt-mark", "hold", *names], check_rc=True)

    def release(self, names: list[str]) -> None:
        """Lifts holds."""
        self.module.run_command(["apt-mark", "unhold", *names], check_rc=True)


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    require_apt(module)
    ensure_packages(module, AptPackages(module))


if __name__ == "__main__":
    main()
