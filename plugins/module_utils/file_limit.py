# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Programs that can write no file beyond a size: what a source says of its own size, nobody need believe."""

from __future__ import annotations

# Of an index of packages, unpacked: the longest of distributions have some 100 MB.
MAX_INDEX_BYTES = 1 << 30


def with_file_limit(argv: list[str], most_bytes: int = MAX_INDEX_BYTES) -> list[str]:
    """The same program, which can write no file that is longer, and none that it starts.

    An index that nobody signs has any size that its source says.
    """
    return ["/bin/sh", "-c", 'ulimit -f "$1" && shift && exec "$@"', "sh", str(most_bytes // 512), *argv]
