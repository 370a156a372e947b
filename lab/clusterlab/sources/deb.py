"""A binary package as data, and the real .deb that dpkg-deb makes of it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clusterlab.process import call

MAINTAINER = "clusterlab <lab@invalid>"
# Builds are reproducible: every file has one date, so that a rebuilt package has the same checksum.
EPOCH = 1758620141
FAILED = "lab.package-failed"
HINT = "Is there room in the temporary directory, and is dpkg whole on this machine (dpkg --audit)?"


@dataclass(frozen=True)
class PackageFile:
    """One file in a package."""

    content: str | bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Link:
    """One symbolic link in a package."""

    target: str


@dataclass(frozen=True)
class Package:
    """A binary package: control fields, files by absolute path, maintainer scripts."""

    name: str
    version: str
    description: str
    architecture: str = "amd64"
    section: str = "utils"
    fields: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, PackageFile | Link] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def filename(self) -> str:
        """The name that apt archives use; an epoch is not part of it."""
        return f"{self.name}_{self.version.split(':', 1)[-1]}_{self.architecture}.deb"

    @property
    def conffiles(self) -> list[str]:
        """Files of /etc, which dpkg keeps when an operator changed them."""
        return [
            p for p, item in self.files.items() if p.startswith("/etc/") and isinstance(item, PackageFile)
        ]


def control(package: Package) -> str:
    """The control stanza."""
    lines = [
        f"Package: {package.name}",
        f"Version: {package.version}",
        f"Architecture: {package.architecture}",
        f"Maintainer: {MAINTAINER}",
        f"Section: {package.section}",
        "Priority: optional",
        *(f"{key}: {value}" for key, value in package.fields.items()),
        f"Description: {package.description}",
        " Simulated by clusterlab: the name, version and dependencies are real, the contents are not.",
    ]
    return "\n".join(lines) + "\n"


def build(package: Package, directory: Path) -> Path:
    """Build the .deb into the directory and return its path.

    Raises ClusterctlError (``lab.package-failed``) when dpkg-deb refuses the package.
    """
    target = directory / package.filename
    with tempfile.TemporaryDirectory(prefix="clusterlab-deb-") as name:
        root = Path(name)
        for path, item in package.files.items():
            _place(root / path.removeprefix("/"), item)
        meta = root / "DEBIAN"
        meta.mkdir()
        (meta / "control").write_text(control(package))
        if package.conffiles:
            (meta / "conffiles").write_text("".join(f"{path}\n" for path in package.conffiles))
        for script, text in package.scripts.items():
            (meta / script).write_text(text)
        _set_modes(root, package)
        call(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(root), str(target)],
            variables={"SOURCE_DATE_EPOCH": str(EPOCH)},
            code=FAILED,
            hint=HINT,
        )
    target.chmod(0o644)
    return target


def add_dependency(path: Path, name: str, directory: Path) -> Path:
    """The .deb that someone else built, once more in the directory, with one more dependency.

    Raises ClusterctlError (``lab.package-failed``) when dpkg-deb refuses it.
    """
    target = directory / path.name
    with tempfile.TemporaryDirectory(prefix="clusterlab-deb-") as unpacked:
        call(["dpkg-deb", "--raw-extract", str(path), unpacked], code=FAILED, hint=HINT)
        file = Path(unpacked) / "DEBIAN/control"
        file.write_text(file.read_text().replace("\nDepends: ", f"\nDepends: {name}, ", 1))
        call(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", unpacked, str(target)],
            variables={"SOURCE_DATE_EPOCH": str(EPOCH)},
            code=FAILED,
            hint=HINT,
        )
    target.chmod(0o644)
    return target


def _set_modes(root: Path, package: Package) -> None:
    """Give everything the mode that the package says: what the caller's umask left is not in it."""
    root.chmod(0o755)
    for path in root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    for path in (root / "DEBIAN").iterdir():
        path.chmod(0o755 if path.name in package.scripts else 0o644)
    for name, item in package.files.items():
        if isinstance(item, PackageFile):
            (root / name.removeprefix("/")).chmod(item.mode)


def _place(path: Path, item: PackageFile | Link) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(item, Link):
        path.symlink_to(item.target)
        return
    path.write_bytes(item.content.encode() if isinstance(item.content, str) else item.content)


def stanza_of(path: Path) -> str:
    """The control stanza of a .deb that someone else built. Raises ClusterctlError where it is none."""
    done = call(["dpkg-deb", "-f", str(path)], code=FAILED, hint=HINT)
    return done.stdout.decode().rstrip("\n") + "\n"


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def link_or_copy(source: Path, target: Path) -> None:
    """Put a file elsewhere without a second copy where the file system allows it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def open_to_all(tree: Path) -> None:
    """Make a tree readable for all, with any umask: the depot's web server is not root."""
    for path in (tree, *tree.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
