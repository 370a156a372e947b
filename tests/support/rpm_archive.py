"""The lab's RPMs with nothing in them, all in one repository, and a node for real dnf.

Names, epochs, relations and streams are as in NVIDIA's repository for RHEL 9.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.support.limited import without_limit

from clusterlab.sources import rhel_driver, rhel_packages, rpm_repository, signing
from clusterlab.sources.build import DRIVER_VERSIONS, TOOLKIT_VERSIONS
from clusterlab.systems import RPM_PERSONALITIES

ROCKY = RPM_PERSONALITIES["rocky9"]
KERNELS = ROCKY.kernels
DOCKER = "29.1.3"


def build(directory: Path, *, with_driver: bool = True, key: signing.SigningKey | None = None) -> Path:
    """Builds the repository below a directory, signed by `key` or by one that is thrown away."""
    packages = [*rhel_packages.release(ROCKY), *rhel_packages.appstream(), rhel_packages.versionlock()]
    packages += [rhel_packages.dkms(), *rhel_packages.docker(DOCKER, "2.2.1")]
    for version in TOOLKIT_VERSIONS:
        packages += rhel_packages.toolkit(version)
    for evr in KERNELS:
        packages += [*rhel_packages.kernel(evr), *rhel_packages.kernel_devel(evr)]
    drivers, streams = rhel_driver.repository(DRIVER_VERSIONS, KERNELS[0]) if with_driver else ([], {})
    rpm_repository.publish(
        directory / "repository",
        [package.empty() for package in [*packages, *drivers]],
        key or signing.ensure(directory / "key"),
        "tests",
        module=rhel_driver.MODULE,
        streams=streams,
    )
    return directory / "repository"


class Host:
    """A RHEL 9 under a directory: its own RPM database, and dnf that knows these repositories alone."""

    def __init__(self, root: Path, repositories: list[Path]) -> None:
        self.root, self.repositories = root, repositories
        self.calls: list[list[str]] = []
        for name in ("etc/yum.repos.d", "etc/dnf/plugins", "var/lib/rpm"):
            (root / name).mkdir(parents=True)
        (root / "etc/dnf/dnf.conf").write_text("[main]\ngpgcheck=1\n")
        (root / "etc/os-release").write_text('ID="rocky"\nVERSION_ID="9.6"\nPRETTY_NAME="Rocky Linux 9.6"\n')
        for number, repository in enumerate(repositories):
            file = root / f"etc/yum.repos.d/site{number}.repo"
            file.write_text(f"[site{number}]\nname=x\nbaseurl=file://{repository}\ngpgcheck=0\n")
        self.run(["rpm", "--initdb"])

    def run(
        self, argv: list[str], environ_update: dict[str, str] | None = None, **_: object
    ) -> tuple[int, str, str]:
        """Runs rpm and dnf on the directory, the rest as it is."""
        argv = without_limit(argv)
        self.calls.append(argv)
        if argv[0] == "rpm":
            argv = ["rpm", f"--root={self.root}", *argv[1:]]
        if argv[0] == "dnf":
            settings = {
                "module_platform_id": "platform:el9",
                "cachedir": f"{self.root}/var/cache/dnf",
                "varsdir": "/nowhere",
            }
            options = [f"--setopt={name}={value}" for name, value in settings.items()]
            for file in (self.root / "etc/yum.repos.d").glob(
                "*.repo"
            ):  # dnf does not look below the root for keys
                for name, key in re.findall(
                    r"^\[(.+)\][^\[]*^gpgkey=file://(/etc/\S+)", file.read_text(), re.M | re.S
                ):
                    options.append(f"--setopt={name}.gpgkey=file://{self.root}{key}")
            # What is not below the root would be looked for there, too.
            configured = re.search(
                r"^reposdir = (.*)$", Path(argv[2]).read_text() if argv[1] == "-c" else "", re.M
            )
            directories = configured.group(1).split(",") if configured else ["/etc/yum.repos.d"]
            below = [f"{self.root}{one}" if one.startswith("/etc") else one for one in directories]
            options.append(f"--setopt=reposdir={','.join(below)}")
            own = [f"--installroot={self.root}", "--releasever=9", "--disableplugin=local"]
            argv = ["dnf", *own, *options, *argv[1:]]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(environ_update or {})},
            timeout=300,
        )
        return done.returncode, done.stdout, done.stderr

    def have(self, *names: str, at: str) -> None:
        """These are installed in a version, without dnf."""
        files = [str(self.repositories[0] / f"{name}-{at}.x86_64.rpm") for name in names]
        code, _, error = self.run(["rpm", "-i", "--nodeps", *files])
        assert code == 0, error

    def rpms(self) -> dict[str, str]:
        """Versions by name, as rpm itself says."""
        lines = self.run(["rpm", "-qa", "--qf", "%{NAME} %{EVR}\n"])[1].split("\n")
        return dict(line.split(" ", 1) for line in sorted(lines) if line)
