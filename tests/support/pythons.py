"""Other Pythons of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.support.tree import ROOT

from clusterlab.cache import cache_root, content_hash, locked

# Those that the controller may have and most developers do not; the newest first.
NEWER = ("3.13", "3.12")
UNUSED_S = 14 * 24 * 3600.0


def interpreter(version: str) -> Path | None:
    """A Python of this version that can make environments; None if there is none here."""
    name = f"python{version}"
    named = (shutil.which(name) or "", f"/usr/local/bin/{name}", f"/usr/bin/{name}")
    managed = (
        Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/{version}.*/bin/python")
    )
    for found in (*map(Path, filter(None, named)), *managed):
        asked = [str(found), "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        except FileNotFoundError:
            continue
        if done.stdout.strip() == version:
            return found
    return None


def newest() -> Path | None:
    """The newest Python here that the controller may have and that is newer than 3.11."""
    return next(filter(None, map(interpreter, NEWER)), None)


def installed(source: Path) -> Path:
    """The Python of an environment that has what users install: ``requirements.lock``.

    Kept outside of the clone, by the content of the lock; those that nobody used for two weeks are removed.
    """
    lock = ROOT / "requirements.lock"
    home = cache_root() / "pythons"
    place = home / content_hash([lock.read_bytes(), str(source.resolve())])
    used = place / "used"
    with locked("pythons"):
        for old in home.glob("*/used"):
            if time.time() - old.stat().st_mtime > UNUSED_S:
                shutil.rmtree(old.parent)
        python = place / "bin" / "python"
        if not used.exists():
            subprocess.run([source, "-m", "venv", "--clear", place], check=True, timeout=180)
            pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "--require-hashes", "-r", lock], check=True, timeout=600)
        used.touch()
    return python
