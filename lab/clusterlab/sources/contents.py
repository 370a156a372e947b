"""Contents of the simulated packages, read from clusterlab.simulated."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import clusterlab.simulated
from clusterlab.sources.deb import PackageFile

SIMULATED = Path(clusterlab.simulated.__file__).parent


def program(relative: str, version: str) -> PackageFile:
    """An executable, told the version of the package that it is in."""
    return PackageFile((SIMULATED / relative).read_text().replace("@VERSION@", version), 0o755)


def plain(relative: str) -> PackageFile:
    """A file that is not a program."""
    return PackageFile((SIMULATED / relative).read_text())


def modules(relative: str, target: str) -> dict[str, PackageFile]:
    """A Python package of clusterlab.simulated, by path in the node."""
    return {
        f"{target}/{path.name}": PackageFile(path.read_text())
        for path in sorted((SIMULATED / relative).glob("*.py"))
    }


def nvml_library(version: str) -> PackageFile:
    """libnvidia-ml.so: a zip that Python runs as nvidia-smi of that version."""
    buffer = io.BytesIO()
    main = f'import sys\n\nfrom simulated_nvml import smi\n\nsys.exit(smi.main(sys.argv[1:], "{version}"))\n'
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((SIMULATED / "nvml").glob("*.py")):
            _add(archive, f"simulated_nvml/{path.name}", path.read_text())
        _add(archive, "__main__.py", main)
    return PackageFile(buffer.getvalue())


def _add(archive: zipfile.ZipFile, name: str, text: str) -> None:
    # One date for all: the same sources give the same package.
    archive.writestr(zipfile.ZipInfo(name, date_time=(2025, 9, 23, 9, 55, 42)), text, zipfile.ZIP_DEFLATED)
