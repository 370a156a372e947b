"""Other Pythons of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def interpreter(version: str) -> Path | None:
    """A Python of this version that can make environments; None if there is none here."""
    named = [shutil.which(f"python{version}")]
    managed = (
        Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/{version}.*/bin/python")
    )
    for found in filter(None, [*named, *managed]):
        asked = [str(found), "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        if done.stdout.strip() == version:
            return Path(found)
    return None
