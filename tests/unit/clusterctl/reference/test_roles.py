"""A role's defaults and the table of its README, as they are generated from argument_specs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from clusterctl.cluster.settings.options import Option
from clusterctl.reference.roles import defaults_file, with_settings_tables

SPECS = """\
argument_specs:
  main:
    short_description: A role
    options:
      role_mode:
        type: str
        choices: [auto, hook, ""]
        default: auto
        description: How it works.
      role_branch:
        default: "580"
        description: Branch.
      role_registry:
        default: >-
          {{ registry_hostname }}:{{
          registry_port }}
        description: The registry.
      role_list:
        default: [a,
                  b]
        description: A list.
      role_name:
        required: true
        description: No default.
"""
CATALOGUE = {
    "role_mode": Option(
        "role_mode", choices=("auto", "hook", ""), default="auto", description="How it works."
    ),
    "role_branch": Option("role_branch", default="580", description=f"{'Branch ' * 30}end."),
    "role_registry": Option("role_registry", default="{{ registry_hostname }}", description="The registry."),
    "role_list": Option("role_list", type="list", elements="str", default=["a", "b"], description="A list."),
    "role_name": Option("role_name", required=True, description="No default."),
}


def test_defaults_are_the_values_of_argument_specs_each_below_its_description(tmp_path: Path) -> None:
    specs = tmp_path / "argument_specs.yml"
    specs.write_text(SPECS, encoding="utf-8")
    made = defaults_file(specs, CATALOGUE)
    options = yaml.safe_load(SPECS)["argument_specs"]["main"]["options"]
    assert yaml.safe_load(made) == {
        name: option["default"] for name, option in options.items() if "default" in option
    }
    assert "# How it works. One of auto, hook.\nrole_mode: auto\n" in made
    assert 'end.\nrole_branch: "580"\n' in made, "text stays text"
    assert "role_registry: >-\n  {{ registry_hostname }}:{{\n  registry_port }}\n" in made
    assert max(len(line) for line in made.splitlines()) <= 120


def test_a_readme_has_the_rows_of_the_settings_that_it_names_and_keeps_the_rest() -> None:
    marker = "<!-- settings: role_mode role_list -->\n"
    readme = f"# role\n\n{marker}an old table\n<!-- end of settings -->\n\nMore text.\n"
    made = with_settings_tables(readme, CATALOGUE)
    assert made.startswith(f"# role\n\n{marker}")
    assert made.endswith("<!-- end of settings -->\n\nMore text.\n")
    assert "| `role_mode` | `auto`, `hook` | `auto` | How it works. |" in made
    assert "| `role_list` | list of str | `a, b` | A list. |" in made
    assert "an old table" not in made
    assert with_settings_tables(made, CATALOGUE) == made


def test_a_readme_that_names_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(KeyError, match="role_typo"):
        with_settings_tables("<!-- settings: role_typo -->\n<!-- end of settings -->\n", CATALOGUE)
