"""The files that are generated from the code are those that are in the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.reference.__main__ import generated_files, write


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """Every file, generated now."""
    return generated_files()


def test_the_generated_files_are_those_of_the_code(made: dict[str, str], repository: Path) -> None:
    stale = [
        name
        for name, text in made.items()
        if not (repository / name).is_file() or (repository / name).read_text(encoding="utf-8") != text
    ]
    assert stale == [], f"run script/reference, and commit what it writes: {', '.join(stale)}"


def test_every_page_of_the_reference_is_generated(made: dict[str, str], repository: Path) -> None:
    there = {f"docs/reference/{path.name}" for path in (repository / "docs/reference").iterdir()}
    assert there <= set(made)


def test_the_defaults_of_every_role_and_the_example_settings_are_generated(
    made: dict[str, str], repository: Path
) -> None:
    there = [*repository.glob("roles/*/defaults/*.yml"), *repository.glob("inventory/example/group_vars/*")]
    assert len(there) > 8
    assert {path.relative_to(repository).as_posix() for path in there} <= set(made)


def test_a_file_that_differs_is_written_again(tmp_path: Path, made: dict[str, str]) -> None:
    write(tmp_path)
    faults = tmp_path / "docs/reference/faults.md"
    faults.write_text("something else\n", encoding="utf-8")
    write(tmp_path)
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in made} == made


def test_the_page_of_checks_names_those_that_warn_and_the_lab_faults_of_each(made: dict[str, str]) -> None:
    page = made["docs/reference/checks.md"]
    warnings = page[page.index("## Warnings") : page.index("## Suites")]
    assert "- [cpu-governor](#cpu-governor)\n" in warnings and "gpu-ecc" not in warnings
    ecc = page[page.index("## gpu-ecc\n") :]
    assert "- lab faults: `ecc-off`, `ecc-uncorrectable`, `sram-threshold`\n" in ecc[: ecc.index("\n## ")]
    governor = page[page.index("## cpu-governor\n") :]
    assert "- lab faults: none" in governor[: governor.index("\n## ")]


def test_every_option_and_command_says_what_it_is(made: dict[str, str]) -> None:
    lines = made["docs/reference/commands.md"].splitlines()
    empty = [
        line for line in lines if line.startswith("| `") and line.split(" | ")[-1].startswith(("|", "["))
    ]
    assert empty == []


def test_every_setting_says_what_it_is(made: dict[str, str]) -> None:
    rows = [line for line in made["docs/reference/settings.md"].splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [row for row in rows if not row.rstrip("| ").endswith((".", '"', "`"))] == []
