# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Which operating systems the roles support, and in what words another one is refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CODE = "host.unsupported-system"


def name_of(system: str, compat: dict[str, Any]) -> str:
    """The system's name by the id of its os-release."""
    name: str = compat["system_names"].get(system, system.capitalize())
    return name


@dataclass(frozen=True)
class Refusal:
    """Why a node's system is not supported. `found` names it; `expected` lists those that are."""

    found: str
    expected: str
    remedy: str


def refusal(system: dict[str, str], compat: dict[str, Any]) -> Refusal | None:
    """Why the roles refuse a system (`id`, `version`, `name` of its os-release); None if they do not."""
    major = system["version"].partition(".")[0]
    if {system["version"], major} & set(compat["supported_os"].get(system["id"], [])):
        return None
    known = sorted(compat["supported_os"].items())
    expected = "; ".join(f"{name_of(name, compat)} {', '.join(releases)}" for name, releases in known)
    for entry in compat["refused_os"]:
        if system["id"] in entry["ids"] and major == entry["version"]:
            return Refusal(f"{system['name']}: {entry['why']}", expected, entry["remedy"])
    return Refusal(system["name"], expected, "install one of these")
