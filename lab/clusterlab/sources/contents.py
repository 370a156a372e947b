"""Contents of the simulated packages, read from clusterlab.simulated."""

from __future__ import annotations

import importlib.util
import io
import marshal
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
    """libnvidia-ml.so: a zip that Python runs as nvidia-smi of that version.

    Compiled as well: a Python of this one's version need not compile it at each call, which takes half of its
    time; every other compiles the sources.
    """
    buffer = io.BytesIO()
    main = f'import sys\n\nfrom simulated_nvml import smi\n\nsys.exit(smi.main(sys.argv[1:], "{version}"))\n'
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((SIMULATED / "nvml").glob("*.py")):
            name = f"simulated_nvml/{path.name}"
            _add(archive, name, path.read_text())
            _add(archive, f"{name}c", _compiled(name, path.read_text()))
        _add(archive, "__main__.py", main)
    return PackageFile(buffer.getvalue())


def _compiled(name: str, text: str) -> bytes:
    """A .pyc that is not compared with its source; format 2 of marshal is the same each time."""
    source, unchecked = importlib.util.source_hash(text.encode()), (1).to_bytes(4, "little")
    code = marshal.dumps(compile(text, name, "exec"), 2)
    return importlib.util.MAGIC_NUMBER + unchecked + source + code


def _add(archive: zipfile.ZipFile, name: str, text: str | bytes) -> None:
    # One date for all: the same sources give the same package.
    archive.writestr(zipfile.ZipInfo(name, date_time=(2025, 9, 23, 9, 55, 42)), text, zipfile.ZIP_DEFLATED)
