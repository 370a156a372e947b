"""The depot's package sources, laid out once for each content."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from clusterlab import simulated, sources, systems
from clusterlab.cache import content_hash
from clusterlab.images import debian, rocky
from clusterlab.images.trees import ImageFile
from clusterlab.progress import LabProgress
from clusterlab.sources.build import BASE_URL, KEY_FINGERPRINT

APT_KEY_IN_NODE = "/etc/apt/keyrings/depot.asc"


@dataclass(frozen=True)
class Packages:
    """What the depot serves on http, and the key that signs it, armored."""

    directory: Path
    key: bytes
    key_fingerprint: str

    def sources(self, system: str) -> list[ImageFile]:
        """The files by which a node's apt, or its dnf, finds the distribution on the depot."""
        if system in systems.RPM_PERSONALITIES:
            return rocky.sources(BASE_URL, self.key)
        line = f"deb [signed-by={APT_KEY_IN_NODE}] {BASE_URL}/distribution ./\n"
        return [
            ImageFile("/etc/apt/sources.list", line.encode()),
            ImageFile(APT_KEY_IN_NODE, self.key),
        ]


def ensure_packages(system: str, home: Path, progress: LabProgress) -> Packages:
    """The sources for ``system`` in a directory under ``home`` that is never changed once it is there.

    Raises ClusterctlError where the distribution's packages cannot be had.
    """
    kernel = os.uname().release
    parts = [Path(module.__path__[0]) for module in (sources, simulated)]
    parts += [Path(debian.__file__), Path(systems.__file__)]
    directory = home / content_hash([system, kernel, *debian.sources(systems.base_of(system)), *parts])
    # The lab's lock is held: what is half made here was left by one that was killed.
    for left in home.glob(".*"):
        shutil.rmtree(left, ignore_errors=True)
    if not directory.is_dir():
        with progress.step("building the package sources"):
            temporary = home / f".{directory.name}.{os.getpid()}"
            sources.build(temporary, os=system, kernel=kernel)
            temporary.rename(directory)
    subset = directory / "distribution"
    fingerprint = (subset / KEY_FINGERPRINT).read_text(encoding="ascii").strip()
    return Packages(directory, (subset / "archive-keyring.asc").read_bytes(), fingerprint)


def remove_others(packages: Packages) -> None:
    """Remove earlier contents next to the directory that is served now."""
    for path in packages.directory.parent.iterdir():
        if path != packages.directory:
            shutil.rmtree(path, ignore_errors=True)
