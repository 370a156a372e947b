#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian packages in one transaction, with exact versions and holds; honest in check mode."""

from __future__ import annotations

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import (
    LOCK_WAIT_S,
    require_apt,
    runner,
    update,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import (
    LOCK,
    foreign_holds,
    install,
    mark,
    removals,
    simulate_whole,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import RunFull
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import alone
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file

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

HOLDS = Path("/var/lib/clusterctl/holds.json")


def satisfies(installed: str, wanted: str) -> bool:
    """Whether version `installed` is `wanted`; `1.18.1` asks for any Debian revision of it."""
    if not wanted:
        return bool(installed)
    return installed == wanted or installed.startswith(f"{wanted}-")


def parse_status(text: str) -> dict[str, tuple[str, bool]]:
    """Lines `package|version|want status` of dpkg-query -> {package: (version, held)}, installed ones."""
    packages = {}
    for line in text.splitlines():
        name, version, status = line.split("|")
        want, _, state = status.split(" ")
        if state == "installed":
            packages[name] = (version, want == "hold")
    return packages


def wishes(packages: list[str], version: str) -> dict[str, str]:
    """Wanted version by package name; "" where any serves."""
    return {name: own or version for name, _, own in (package.partition("=") for package in packages)}


def requests(wanted: dict[str, str], status: dict[str, tuple[str, bool]]) -> list[str]:
    """What apt-get is asked for: `name` or `name=version`, of packages that are not as wanted."""
    asked = []
    for name, version in wanted.items():
        if not satisfies(status.get(name, ("", False))[0], version):
            asked.append(
                f"{name}={version}" if "-" in version else f"{name}={version}-*" if version else name
            )
    return asked


def names_of(asked: list[str]) -> list[str]:
    """The packages of what apt-get is asked for."""
    return [request.partition("=")[0] for request in asked]


def held_of(status: dict[str, tuple[str, bool]]) -> set[str]:
    """Installed packages that are held, by whomever."""
    return {name for name, (_, held) in status.items() if held}


def replaced(asked: list[str], status: dict[str, tuple[str, bool]]) -> list[str]:
    """Installed packages that would be of another version afterwards."""
    return [request for request in asked if request.partition("=")[0] in status]


def read_status(module: AnsibleModule, names: list[str]) -> dict[str, tuple[str, bool]]:
    """dpkg's view of `names`; unknown ones are absent."""
    out = module.run_command(["dpkg-query", "-W", "-f", "${Package}|${Version}|${Status}\n", *names])[1]
    return parse_status(out)


def our_holds() -> set[str]:
    """Packages that an earlier run of ours held."""
    return set(json.loads(HOLDS.read_text(encoding="utf-8"))) if HOLDS.is_file() else set()


def complaints(out: str, err: str) -> list[str]:
    """apt's own lines about what went wrong."""
    return [mask_urls(line) for line in (err + out).splitlines() if line.startswith(("E:", "Err:", "W:"))]


def fail_if_held(module: AnsibleModule, asked: list[str], blocked: list[str]) -> None:
    """Ends the module if somebody else holds what would change."""
    if blocked:
        module.fail_json(
            msg=f"{', '.join(asked)} is asked for, but someone else holds {', '.join(blocked)}. "
            f"Lift the hold with `apt-mark unhold {' '.join(blocked)}`, or declare the installed version.",
            code="packages.held",
        )


def transact(module: AnsibleModule, run: RunFull, asked: list[str]) -> None:
    """Updates the lists and installs `asked` at once; our holds stay."""
    # A source that has nothing to do with us may be down: it matters only if packages are missed.
    _, update_out, update_err = update(run)
    changes, complaint = simulate_whole(run, asked)
    rc, out, err = 1, "", complaint
    if not complaint:
        held = held_of(read_status(module, list(changes)))
        fail_if_held(module, asked, foreign_holds(changes, held, our_holds()))
        if lost := removals(changes):
            err = f"E: apt would remove {', '.join(lost)}"
        else:
            rc, out, err = install(run, asked, ["--no-remove"])
            mark(run, "hold", held)
    if rc != 0:
        answer = (complaints(out, err) + complaints(update_out, update_err)) or [err.strip()]
        module.fail_json(
            msg=f"{', '.join(asked)} could not be installed: {' '.join(answer[:4])}. "
            "See that this host reaches its package sources and that they have this version.",
            rc=rc,
            stderr_lines=mask_urls(err or out).splitlines()[-30:],
        )


def hold(module: AnsibleModule, names: list[str]) -> None:
    """Record that we hold `names`, then hold them: no hold of ours may pass for another party's."""
    replace_file(HOLDS, json.dumps(sorted(our_holds() | set(names))), 0o644)
    module.run_command(["apt-mark", "hold", *names], check_rc=True)


def release(module: AnsibleModule, names: list[str]) -> None:
    """Lift holds of ours for good."""
    module.run_command(["apt-mark", "unhold", *names], check_rc=True)
    replace_file(HOLDS, json.dumps(sorted(our_holds() - set(names))), 0o644)


def leave(module: AnsibleModule, moving: list[str], status: dict[str, tuple[str, bool]]) -> None:
    """End the module: nothing is changed while the host is busy."""
    why = f"{', '.join(moving)} would replace installed packages: {module.params['busy']}"
    module.warn(f"{why}. Nothing was installed; apply again when it is idle.")
    module.exit_json(
        changed=False,
        installed=[],
        held=[],
        released=[],
        adopted="",
        versions={name: version for name, (version, _) in status.items()},
        clusterctl={"busy": why},
    )


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "required": True},
            "version": {"type": "str", "default": ""},
            "hold": {"type": "bool", "default": False},
            "busy": {"type": "str", "default": ""},
            "adopt": {"type": "list", "elements": "str", "default": []},
            "http_proxy": {"type": "str", "default": "", "no_log": True},
            "https_proxy": {"type": "str", "default": "", "no_log": True},
            "no_proxy": {"type": "str", "default": "", "no_log": False},
        },
        supports_check_mode=True,
    )
    require_apt(module)
    wanted = wishes(module.params["packages"], module.params["version"])
    packages = list(wanted)
    status = read_status(module, [*packages, *module.params["adopt"]])
    adopted = next((name for name in module.params["adopt"] if name in status), "")
    if adopted:
        message = f"{adopted} is installed and does the same; it was adopted."
        nothing = {"installed": [], "held": [], "released": [], "versions": {}}
        module.exit_json(changed=False, adopted=adopted, msg=message, **nothing)

    asked = requests(wanted, status)
    fail_if_held(module, asked, foreign_holds(names_of(asked), held_of(status), our_holds()))
    if module.params["busy"] and (moving := replaced(asked, status)):
        leave(module, moving, status)
    if asked and not module.check_mode:
        try:
            with alone(LOCK, LOCK_WAIT_S), runner(module) as run:
                # Who had the lock may be a run of ours that lost its controller, and has done it all.
                status = read_status(module, packages)
                asked = requests(wanted, status)
                if asked:
                    transact(module, run, asked)
        except TimeoutError as error:
            module.fail_json(
                msg=f"Packages cannot be installed now: {error}. Apply again when it has finished.",
                code="packages.locked",
            )
    after = status if module.check_mode else read_status(module, packages)
    if not module.check_mode and (still := requests(wanted, after)):
        module.fail_json(
            msg=f"apt-get succeeded, yet {', '.join(still)} is not what dpkg has installed: {after}"
        )
    held = [name for name in packages if module.params["hold"] and not after.get(name, ("", False))[1]]
    ours = held_of(after) & our_holds()
    released = [] if module.params["hold"] else [name for name in packages if name in ours]
    if held and not module.check_mode:
        hold(module, held)
    if released and not module.check_mode:
        release(module, released)
    result = {
        "changed": bool(asked or held or released),
        "installed": asked,
        "held": held,
        "released": released,
        "adopted": "",
        "versions": {name: after[name][0] for name in packages if name in after},
    }
    if asked:
        result["diff"] = {
            "before": "".join(f"{name} {status[name][0]}\n" for name in packages if name in status),
            "after": "".join(f"{name} {after[name][0]}\n" for name in packages if name in after)
            if not module.check_mode
            else "".join(f"{request}\n" for request in asked),
        }
    module.exit_json(**result)


if __name__ == "__main__":
    main()
