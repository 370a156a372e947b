"""Every error code with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from clusterctl.explanations import Explanation
from clusterctl.reference.markdown import bullets, page

INTRODUCTION = """\
Errors say what happened, where, and what to do; then a code that stays the same between releases. Here is
more on each. The same on a terminal: `clusterctl explain CODE`. If a host failed, `apply` prints the
task's own words too, and names the file with all that Ansible said.

What a check of `clusterctl validate` finds is not an error in this sense: its remedy is in the report, and in
[checks.md](reference/checks.md). The exit codes are in [commands.md](reference/commands.md)."""


def render(explanations: Iterable[Explanation]) -> str:
    """The page."""
    areas = [(area, list(codes)) for area, codes in groupby(explanations, key=lambda one: one.area)]
    names = ", ".join(f"[{area}](#{area})" for area, _ in areas)
    sections = [f"## {area}\n\n" + "\n\n".join(map(_entry, codes)) for area, codes in areas]
    return page("Troubleshooting", INTRODUCTION, names, *sections)


def _entry(one: Explanation) -> str:
    return "\n\n".join(
        (
            f"### {one.code}",
            f"{one.means} Exit code {one.exit_code}.",
            f"Usual causes:\n\n{bullets(one.causes)}",
            f"What to do:\n\n{bullets(one.remedy)}",
        )
    )
