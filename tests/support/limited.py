"""Commands that modules start under a limit of the files that they write."""

from __future__ import annotations

from ansible_collections.clusterctl.cluster.plugins.module_utils.file_limit import with_file_limit


def without_limit(argv: list[str]) -> list[str]:
    """The command alone, where it has such a limit."""
    before = with_file_limit([])
    return argv[len(before) :] if argv[:4] == before[:4] else argv
