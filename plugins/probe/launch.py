# Copyright: the clusterctl authors
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a node as `python3 -c`, with a directory and the code's digest as arguments.

Standard input: one line with the order as JSON, and one with the code as a zip in base64, which may be empty.
Standard output: the answer as JSON; ``{"missing": true}`` if the code is neither here nor on standard input.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path

# Code of other versions stays so long: another controller may use it.
KEPT_S = 7 * 86400


def require_private(path: Path) -> None:
    """End where another user can have written, or a link leads elsewhere: code is run and removed there."""
    state = path.lstat()
    if state.st_uid != os.geteuid() or state.st_mode & 0o022:
        sys.exit(f"{path} is a link, or writable by others")


def is_old(path: Path) -> bool:
    """Return whether it was put here long ago; False if another probe has just removed it."""
    try:
        return time.time() - path.lstat().st_mtime > KEPT_S
    except OSError:
        return False


def unpack(place: Path, code: str) -> None:
    """Put the code in place as a whole or not at all, and remove what is old."""
    fresh = Path(tempfile.mkdtemp(dir=place.parent))
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(code))) as archive:
        archive.extractall(fresh)
    for other in place.parent.iterdir():
        if other not in (fresh, place) and is_old(other):
            shutil.rmtree(other, ignore_errors=True)
    try:
        fresh.rename(place)
    except OSError:  # another probe was faster
        shutil.rmtree(fresh, ignore_errors=True)


def main() -> None:
    """Answer the order with the code of that digest."""
    place = Path(sys.argv[1]) / sys.argv[2]
    order, code = sys.stdin.readline(), sys.stdin.readline().strip()
    os.umask(0o077)
    if not place.is_dir():
        if not code:
            sys.stdout.write('{"missing": true}\n')
            return
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_private(place.parent)
        unpack(place, code)
    require_private(place.parent)
    require_private(place)
    sys.path.insert(0, str(place))
    import replay  # noqa: PLC0415 - it lies in the directory that was just named

    sys.stdout.write(json.dumps(replay.answer(json.loads(order))) + "\n")


main()
