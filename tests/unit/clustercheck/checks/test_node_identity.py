"""A machine or a GPU under two names: what is not told makes no two of them one."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.checks.base import evaluate
from clustercheck.checks.node_identity import CHECK
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Verdict
from clustercheck.samples import sample

PASS, FAIL, NOT_RUN = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN


def verdicts(evidence: Evidence) -> list[Verdict]:
    return [result.verdict for result in evaluate(CHECK, evidence)]


def with_boot_id(evidence: Evidence, boot_id: Any, *nodes: str) -> Evidence:
    for node in nodes:
        evidence = seeding.edit(node, lambda raw: raw["host"].update(boot_id=boot_id))(evidence)
    return evidence


@pytest.mark.parametrize("boot_id", ["", None, 7])
def test_two_nodes_that_do_not_tell_their_boot_are_not_one_machine(boot_id: Any) -> None:
    evidence = with_boot_id(sample.healthy(), boot_id, "gpu01", "gpu02")
    assert verdicts(evidence) == [NOT_RUN, NOT_RUN, PASS]


def test_two_names_of_one_machine_are_both_named_and_the_third_is_not() -> None:
    evidence = with_boot_id(sample.healthy(), "one", "gpu01", "gpu02")
    assert verdicts(evidence) == [FAIL, FAIL, PASS]


def test_a_node_that_tells_nothing_of_its_host_leaves_the_others_judged() -> None:
    silent = seeding.edit("gpu01", lambda raw: raw.update(host=None))(sample.healthy())
    assert verdicts(silent) == [NOT_RUN, PASS, PASS]


def with_uuid(evidence: Evidence, uuid: str, *places: tuple[str, int]) -> Evidence:
    return seeding.chain(*(seeding.smi(node, gpu, "uuid", uuid) for node, gpu in places))(evidence)


def test_one_uuid_at_two_places_is_found_within_a_node_and_across() -> None:
    within = with_uuid(sample.healthy(), "GPU-1", ("gpu01", 0), ("gpu01", 1))
    assert verdicts(within) == [FAIL, PASS, PASS]
    across = with_uuid(sample.healthy(), "GPU-1", ("gpu01", 0), ("gpu03", 5))
    assert verdicts(across) == [FAIL, PASS, FAIL]
    because = evaluate(CHECK, across)[0].because
    assert because == "one UUID at 2 places: GPU 0 of gpu01, GPU 5 of gpu03"


def test_what_is_no_uuid_is_at_as_many_places_as_it_likes() -> None:
    evidence = with_uuid(sample.healthy(), "N/A", ("gpu01", 0), ("gpu02", 0))
    assert verdicts(evidence) == [PASS, PASS, PASS]


def test_who_claims_the_boot_id_of_another_is_named_with_it_and_the_third_is_as_before() -> None:
    """Either may lie, and one machine under two names looks alike: a pair is named, and no node."""
    theirs = sample.healthy().nodes["gpu01"].raw["host"]["boot_id"]
    results = evaluate(CHECK, with_boot_id(sample.healthy(), theirs, "gpu02"))
    assert [r.verdict for r in results] == [FAIL, FAIL, PASS]
    assert results[2] == evaluate(CHECK, sample.healthy())[2]
    assert [(c.scope, c.node, c.peer) for c in find_culprits(results, None, False)] == [
        ("link", "gpu01", "gpu02")
    ]


@pytest.mark.parametrize("boot_id", ["", "00000000-0000-0000-0000-000000000000"])
def test_who_claims_what_two_others_are_fails_alone(boot_id: str) -> None:
    healthy = sample.healthy()
    lying = with_boot_id(healthy, boot_id or healthy.nodes["gpu01"].raw["host"]["boot_id"], "gpu02")
    for gpu, victim in enumerate(("gpu01", "gpu03")):
        lying = with_uuid(lying, healthy.nodes[victim].smi().gpus[5].uuid, ("gpu02", gpu))
    results = evaluate(CHECK, lying)
    assert [results[0], results[2]] == [evaluate(CHECK, healthy)[place] for place in (0, 2)]
    assert results[1].verdict is FAIL
    assert [(c.scope, c.node) for c in find_culprits(results, None, False)] == [("node", "gpu02")]
