"""What does not apply to nodes that are containers, as those of the lab are: told without a lab."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.lab_limits import NOT_IN_A_LAB, NOT_IN_CONTAINERS, WITHOUT_LAB_FAULT

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Verdict
from clustercheck.running.suites import suites
from clustercheck.samples import sample
from clusterlab import faults


def test_the_checks_that_do_not_apply_in_containers_are_those_of_the_list() -> None:
    def contain(raw: seeding.Raw) -> None:
        raw["virtual"].update(rc=0, stdout="docker\n")

    sound = sample.healthy()
    contained = seeding.chain(*(seeding.edit(node, contain) for node in sound.nodes))(sound)
    excluded = {
        check.id
        for check in CHECKS
        if any(result.verdict is Verdict.EXCLUDED for result in evaluate(check, contained))
    }
    assert excluded == NOT_IN_CONTAINERS, (
        "a check that does not apply to a node in a container belongs to NOT_IN_CONTAINERS of "
        "tests/support/lab_limits.py and into docs/reliability.md"
    )


def test_the_list_has_only_checks_of_the_quick_suite() -> None:
    assert {check.id for check in suites()["quick"].selected()} >= NOT_IN_A_LAB


def test_the_page_on_reliability_names_them(repository: Path) -> None:
    text = (repository / "docs/reliability.md").read_text(encoding="utf-8")
    section = text[text.index("## What the lab cannot host") :]
    named = set(re.findall(r"`([a-z0-9-]+)`", section))
    assert named == WITHOUT_LAB_FAULT, "the checks of tests/support/lab_limits.py and of this section differ"


def test_every_check_is_found_by_a_lab_fault_or_has_a_reason_why_not() -> None:
    checks = {check.id for suite in suites().values() for check in suite.selected()}
    caught = {check for fault in faults.known().values() for check in fault.caught_by}
    assert checks - caught == WITHOUT_LAB_FAULT, (
        "a check that no lab fault names in caught_by belongs to tests/support/lab_limits.py, with its "
        "reason, and into docs/reliability.md; one that a fault names belongs to neither"
    )
