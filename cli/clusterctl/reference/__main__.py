"""Writes the files that are made from the code: ``python -m clusterctl.reference DOCS``."""

from __future__ import annotations

import sys
from pathlib import Path

from clustercheck.checks.all import CHECKS
from clustercheck.running.suites import suites
from clusterctl.cluster.settings.options import catalogue
from clusterctl.console import say
from clusterctl.explanations import explanations
from clusterctl.main import cli
from clusterctl.reference import checks, codes, commands, example, faults, roles, settings
from clusterlab.faults import known


def generated_files() -> dict[str, str]:
    """Every file by its path in the tree: pages of docs/, and what repeats the roles' argument_specs."""
    settings_by_name = catalogue()
    return {
        "docs/reference/commands.md": commands.render(cli),
        "docs/reference/settings.md": settings.render(settings_by_name),
        "docs/reference/checks.md": checks.render(CHECKS, suites(), known().values()),
        "docs/reference/faults.md": faults.render(known().values()),
        "docs/troubleshooting.md": codes.render(explanations().values()),
        **roles.render(settings_by_name),
        **example.render(settings_by_name),
    }


def write(root: Path) -> None:
    """Write every file that differs, and name it."""
    for name, text in generated_files().items():
        path = root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            say(f"written: {path}")


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve().parent)
