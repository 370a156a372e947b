"""The files of a role that repeat its argument_specs: defaults/main.yml, and the table of its README."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node

from clusterctl.cluster.settings.options import Option
from clusterctl.content import content_root
from clusterctl.reference.markdown import table
from clusterctl.reference.settings import HEADS, comment, meaning, setting_rows

GENERATED = "# Generated from meta/argument_specs.yml by script/reference. Change that file, not this one."
COMMENT_WIDTH = 120
SETTINGS_TABLE = re.compile(r"(<!-- settings: ([\w ]+) -->\n).*?(<!-- end of settings -->)", re.DOTALL)


def render(catalogue: Mapping[str, Option]) -> dict[str, str]:
    """The files of every role, by their paths in the tree."""
    files = {}
    for specs in sorted((content_root() / "roles").glob("*/meta/argument_specs.yml")):
        role = specs.parent.parent
        readme = (role / "README.md").read_text(encoding="utf-8")
        files[f"roles/{role.name}/README.md"] = with_settings_tables(readme, catalogue)
        files[f"roles/{role.name}/defaults/main.yml"] = defaults_file(specs, catalogue)
    return files


def defaults_file(specs: Path, catalogue: Mapping[str, Option]) -> str:
    """defaults/main.yml: each default as argument_specs spells it, below what the setting means."""
    text = specs.read_text(encoding="utf-8")
    lines = ["---", GENERATED, ""]
    for name, default in _defaults(yaml.compose(text, Loader=yaml.SafeLoader)):
        lines += comment(meaning(catalogue[name]), COMMENT_WIDTH)
        lines.append(f"{name}: {_source(text, default)}")
    return "\n".join(lines) + "\n"


def with_settings_tables(readme: str, catalogue: Mapping[str, Option]) -> str:
    """A README with the rows of the settings that its markers name."""

    def filled(marker: re.Match[str]) -> str:
        rows = [row for name in marker[2].split() for row in setting_rows(catalogue[name], catalogue)]
        return f"{marker[1]}\n{table(HEADS, rows)}\n\n{marker[3]}"

    return SETTINGS_TABLE.sub(filled, readme)


def _defaults(root: Node | None) -> Iterator[tuple[str, Node]]:
    """The default of every option of every entry point that has one."""
    for entry_point in _attributes(_attributes(root)["argument_specs"]).values():
        for name, option in _attributes(_attributes(entry_point).get("options")).items():
            default = _attributes(option).get("default")
            if default is not None:
                yield name, default


def _attributes(node: Node | None) -> dict[str, Node]:
    return {str(key.value): value for key, value in node.value} if isinstance(node, MappingNode) else {}


def _source(text: str, node: Node) -> str:
    """A value as it is written, with the indentation that it has at the top of a file."""
    first, *more = text[node.start_mark.index : node.end_mark.index].rstrip().splitlines()
    return "\n".join([first, *textwrap.indent(textwrap.dedent("\n".join(more)), "  ").splitlines()])
