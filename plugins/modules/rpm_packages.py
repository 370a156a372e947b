#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""RPMs in one transaction of dnf, with exact versions and locks; honest in check mode."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import Change
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import (
    foreign_holds,
    removals,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.dnf_run import (
    dnf_runner,
    explain,
    repository_view,
    require_dnf,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.dnf_transaction import (
    Transaction,
    install,
    simulate,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_managers import DNF
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_task import (
    ARGUMENTS,
    Status,
    ensure_packages,
    fail_if_held,
    our_holds,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import rpm_packages
from ansible_collections.clusterctl.cluster.plugins.module_utils.version_locks import PLUGIN, write_locks

DOCUMENTATION = r"""
module: rpm_packages
short_description: Install RPMs in one transaction of dnf, with versions and locks
description:
  - Installs what is missing or of another version in one transaction, removes nothing else.
  - Holds by dnf's versionlock, whose plugin is installed where it is missing.
  - In check mode the same transaction is simulated, also over a repository that is not configured yet;
    if that cannot be read, it reports what it would ask for, and warns.
  - The transaction is simulated first. A hold that someone else put is respected, also on what comes along.
options:
  packages:
    description: Package names, or C(name=version) for one of a version of its own
    type: list
    elements: str
    required: true
  version:
    description: Version that all packages must have, with or without release.
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
  repository_suite: {description: Of apt's repositories, type: str, default: "/"}
  repository_components: {description: Of apt's repositories, type: str, default: ""}
  http_proxy: {description: Proxy for http, type: str, default: ""}
  https_proxy: {description: Proxy for https, type: str, default: ""}
  no_proxy: {description: Hosts to reach without a proxy, type: str, default: ""}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Install the toolkit
  clusterctl.cluster.rpm_packages:
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


class DnfPackages:
    """dnf and rpm, as the packages' task uses them."""

    manager = DNF

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    def status(self, names: list[str]) -> Status:
        """rpm's view of `names`; unknown ones are absent."""
        installed, held = rpm_packages(self.module.run_command, ROOT)
        return {name: (installed[name], name in held) for name in names if name in installed}

    def request(self, name: str, version: str) -> str:
        """`name` or `name-version`; a version without a release is one of any."""
        return f"{name}-{version}" if version else name

    def foretell(self, asked: dict[str, str]) -> tuple[dict[str, Change], str]:
        """Simulates, with the repository that the packages come from."""
        url = self.module.params["repository_url"]
        with repository_view(ROOT, url) as (view, _), dnf_runner(self.module, ROOT, view) as run:
            wanted = [*asked.values(), *self._plugin(run)]
            installed, held = rpm_packages(run, ROOT)
            outcome, complaint = simulate(run, Transaction(wanted), installed, ["--refresh"])
        if complaint:
            return {}, explain(complaint)
        self._refuse(wanted, outcome.changes, held)
        return outcome.changes, ""

    def transact(self, asked: dict[str, str]) -> dict[str, Change]:
        """Installs what is asked for at once; our locks follow the versions."""
        with dnf_runner(self.module, ROOT) as run:
            wanted = [*asked.values(), *self._plugin(run)]
            installed, held = rpm_packages(run, ROOT)
            # The repository may have been added since dnf read its lists.
            outcome, complaint = simulate(run, Transaction(wanted), installed, ["--refresh"])
            output = complaint
            if not complaint:
                self._refuse(wanted, outcome.changes, held)
                _, out, err = install(run, Transaction(wanted))
                output = f"{err}\n{out}"
            after, _ = rpm_packages(run, ROOT)
        is_unchanged = bool(outcome.changes) and after == installed
        if complaint or is_unchanged or any(name not in after for name in asked):
            self._fail(list(asked.values()), output)
        self._lock([name for name in our_holds() & held if name in after])
        return outcome.changes

    def _refuse(self, wanted: list[str], changes: dict[str, Change], held: set[str]) -> None:
        """Ends the module if somebody else holds what would change, or something would be removed."""
        fail_if_held(self.module, self, wanted, foreign_holds(changes, held, our_holds()))
        if lost := removals(changes):
            self._fail(wanted, f"Error: dnf would remove {', '.join(lost)}")

    def _fail(self, wanted: list[str], output: str) -> None:
        self.module.fail_json(
            msg=f"{', '.join(wanted)} could not be installed: {explain(output)}. "
            "See that this host reaches its package sources and that they have this version.",
            stderr_lines=mask_urls(output).splitlines()[-30:],
        )

    def hold(self, names: list[str]) -> None:
        """Locks packages at what is installed."""
        with dnf_runner(self.module, ROOT) as run:
            if plugin := self._plugin(run):
                _, out, err = install(run, Transaction(plugin))
                if self._plugin(run):
                    self.module.fail_json(
                        msg=f"{PLUGIN}, which holds packages, could not be installed: {explain(err + out)}. "
                        "See that this host reaches its package sources."
                    )
        self._lock(names)

    def release(self, names: list[str]) -> None:
        """Lifts locks."""
        write_locks(ROOT, names, {})

    def _lock(self, names: list[str]) -> None:
        installed, _ = rpm_packages(self.module.run_command, ROOT)
        write_locks(ROOT, names, {name: installed[name] for name in names})

    def _plugin(self, run: RunFull) -> list[str]:
        """The plugin that locks versions, if it is wanted and missing."""
        missing = self.module.params["hold"] and PLUGIN not in rpm_packages(run, ROOT)[0]
        return [PLUGIN] if missing else []


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    require_dnf(module, ROOT)
    ensure_packages(module, DnfPackages(module))


if __name__ == "__main__":
    main()
