"""Compiles the tables of clustercheck from YAML to JSON for the wheel: nodes have no YAML parser."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOM = "validation/clustercheck"


def compile_tables(source: Path, target: Path) -> dict[Path, str]:
    """Writes each table under ``source`` as JSON under ``target``; returns the files with their places."""
    written = {}
    for path in sorted(source.rglob("*.yml")):
        place = path.relative_to(source).with_suffix(".json")
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
        (target / place).write_text(json.dumps(table, separators=(",", ":")), encoding="utf-8")
        written[target / place] = str(place)
    return written


class CompileTables(BuildHookInterface):  # type: ignore[misc,type-arg]
    """Called by hatchling when it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the tables to a wheel; an editable one reads them from the tree."""
        if version == "editable":
            return
        self._directory = tempfile.TemporaryDirectory()
        tables = compile_tables(Path(self.root) / ROOM, Path(self._directory.name))
        build_data["force_include"].update(
            {str(path): f"clustercheck/{place}" for path, place in tables.items()}
        )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled."""
        if version != "editable":
            self._directory.cleanup()
