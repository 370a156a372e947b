"""One thing wrong with the settings, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import Node


@dataclass(frozen=True)
class SettingsProblem:
    """``line`` and ``column`` count from 1; 0 where the file as a whole is meant."""

    file: Path
    line: int
    column: int
    what: str
    hint: str = ""
    code: str = "settings.invalid"

    @property
    def where(self) -> str:
        """FILE:LINE, the file relative to the current directory where it lies below that."""
        try:
            shown = self.file.relative_to(Path.cwd())
        except (ValueError, OSError):
            shown = self.file
        return f"{shown}:{self.line}" if self.line else str(shown)


def at(file: Path, node: Node, what: str, hint: str = "", code: str = "settings.invalid") -> SettingsProblem:
    """A problem at a node of a YAML file."""
    mark = node.start_mark
    return SettingsProblem(file, mark.line + 1, mark.column + 1, what, hint, code)
