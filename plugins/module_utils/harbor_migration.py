# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Harbor's own tool asked whether it takes an earlier release's settings, by migrating a copy of them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file

PREFIX = ".migrate."
REDIS = "external_redis: "
# Harbor's template for 2.15 asks for these of `redis` where `external_redis` has them.
ASKED_OF_REDIS = ("harbor_db_index", "cache_layer_db_index")


def copy_for_migration(text: str) -> str:
    """Settings as the tool can read them, where what it asks for is not a setting of Harbor's."""
    line = next((line for line in text.splitlines() if line.startswith(REDIS)), "")
    try:
        redis = json.loads(line.removeprefix(REDIS) or "{}")
    except ValueError:
        return text
    asked = {name: redis[name] for name in ASKED_OF_REDIS if name in redis}
    return f"{text.rstrip()}\nredis: {json.dumps(asked)}\n" if asked else text


def migrate(before: Path, release: Path, version: str, run: Callable[[list[str]], None]) -> None:
    """Migrate a copy of the settings in ``before``; ``run`` fails where the tool refuses.

    The tool writes what it made with passwords for everybody to read: into a directory of root's that goes.
    """
    for left in [*release.glob(f"{PREFIX}*"), release / "harbor.yml.migrated"]:
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)
    place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=release))
    try:
        copy = place / "harbor.yml"
        text = (before / "harbor.yml").read_text(encoding="utf-8")
        replace_file(copy, copy_for_migration(text), 0o600)
        tool = f"goharbor/prepare:{version}"
        run(["docker", "run", "--rm", "-v", "/:/hostfs", tool, "migrate", "-i", str(copy)])
    finally:
        shutil.rmtree(place)
