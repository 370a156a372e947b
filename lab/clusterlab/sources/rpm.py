"""Binary RPMs as data, and the real files that rpmbuild makes of them.

One run of rpmbuild takes a second: packages that share no name and no path are built together.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from clusterlab.process import call
from clusterlab.sources.deb import EPOCH, Link, PackageFile

FAILED = "lab.package-failed"
HINT = "RPMs are made by rpmbuild, rpmsign and createrepo_c: apt-get install rpm createrepo-c"
LONGEST_S = 300.0
SIMULATED = "Simulated by clusterlab: name, version and relations are real."
# What is in the files stays as it is: nothing is stripped, compressed or looked through for dependencies.
MACROS = {
    "__os_install_post": "%{nil}",
    "debug_package": "%{nil}",
    "_build_id_links": "none",
    "_binaries_in_noarch_packages_terminate_build": "0",
    "_binary_payload": "w1.gzdio",
    "_buildhost": "depot.invalid",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
}


@dataclass(frozen=True)
class RpmPackage:
    """One RPM. `evr` is [epoch:]version-release.

    files: by absolute path; a Path is a file of this machine, copied with its mode. scripts: by rpm's name,
    such as `post`.
    """

    name: str
    evr: str
    arch: str = "x86_64"
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    summary: str = SIMULATED
    files: Mapping[str, PackageFile | Link | Path] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, str, str]:
        """Epoch, version and release; the epoch is 0 where none is given."""
        epoch, _, rest = self.evr.rpartition(":")
        version, _, release = rest.partition("-")
        return epoch or "0", version, release

    @property
    def nevra(self) -> str:
        """name-epoch:version-release.arch, as a module's list of artifacts has it."""
        epoch, version, release = self.parts
        return f"{self.name}-{epoch}:{version}-{release}.{self.arch}"

    @property
    def filename(self) -> str:
        """The name of its file; an epoch is not part of it."""
        _, version, release = self.parts
        return f"{self.name}-{version}-{release}.{self.arch}.rpm"

    def empty(self) -> RpmPackage:
        """The same package by name, version and relations, with nothing in it."""
        return replace(self, files={}, scripts={})


def merged(path: str) -> str:
    """A path as systems have it whose /lib is /usr/lib."""
    return f"/usr{path}" if path.startswith(("/lib/", "/bin/", "/sbin/")) else path


def stanza(package: RpmPackage) -> list[str]:
    """The package as a part of a spec file."""
    epoch, version, release = package.parts
    lines = [f"%package -n {package.name}", f"Summary: {package.summary}"]
    lines += [f"Version: {version}", f"Release: {release}", "AutoReqProv: no"]
    lines += [f"Epoch: {epoch}"] if epoch != "0" else []
    lines += ["BuildArch: noarch"] if package.arch == "noarch" else []
    lines += [f"Requires: {one}" for one in package.requires]
    lines += [f"Provides: {one}" for one in package.provides]
    lines += [f"Conflicts: {one}" for one in package.conflicts]
    lines += [f"%description -n {package.name}", package.summary]
    for name, text in package.scripts.items():
        lines += [f"%{name} -n {package.name}", text.replace("%", "%%")]
    lines += [f"%files -n {package.name}", "%defattr(-,root,root)"]
    for path, item in package.files.items():
        config = "%config(noreplace) " if path.startswith("/etc/") and not isinstance(item, Link) else ""
        lines.append(f"{config}{merged(path)}")
    return lines


def rounds(packages: Iterable[RpmPackage]) -> list[list[RpmPackage]]:
    """The packages in groups that one spec file can have: each name and each path once."""
    groups: list[tuple[set[str], list[RpmPackage]]] = []
    for package in packages:
        taken = {package.name, *map(merged, package.files)}
        free = next((group for group in groups if not group[0] & taken), None)
        if free is None:
            groups.append(free := (set(), []))
        free[0].update(taken)
        free[1].append(package)
    return [group for _, group in groups]


def build(packages: Iterable[RpmPackage], directory: Path, vendor: str) -> list[Path]:
    """Build the RPMs into the directory and return their paths.

    Raises ClusterctlError (``lab.package-failed``) where rpmbuild fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for group in rounds(packages):
        with tempfile.TemporaryDirectory(prefix="clusterlab-rpm-") as name:
            _build_group(group, Path(name), directory, vendor)
        made += [directory / package.filename for package in group]
    for path in made:
        path.chmod(0o644)
    return made


def _build_group(group: list[RpmPackage], work: Path, directory: Path, vendor: str) -> None:
    stage = work / "stage"
    stage.mkdir()
    for package in group:
        for path, item in package.files.items():
            _place(stage / merged(path).removeprefix("/"), item)
    head = ["Name: clusterlab", "Version: 1", "Release: 1", f"Vendor: {vendor}", "License: none"]
    head += [f"Summary: {SIMULATED}", "%description", SIMULATED]
    head += ["%install", f"mkdir -p %{{buildroot}} && cp -a {stage}/. %{{buildroot}}/"]
    spec = work / "rpms.spec"
    spec.write_text("\n".join([*head, *(line for one in group for line in stanza(one))]) + "\n")
    macros = {**MACROS, "_topdir": str(work / "top"), "_rpmdir": str(directory)}
    options = [word for key, value in macros.items() for word in ("--define", f"{key} {value}")]
    call(
        ["rpmbuild", "-bb", "--quiet", "--target", "x86_64", *options, str(spec)],
        variables={"SOURCE_DATE_EPOCH": str(EPOCH)},
        timeout_s=LONGEST_S,
        code=FAILED,
        hint=HINT,
    )


def _place(path: Path, item: PackageFile | Link | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(item, Link):
        path.symlink_to(item.target)
    elif isinstance(item, Path):
        shutil.copy2(item, path)
    else:
        path.write_bytes(item.content.encode() if isinstance(item.content, str) else item.content)
        path.chmod(item.mode)
