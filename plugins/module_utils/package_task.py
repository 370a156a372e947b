# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Packages as they are wished for: one transaction, versions and holds, alike for apt and dnf."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import Change, listing
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import LOCK_WAIT_S
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import LOCK, foreign_holds
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import alone
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_managers import Manager

ARGUMENTS: dict[str, Any] = {
    "packages": {"type": "list", "elements": "str", "required": True},
    "version": {"type": "str", "default": ""},
    "hold": {"type": "bool", "default": False},
    "busy": {"type": "str", "default": ""},
    "adopt": {"type": "list", "elements": "str", "default": []},
    "repository_url": {"type": "str", "default": ""},
    "repository_suite": {"type": "str", "default": "/"},
    "repository_components": {"type": "str", "default": ""},
    "http_proxy": {"type": "str", "default": "", "no_log": True},
    "https_proxy": {"type": "str", "default": "", "no_log": True},
    "no_proxy": {"type": "str", "default": "", "no_log": False},
}
HOLDS = Path("/var/lib/clusterctl/holds.json")
# Installed packages: version, and whether somebody holds it.
Status = dict[str, tuple[str, bool]]


class Engine(Protocol):
    """A package manager: how messages name it, what it has, and how it changes that."""

    manager: Manager

    def status(self, names: list[str]) -> Status:
        """Those of the packages that are installed."""

    def request(self, name: str, version: str) -> str:
        """How a package of a version is asked for; "" for any version."""

    def foretell(self, asked: dict[str, str]) -> tuple[dict[str, Change], str]:
        """What installing requests, by name, would change, and why that cannot be known; changes nothing.

        Ends the module if a transaction would be refused.
        """

    def transact(self, asked: dict[str, str]) -> dict[str, Change]:
        """Installs requests, by name, in one transaction; our holds stay. Ends the module if it fails."""

    def hold(self, names: list[str]) -> None:
        """Holds packages at what is installed."""

    def release(self, names: list[str]) -> None:
        """Lifts holds."""


def satisfies(installed: str, wanted: str) -> bool:
    """Whether version `installed` is `wanted`; `1.18.1` asks for any revision of it, and any epoch."""
    if not wanted:
        return bool(installed)
    if ":" not in wanted:
        installed = installed.rpartition(":")[2]
    return installed == wanted or installed.startswith(f"{wanted}-")


def wishes(packages: list[str], version: str) -> dict[str, str]:
    """Wanted version by package name; "" where any serves."""
    return {name: own or version for name, _, own in (package.partition("=") for package in packages)}


def requests(wanted: dict[str, str], status: Status, request: Callable[[str, str], str]) -> dict[str, str]:
    """What the package manager is asked for, by name, of packages that are not as wanted."""
    return {
        name: request(name, version)
        for name, version in wanted.items()
        if not satisfies(status.get(name, ("", False))[0], version)
    }


def held_of(status: Status) -> set[str]:
    """Installed packages that are held, by whomever."""
    return {name for name, (_, held) in status.items() if held}


def our_holds() -> set[str]:
    """Packages that an earlier run of ours held."""
    return set(json.loads(HOLDS.read_text(encoding="utf-8"))) if HOLDS.is_file() else set()


def record_holds(names: Iterable[str]) -> None:
    """Replaces the record in one step."""
    replace_file(HOLDS, json.dumps(sorted(names)), 0o644)


def fail_if_held(module: AnsibleModule, engine: Engine, asked: Iterable[str], blocked: list[str]) -> None:
    """Ends the module if somebody else holds what would change."""
    if blocked:
        module.fail_json(
            msg=f"{', '.join(asked)} is asked for, but someone else holds {', '.join(blocked)}. "
            f"Lift the hold with `{engine.manager.unhold} {' '.join(blocked)}`, "
            "or declare the installed version.",
            code="packages.held",
        )


def foretold(module: AnsibleModule, engine: Engine, asked: dict[str, str]) -> dict[str, Change]:
    """What a transaction would change; only what is asked for, and a warning, if its sources do not tell."""
    changes, complaint = engine.foretell(asked)
    if complaint:
        module.warn(f"What else {', '.join(asked.values())} would change is not known: {complaint}.")
    return changes


def leave(module: AnsibleModule, moving: list[str], status: Status) -> None:
    """End the module: nothing is changed while the host is busy."""
    why = f"{', '.join(moving)} would replace installed packages: {module.params['busy']}"
    module.warn(f"{why}. Nothing was installed; apply again when it is idle.")
    module.exit_json(
        changed=False,
        installed=[],
        held=[],
        released=[],
        changes={},
        adopted="",
        versions={name: version for name, (version, _) in status.items()},
        clusterctl={"busy": why},
    )


def ensure_packages(module: AnsibleModule, engine: Engine) -> None:
    """Brings the packages to the module's parameters, and ends the module with what was done."""
    wanted = wishes(module.params["packages"], module.params["version"])
    packages = list(wanted)
    status = engine.status([*packages, *module.params["adopt"]])
    adopted = next((name for name in module.params["adopt"] if name in status), "")
    if adopted:
        message = f"{adopted} is installed and does the same; it was adopted."
        nothing = {"installed": [], "held": [], "released": [], "changes": {}, "versions": {}}
        module.exit_json(changed=False, adopted=adopted, msg=message, **nothing)

    asked = requests(wanted, status, engine.request)
    fail_if_held(module, engine, asked.values(), foreign_holds(asked, held_of(status), our_holds()))
    if module.params["busy"] and (moving := [spec for name, spec in asked.items() if name in status]):
        leave(module, moving, status)
    changes: dict[str, Change] = {}
    if asked and module.check_mode:
        changes = foretold(module, engine, asked)
    elif asked:
        try:
            with alone(LOCK, LOCK_WAIT_S):
                # Who had the lock may be a run of ours that lost its controller, and has done it all.
                status = engine.status(packages)
                asked = requests(wanted, status, engine.request)
                if asked:
                    changes = engine.transact(asked)
        except TimeoutError as error:
            module.fail_json(
                msg=f"Packages cannot be installed now: {error}. Apply again when it has finished.",
                code="packages.locked",
            )
    after = status if module.check_mode else engine.status(packages)
    if not module.check_mode and (still := requests(wanted, after, engine.request)):
        module.fail_json(
            msg=f"{engine.manager.program} succeeded, yet {', '.join(still.values())} is not what "
            f"{engine.manager.database} has installed: {after}"
        )
    held = [name for name in packages if module.params["hold"] and not after.get(name, ("", False))[1]]
    ours = held_of(after) & our_holds()
    released = [] if module.params["hold"] else [name for name in packages if name in ours]
    if held and not module.check_mode:
        # On record before: no hold of ours may pass for another party's.
        record_holds(our_holds() | set(held))
        engine.hold(held)
    if released and not module.check_mode:
        engine.release(released)
        record_holds(our_holds() - set(released))
    result = {
        "changed": bool(asked or held or released),
        "installed": list(asked.values()),
        "held": held,
        "released": released,
        "changes": {name: list(versions) for name, versions in sorted(changes.items())},
        "adopted": "",
        "versions": {name: after[name][0] for name in packages if name in after},
    }
    if asked:
        unknown = "" if changes else "".join(f"{spec}\n" for spec in asked.values())
        result["diff"] = {"before": listing(changes, 0), "after": listing(changes, 1) + unknown}
    module.exit_json(**result)
