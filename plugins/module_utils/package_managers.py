# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""How messages name the package managers that the roles use. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Manager:
    """`program` installs, `database` says what is installed, and `unhold` lifts the hold of packages."""

    name: str
    program: str
    database: str
    unhold: str


APT = Manager("apt", "apt-get", "dpkg", "apt-mark unhold")
DNF = Manager("dnf", "dnf", "rpm", "dnf versionlock delete")
