"""Plain English: words that other tools' documents do not use."""

from __future__ import annotations

import re
import subprocess

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
    listed = subprocess.run(
        ["git", "grep", "-nIiP", rf"\b({pattern})\b", "--", *ROOMS],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    found = [line for line in listed.splitlines() if not line.startswith(EXEMPT)]
    assert found == [], f"say it in plain words ({better})"


def test_a_word_of_a_dialect_would_be_found() -> None:
    assert re.search(rf"\b({'|'.join(WORDS)})\b", "Mend what is named", re.IGNORECASE)
