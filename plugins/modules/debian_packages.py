#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian packages in one transaction, with exact versions and holds; honest in check mode."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import require_apt, runner, update
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import (
    foreign_holds,
    install,
    mark,
    removals,
    simulate_whole,
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
  - In check mode it says what it would do, also where the repository or Python's bindings are not there yet.
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
adopted: {description: Installed package that does the same, returned: always, type: str}
versions: {description: Version of each package afterwards, returned: always, type: dict}
code:
  description: "Stable code of the failure: host.unsupported-system, packages.held or packages.locked"
  returned: when the cause is known
  type: str
"""


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

    def transact(self, asked: dict[str, str]) -> None:
        """Updates the lists and installs what is asked for at once; our holds stay."""
        with runner(self.module) as run:
            # A source that has nothing to do with us may be down: it matters only if packages are missed.
            _, update_out, update_err = update(run)
            wanted = list(asked.values())
            changes, complaint = simulate_whole(run, wanted)
            rc, out, err = 1, "", complaint
            if not complaint:
                held = held_of(self.status(list(changes)))
                fail_if_held(self.module, self, wanted, foreign_holds(changes, held, our_holds()))
                if lost := removals(changes):
                    err = f"E: apt would remove {', '.join(lost)}"
                else:
                    rc, out, err = install(run, wanted, ["--no-remove"])
                    mark(run, "hold", held)
        if rc != 0:
            answer = (complaints(out, err) + complaints(update_out, update_err)) or [err.strip()]
            self.module.fail_json(
                msg=f"{', '.join(wanted)} could not be installed: {' '.join(answer[:4])}. "
                "See that this host reaches its package sources and that they have this version.",
                rc=rc,
                stderr_lines=mask_urls(err or out).splitlines()[-30:],
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
