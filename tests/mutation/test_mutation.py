"""Self-test and unit tests find changes of our own limits and conditions; what they do not has a reason."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.mutation.judging import PACKAGE, judge
from tests.mutation.mutants import mutants
from tests.support.drawn import seed_of_the_day
from tests.support.tree import ROOT

OF_DATA, OF_CONSTANTS, MODULES, OF_A_MODULE = 2, 2, 2, 4
LEAST_FOUND = 0.95
LISTED: Mapping[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "survivors.yml").read_text(encoding="utf-8")
)
SURVIVORS = {one["mutant"]: one["reason"] for one in LISTED["survivors"]}
ALL = mutants(PACKAGE)


def require_listed(found: Mapping[str, str]) -> None:
    """Nothing survives that is not listed."""
    unlisted = sorted(name for name, by in found.items() if not by and name not in SURVIVORS)
    assert not unlisted, "not found by self-test or unit tests:\n" + "\n".join(unlisted)


def test_every_survivor_that_is_listed_is_a_mutant_of_today_with_a_reason() -> None:
    assert sorted(SURVIVORS.keys() - {one.name for one in ALL}) == []
    assert len(SURVIVORS) == len(LISTED["survivors"])
    assert all(len(reason) > 10 for reason in SURVIVORS.values())


def test_a_sample_of_the_day_is_found(tmp_path: Path) -> None:
    """Of the data, of all modules' constants, and of the modules that were measured whole."""
    chosen = random.Random(seed_of_the_day())  # noqa: S311 - no secret
    data = [one for one in ALL if one.file.endswith(".yml")]
    constants = [one for one in ALL if one.file.endswith(".py") and one.place.isupper()]
    picked = [*chosen.sample(data, OF_DATA), *chosen.sample(constants, OF_CONSTANTS)]
    names = {one.name for one in picked}
    for module in chosen.sample(LISTED["measured"], MODULES):
        of_module = [one for one in ALL if one.file == module and one.name not in names]
        picked += chosen.sample(of_module, min(OF_A_MODULE, len(of_module)))
    require_listed(judge(picked, tmp_path))


@pytest.mark.campaign
@pytest.mark.timeout(6 * 3600)
def test_all_mutants_are_found(tmp_path: Path) -> None:
    """Leaves what found each in .test-logs/mutants.txt."""
    found = judge(ALL, tmp_path)
    logs = ROOT / ".test-logs"
    logs.mkdir(exist_ok=True)
    (logs / "mutants.txt").write_text("".join(f"{by or 'SURVIVED'}\t{name}\n" for name, by in found.items()))
    assert sum(map(bool, found.values())) >= LEAST_FOUND * len(found)
    require_listed(found)
