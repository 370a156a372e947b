"""A release is of the newest section of CHANGELOG.md; changes come under Unreleased until then."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.mark.parametrize("newest", ["Unreleased", "0.0.9 - 2020-01-01", "0.1.0"])
def test_changes_that_are_not_of_this_version_are_not_released(
    tmp_path: Path, repository: Path, newest: str
) -> None:
    (tmp_path / "script").mkdir()
    for name in ("release", "lib.sh"):
        shutil.copy2(repository / "script" / name, tmp_path / "script")
    (tmp_path / "galaxy.yml").write_text("version: 0.1.0\n", encoding="utf-8")
    changes = f"# Changelog\n\n## {newest}\n\n- New.\n\n## 0.1.0 - 2026-11-24\n\n- Old.\n"
    (tmp_path / "CHANGELOG.md").write_text(changes, encoding="utf-8")
    done = subprocess.run(
        ["bash", str(tmp_path / "script/release")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert f"the newest section of CHANGELOG.md is '{newest}', not that of 0.1.0" in done.stderr
    assert "Replace the heading ## Unreleased by: ## 0.1.0 - 20" in done.stderr


def test_the_changelog_has_one_section_for_what_is_not_released_at_most_and_at_the_top(
    repository: Path,
) -> None:
    headings = re.findall(
        r"^## (.*)$", (repository / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    released = headings[1:] if headings[0] == "Unreleased" else headings
    assert released and all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", one) for one in released)
