"""The example inventory: the comment above each setting is the setting's description."""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

from clusterctl.cluster.settings.options import Option
from clusterctl.cluster.templating import is_template
from clusterctl.content import content_root
from clusterctl.reference.settings import comment, meaning

COMMENT_WIDTH = 110
# A setting, or a setting that is commented out with an example value.
SETTING = re.compile(r"(?:# )?([a-z][a-z0-9_]*):(?: (.*))?")


def render(catalogue: Mapping[str, Option]) -> dict[str, str]:
    """The files of group_vars, by their paths in the tree."""
    root = content_root()
    files = sorted((root / "inventory" / "example" / "group_vars").glob("*.yml"))
    return {
        file.relative_to(root).as_posix(): with_descriptions(file.read_text(encoding="utf-8"), catalogue)
        for file in files
    }


def with_descriptions(text: str, catalogue: Mapping[str, Option]) -> str:
    """``text`` with the description of each setting directly above it."""
    lines: list[str] = []
    for line in text.splitlines():
        found = SETTING.fullmatch(line)
        if found and found[1] in catalogue:
            while lines and _is_comment(lines[-1]):
                lines.pop()
            lines += _comment(catalogue[found[1]], found[2] or "")
        lines.append(line)
    return "\n".join(lines) + "\n"


def _is_comment(line: str) -> bool:
    """Whether a line is text; not a heading, a setting, or more lines of a setting's value."""
    return line.startswith("# ") and not line.startswith(("# --", "#  ")) and not SETTING.fullmatch(line)


def _comment(option: Option, shown: str) -> list[str]:
    text, default = meaning(option), option.default
    if default not in (None, "", [], {}) and not is_template(default) and yaml.safe_load(shown) != default:
        text += f" Default: {yaml.safe_dump(default, default_flow_style=True).splitlines()[0]}."
    return comment(text, COMMENT_WIDTH)
