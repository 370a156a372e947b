"""Writes the pages that are made from the code: ``python -m clusterctl.reference DOCS``."""

from __future__ import annotations

import sys
from pathlib import Path

from clustercheck.checks.all import CHECKS
from clustercheck.running.suites import suites
from clusterctl.cluster.settings.options import catalogue
from clusterctl.cluster.spec import role_defaults
from clusterctl.console import say
from clusterctl.explanations import explanations
from clusterctl.main import cli
from clusterctl.reference import checks, codes, commands, faults, settings
from clusterlab.faults import known


def pages() -> dict[str, str]:
    """Every page by its name below docs/."""
    return {
        "reference/commands.md": commands.render(cli),
        "reference/settings.md": settings.render(catalogue(), role_defaults()),
        "reference/checks.md": checks.render(CHECKS, suites()),
        "reference/faults.md": faults.render(known().values()),
        "troubleshooting.md": codes.render(explanations().values()),
    }


def write(docs: Path) -> None:
    """Write every page that differs, and say so."""
    for name, text in pages().items():
        path = docs / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            say(f"written: {path}")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
