"""A node under a directory whose packages real apt and dpkg change; no script of a package is run."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils import gpu_node
from tests.support.limited import without_limit
from tests.support.played_module import PlayedModule

from clusterlab.sources import deb


@dataclass(frozen=True)
class Archive:
    """A directory of packages with their index, as apt reads it."""

    directory: Path

    @property
    def url(self) -> str:
        """As apt names it."""
        return f"file:{self.directory}"


def publish(directory: Path, packages: Iterable[deb.Package]) -> Archive:
    """Builds and indexes the packages, without their scripts."""
    directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for package in packages:
        plain = replace(package, scripts={})
        path = deb.build(plain, directory)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        place = f"Filename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n"
        entries.append(deb.control(plain) + place)
    (directory / "Packages").write_text("\n".join(entries))
    return Archive(directory)


class DpkgNode:
    """A node of architecture amd64 that knows these archives and no more."""

    def __init__(self, root: Path, archives: Iterable[Archive], os_release: str) -> None:
        self.root = root
        for name in (
            "etc/apt/preferences.d", "etc/apt/sources.list.d", "var/lib/dpkg/info", "var/lib/dpkg/updates",
            "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log",
        ):  # fmt: skip
            (root / name).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "etc/os-release").write_text(os_release)
        lines = "".join(f"deb [trusted=yes] {archive.url} ./\n" for archive in archives)
        (root / "etc/apt/sources.list.d/archives.list").write_text(lines)
        # What this machine's own apt is configured to do besides is no part of the node.
        self.configuration = root / "apt.conf"
        self.configuration.write_text('Dir::Etc::main "/dev/null";\nDir::Etc::parts "/dev/null";\n')
        settings = {
            "APT::Architecture": "amd64", "APT::Architectures": "amd64", "APT::Sandbox::User": "root",
            "Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": root / "etc/apt/sources.list.d",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": root / "etc/apt/preferences.d",
            "Dir::State": root / "var/lib/apt", "Dir::State::status": root / "var/lib/dpkg/status",
            "Dir::Cache": root / "var/cache/apt", "Dir::Log": root / "var/log", "Dpkg::Use-Pty": "0",
            "DPkg::Options::": f"--root={root}",
        }  # fmt: skip
        self.options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        self.must(["apt-get", "update"])

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        """The exit code and what it printed, of a program of apt's or dpkg's on the node."""
        argv = without_limit(argv)
        options = self.options if argv[0].startswith("apt") else [f"--root={self.root}"]
        variables = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(
            [argv[0], *options, *argv[1:]],
            capture_output=True,
            text=True,
            check=False,
            env={**variables, "APT_CONFIG": str(self.configuration)},
        )
        return done.returncode, done.stdout, done.stderr

    def must(self, argv: list[str]) -> str:
        """What it printed; fails the test if it failed."""
        code, output, error = self.run(argv)
        assert code == 0, (argv, output, error)
        return output

    def install(self, *names: str) -> None:
        """As an operator does; a name may have a version."""
        self.must(["apt-get", "--yes", "--no-install-recommends", "install", *names])

    @property
    def installed(self) -> dict[str, str]:
        """Versions of the installed packages."""
        return gpu_node.installed_packages(self.root)[0]

    @property
    def held(self) -> set[str]:
        """Packages on hold, by whomever."""
        return gpu_node.installed_packages(self.root)[1]


class ModuleOnNode(PlayedModule):
    """A module whose programs run on such a node."""

    def __init__(self, node: DpkgNode, params: Mapping[str, Any], *, check_mode: bool = False) -> None:
        super().__init__(params, check_mode=check_mode)
        self.node = node

    def run_command(
        self, argv: list[str], environ_update: Mapping[str, str] | None = None, *, check_rc: bool = False
    ) -> tuple[int, str, str]:
        """As Ansible's module runs one."""
        code, output, error = self.node.run(argv)
        assert not check_rc or code == 0, (argv, error)
        return code, output, error
