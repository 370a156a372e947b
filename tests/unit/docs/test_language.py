"""Plain English: words that other tools' documents do not use."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.support.tree import ROOT

ROOMS = (
    "cli", "lab", "plugins", "roles", "playbooks", "validation", "script", "inventory", "docs", "README.md",
    "CONTRIBUTING.md",
)  # fmt: skip
# What imitates other programs, and what was written once.
EXEMPT = ("lab/clusterlab/simulated/", "docs/decisions/", "docs/pictures/", "plugins/LICENSE:")
WORDS = {
    r"mend(s|ed|ing)?": "fix, repair",
    r"(?<!--)anew": "again",
    r"heed(s|ed)?": "respect, apply",
    r"in vain": "without success",
    r"whom to blame|to blame": "faulty, culprit",
    r"ended (well|badly)": "succeeded, failed",
    r"took no part|takes? no part": "is not used, was omitted",
    r"giv(e|es|ing|en) back": "release, restore",
    r"patience|errands?": "retry, transfer",
    r"(?<!CUT_OFF = .)cut off": "interrupted, truncated",
    r"but for": "except",
    r"to its end": "complete",
    r"for certain": "certainly, with certainty",
    r"put off": "postponed, paused",
    r"go(es)? on (although|trying|all the same|there|where|after)|went on": "continue",
    r"bears?": "have, tolerate",
    r"the whole of": "all of",
    r"(?<!there )(is|are|was|were) no (error|failure|success|pass|secret|file|host)": "is not a, is not an",
}


@pytest.mark.parametrize(("pattern", "better"), WORDS.items())
def test_no_word_of_a_dialect(pattern: str, better: str) -> None:
    found = spoken(ROOT, pattern, better)
    assert found == [], "\n" + "\n".join(found)


def spoken(root: Path, pattern: str, better: str) -> list[str]:
    """Where the words are, and what to write; in files that git does not track yet, too."""
    listed = subprocess.run(
        ["git", "grep", "--untracked", "-nIioP", rf"\b({pattern})\b", "--", *ROOMS],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert listed.returncode in (0, 1), listed.stderr  # 1: nothing found
    hits = (line.split(":", 2) for line in listed.stdout.splitlines() if not line.startswith(EXEMPT))
    return [f'{file}:{number}: found "{words}"; write "{better}"' for file, number, words in hits]


def test_a_finding_has_its_line_and_is_found_in_a_new_file(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/new.md").write_text("# New\n\nThis will mend it.\n", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("ignored.md\n", encoding="utf-8")
    (tmp_path / "docs/ignored.md").write_text("mend\n", encoding="utf-8")
    assert spoken(tmp_path, "mend", "fix") == ['docs/new.md:3: found "mend"; write "fix"']


def test_a_word_of_a_dialect_would_be_found() -> None:
    assert re.search(rf"\b({'|'.join(WORDS)})\b", "Mend what is named", re.IGNORECASE)
