"""A repository of RPMs with NVIDIA's names and module streams, built by rpmbuild, and a node for real dnf.

Names, epochs, relations and streams are as in NVIDIA's repository for RHEL 9; the packages are empty.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

DRIVERS = ("570.172.08", "580.95.05", "580.105.08")
KERNELS = ("5.14.0-570.12.1.el9_6", "5.14.0-611.5.1.el9_7")
OPEN, LATEST = "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"


@dataclass(frozen=True)
class Package:
    """One RPM to build; `evr` is [epoch:]version-release."""

    name: str
    evr: str
    arch: str = "x86_64"
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, str, str]:
        epoch, _, rest = self.evr.rpartition(":")
        version, _, release = rest.partition("-")
        return epoch or "0", version, release

    def nevra(self) -> str:
        epoch, version, release = self.parts
        return f"{self.name}-{epoch}:{version}-{release}.{self.arch}"

    def stanza(self) -> list[str]:
        """The package as a part of a spec file."""
        epoch, version, release = self.parts
        lines = [f"%package -n {self.name}", "Summary: x", f"Version: {version}", f"Release: {release}"]
        lines += [f"Epoch: {epoch}"] if epoch != "0" else []
        lines += ["BuildArch: noarch"] if self.arch == "noarch" else []
        lines += [f"Requires: {one}" for one in self.requires]
        lines += [f"Provides: {one}" for one in self.provides]
        lines += [f"Conflicts: {one}" for one in self.conflicts]
        return [*lines, f"%description -n {self.name}", "x", f"%files -n {self.name}"]


def driver(version: str) -> tuple[list[Package], dict[str, list[Package]]]:
    """One driver's packages, and those of each stream of its branch."""
    branch, exact, evr = version.split(".", maxsplit=1)[0], f"3:{version}", f"3:{version}-1.el9"
    numbered = int(branch) < 580
    common = [
        *(Package(name, evr) for name in ("nvidia-driver-cuda-libs", "libnvidia-ml", "nvidia-persistenced")),
        Package("nvidia-kmod-common", evr, "noarch", (f"nvidia-kmod = {exact}",)),
        Package(
            "nvidia-driver-cuda",
            evr,
            requires=(
                f"nvidia-driver-cuda-libs = {exact}",
                f"nvidia-kmod-common = {exact}",
                f"nvidia-persistenced = {exact}",
                f"libnvidia-ml = {exact}",
            ),
        ),
        Package("nvidia-driver", evr, requires=(f"nvidia-kmod-common = {exact}",)),
        Package("nvidia-fabric-manager" if numbered else "nvidia-fabricmanager", f"{version}-1"),
        Package(f"libnvidia-nscq-{branch}" if numbered else "libnvidia-nscq", f"{version}-1"),
    ]
    whole = (f"nvidia-driver-cuda = {exact}", f"nvidia-driver = {exact}")
    provides, dkms = (f"nvidia-kmod = {exact}",), ("dkms >= 3.1.8",)
    kernel = KERNELS[0]
    streams = {
        f"{branch}-open": [
            Package(OPEN, evr, "noarch", dkms, provides, (LATEST,)),
            Package("nvidia-open", evr, "noarch", (*whole, f"{OPEN} = {exact}")),
        ],
        f"{branch}-dkms": [
            Package(LATEST, evr, "noarch", dkms, provides, (OPEN,)),
            Package("cuda-drivers", evr, "noarch", (*whole, f"{LATEST} = {exact}")),
        ],
        branch: [
            Package(
                f"kmod-nvidia-{version}-{kernel.rpartition('.')[0]}",
                f"3:{version}-3.{kernel.rpartition('.')[2]}",
                requires=(f"(kernel = {kernel} if kernel)",),
                provides=(*provides, f"kernel-modules = {kernel}.x86_64"),
                conflicts=(OPEN, LATEST),
            )
        ],
    }
    own = [package for packages in streams.values() for package in packages]
    return [*common, *own], {name: [*common, *packages] for name, packages in streams.items()}


def others() -> list[Package]:
    """Packages of the system, EPEL, Docker and the toolkit."""
    kernel = [
        Package(name, evr, provides=("installonlypkg(kernel)",))
        for evr in KERNELS
        for name in ("kernel", "kernel-core", "kernel-devel")
    ]
    toolkit = [
        Package(name, f"{version}-1")
        for version in ("1.17.8", "1.18.1")
        for name in (
            "nvidia-container-toolkit",
            "nvidia-container-toolkit-base",
            "libnvidia-container-tools",
            "libnvidia-container1",
        )
    ]
    return [
        *kernel,
        *toolkit,
        Package("dkms", "3.2.1-1.el9", "noarch"),
        Package("docker-ce", "3:29.1.3-1.el9", requires=("containerd.io",)),
        Package("docker-ce-cli", "1:29.1.3-1.el9"),
        Package("containerd.io", "2.2.1-1.el9", conflicts=("runc",)),
        Package("runc", "4:1.2.5-1.el9"),
        Package("podman", "4:5.4.0-1.el9", requires=("runc",)),
        Package("nvidia-gpu-firmware", "20250812-151.4.el9", "noarch"),
        Package("python3-dnf-plugin-versionlock", "4.3.0-20.el9", "noarch"),
    ]


def modules(streams: dict[str, list[Package]]) -> str:
    """modules.yaml: the streams with their profiles and packages."""
    lines = []
    for stream, packages in streams.items():
        fabric_manager = next(one.name for one in packages if one.name.startswith("nvidia-fabric"))
        lines += ["---", "document: modulemd", "version: 2", "data:", "  name: nvidia-driver"]
        lines += [f'  stream: "{stream}"', "  version: 20251101000000", "  context: c0ffee00"]
        lines += ["  arch: x86_64", "  summary: x", "  description: x", "  license: {module: [MIT]}"]
        lines += ["  profiles:", "    default: {rpms: [nvidia-driver]}"]
        lines += [f"    fm: {{rpms: [nvidia-driver, {fabric_manager}]}}", "  artifacts:", "    rpms:"]
        lines += [*(f"    - {package.nevra()}" for package in packages), "..."]
    return "\n".join(lines) + "\n"


def build(directory: Path, *, with_driver: bool = True, key: SigningKey | None = None) -> Path:
    """Builds the repository below a directory, its packages signed or not; some 5 s."""
    packages, streams = others(), dict[str, list[Package]]()
    for version in DRIVERS if with_driver else ():
        own, of_streams = driver(version)
        packages += own
        for name, found in of_streams.items():
            streams.setdefault(name, []).extend(found)
    rounds: list[dict[str, Package]] = []  # a spec has each name once
    for package in packages:
        free = next((one for one in rounds if package.name not in one), None)
        if free is None:
            rounds.append(free := {})
        free[package.name] = package
    repository = directory / "repository"
    repository.mkdir(parents=True)
    head = ["Name: x", "Version: 1", "Release: 1", "Summary: x", "License: MIT", "%description", "x"]
    for number, round_ in enumerate(rounds):
        spec = directory / f"{number}.spec"
        spec.write_text(
            "\n".join([*head, *(line for one in round_.values() for line in one.stanza())]) + "\n"
        )
        defined = {
            "_topdir": f"{directory}/build",
            "_rpmdir": str(repository),
            "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
        }
        options = [word for name, value in defined.items() for word in ("--define", f"{name} {value}")]
        _run(["rpmbuild", "-bb", "--quiet", "--target", "x86_64", *options, str(spec)])
    if key:
        key.sign_packages(repository)
    _run(["createrepo_c", "--quiet", str(repository)])
    if with_driver:
        (directory / "modules.yaml").write_text(modules(streams))
        _run(["modifyrepo_c", "--mdtype=modules", f"{directory}/modules.yaml", f"{repository}/repodata"])
    return repository


def _run(argv: list[str]) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=300)


@dataclass(frozen=True)
class SigningKey:
    """A key that was made for a repository: GnuPG's directory, the public key, its fingerprint."""

    home: Path
    public: bytes
    fingerprint: str

    @classmethod
    def make(cls, home: Path) -> SigningKey:
        home.mkdir(mode=0o700)
        gpg = ["gpg", "--homedir", str(home), "--batch", "--yes"]
        user = "depot <depot@example.org>"
        _run([*gpg, "--passphrase", "", "--quick-generate-key", user, "rsa2048", "sign"])
        shown = subprocess.run(
            [*gpg, "--with-colons", "--list-keys"], check=True, capture_output=True, text=True
        ).stdout
        fingerprint = next(line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr:"))
        exported = subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True).stdout
        return cls(home, exported, fingerprint)

    def sign_packages(self, repository: Path) -> None:
        """Signs every package."""
        defined = {"__gpg": "/usr/bin/gpg", "_gpg_name": self.fingerprint, "_gpg_path": str(self.home)}
        options = [word for name, value in defined.items() for word in ("--define", f"{name} {value}")]
        _run(["rpmsign", "--addsign", *options, *map(str, sorted(repository.glob("*.rpm")))])

    def sign_index(self, repository: Path) -> None:
        """Signs the repository's index."""
        gpg = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--armor", "--detach-sign"]
        _run([*gpg, f"{repository}/repodata/repomd.xml"])


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
