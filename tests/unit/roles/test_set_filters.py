"""Ansible's set filters answer in another order in each process: handed on, that is another call."""

from __future__ import annotations

import re
from pathlib import Path

SET_FILTER = re.compile(r"\|\s*(?:difference|union|intersect|symmetric_difference)\(.*?\}\}", re.DOTALL)


def test_what_a_set_filter_gives_is_sorted_or_counted(repository: Path) -> None:
    found = [
        (path.relative_to(repository), used[0])
        for directory in ("roles", "playbooks")
        for path in sorted((repository / directory).rglob("*.yml"))
        for used in SET_FILTER.finditer(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 3
    assert [one for one in found if not re.search(r"\|\s*(sort|length)\b", one[1])] == []
