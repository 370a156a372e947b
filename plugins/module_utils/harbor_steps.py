# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is to be done so that a release of Harbor runs with its settings, of what was found on its host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_host import INSTALLED, UPGRADING

SHOWN = 3


@dataclass(frozen=True)
class Found:
    """What is on the host, of what decides.

    ``certificate`` says why the declared one is to be put in place, ``missing`` are services whose
    containers do not run.
    """

    record: dict[str, Any]
    settings: str
    composed: bool
    certificate: str
    unit: dict[str, str]
    unit_differs: bool = False
    missing: tuple[str, ...] = ()


def why_install(found: Found, version: str, *, trivy: bool) -> list[str]:
    """Reasons to run the installer; none where all is as it was left."""
    record = found.record
    if not record:
        return ["it is not installed"]
    if record.get("state") == UPGRADING:
        step = f"an upgrade from {record.get('version')} to {record.get('to')} was interrupted"
        return [step if version == record.get("to") else f"{step}, and {version} is declared again"]
    if record.get("state") != INSTALLED:
        return ["an earlier installation did not complete"]
    reasons = []
    if record.get("version") != version:
        reasons.append(f"{record.get('version')} is here, and {version} is declared")
    if record.get("settings") != found.settings:
        reasons.append("harbor.yml changed")
    if bool(record.get("trivy")) != trivy:
        reasons.append("Trivy was switched on" if trivy else "Trivy was switched off")
    if not found.composed and not reasons:
        reasons.append("docker-compose.yml is gone")
    return reasons


def steps(found: Found, version: str, *, trivy: bool) -> list[tuple[str, str]]:
    """What is to be done, in order, each with its reason."""
    if reasons := why_install(found, version, trivy=trivy):
        down = "; Harbor is down meanwhile, for a minute or more" if found.record else ""
        return [("install", ", ".join(reasons) + down), *_unit_steps(found)]
    renewed = [("certificate", found.certificate)] if found.certificate else []
    unit = [("unit", "harbor.service is another")] if found.unit_differs else []
    # The unit stays "active" whatever becomes of the containers: it only started them.
    ill = found.missing if found.unit.get("ActiveState") == "active" else ()
    more = ", ..." if len(ill) > SHOWN else ""
    up = [("reload", f"{', '.join(ill[:SHOWN])}{more} does not run")] if ill else []
    return [*renewed, *unit, *_unit_steps(found), *up]


def _unit_steps(found: Found) -> list[tuple[str, str]]:
    wanted = []
    if found.unit.get("UnitFileState") != "enabled":
        wanted.append(("enable", "it would not come up after a boot"))
    if found.unit.get("ActiveState") != "active":
        wanted.append(("start", "it does not run"))
    return wanted
