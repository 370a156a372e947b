"""A node under a directory: dpkg's status, and real apt that knows the index of some packages and no more."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_node
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import parse_madison
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_transaction import simulate
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Facts, Plan
from ansible_collections.clusterctl.cluster.plugins.modules.nvidia_driver_packages import preferences

from clusterlab.sources import deb


class AptNode:
    """A node of architecture amd64; `outside` are plain packages that it has besides, by name and version."""

    def __init__(self, root: Path, packages: Iterable[deb.Package], outside: Mapping[str, str]) -> None:
        self.stanzas = {(package.name, package.version): deb.control(package) for package in packages}
        for name, version in outside.items():
            self.stanzas[name, version] = (
                f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nDescription: x\n"
            )
        self.root, self.installed = root, dict[str, str]()
        for name in ("repo", "var/lib/dpkg", "lists/partial", "cache/archives/partial", "preferences"):
            (root / name).mkdir(parents=True)
        ends = f"Filename: x.deb\nSize: 1\nSHA256: {'0' * 64}\n"
        index = "\n".join(stanza + ends for stanza in self.stanzas.values())
        (root / "repo/Packages").write_text(index)
        (root / "sources.list").write_text(f"deb [trusted=yes] file:{root}/repo ./\n")
        settings = {
            "APT::Architecture": "amd64", "APT::Sandbox::User": "root", "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::sourcelist": root / "sources.list", "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": root / "preferences", "Dir::State::lists": root / "lists",
            "Dir::State::status": root / "var/lib/dpkg/status", "Dir::Cache": root / "cache",
            "Dir::State::extended_states": root / "extended_states",
        }  # fmt: skip
        self.options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        self.have({})
        assert self.run(["apt-get", *self.options, "update"])[0] == 0

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        """The exit code and what it printed."""
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
        return done.returncode, done.stdout, done.stderr

    def have(self, packages: dict[str, str]) -> None:
        """These are installed and held, as an earlier apply has left them, and nothing else."""
        self.installed = packages
        stanzas = [
            f"{self.stanzas[name, version]}Status: hold ok installed\n" for name, version in packages.items()
        ]
        (self.root / "var/lib/dpkg/status").write_text("\n".join(stanzas))

    def offered(self, names: list[str]) -> dict[str, list[str]]:
        """The versions of these that apt knows."""
        return parse_madison(self.run(["apt-cache", *self.options, "madison", *names])[1])

    def facts_with(self, **known: Any) -> Facts:
        """What the planner is told of a node on which an earlier apply brought what is there."""
        installed = set(self.installed)
        return Facts(
            headers={},
            installed=gpu_node.installed_packages(self.root)[0],
            held=installed,
            record={"packages": sorted(installed), "held": sorted(installed)},
            loaded="",
            loaded_flavor="",
            nouveau=False,
            runfile=False,
            **known,
        )

    def resolve(self, plan: Plan, compat: dict[str, object]) -> None:
        """What an apply does to the packages: the plan, resolved by apt."""
        assert plan.problems == []
        (self.root / "preferences/driver").write_text(preferences(compat, plan.version))
        arguments = [f"{name}={own}" if own else name for name, own in plan.packages.items()]
        arguments += [f"{name}-" for name in plan.remove]
        changes, complaint = simulate(self.run, arguments, self.options)
        assert complaint == ""
        after = {**self.installed, **{name: new for name, (_, new) in changes.items()}}
        self.have({name: own for name, own in after.items() if own})
