"""Every check proves itself: faults turn its verdict, healthy evidence passes, nonsense is never green."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import Check, evaluate, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.xid import catalogue, judge_messages, line
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Scope, Subject, Verdict
from clustercheck.parse.kernel_log import parse_line
from clustercheck.parse.reading import CannotReadError
from clustercheck.probe import cpu, firmware, host, pages
from clustercheck.samples import sample, smi
from clustercheck.selftest import HEALTHY, prove

HEALTHY_EVIDENCE = sample.healthy()
OF_NODES = [check for check in CHECKS if check.scope in (Scope.HOST, Scope.GPU, Scope.LINK)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_check_proves_itself(check: Check) -> None:
    proofs = prove([check], HEALTHY_EVIDENCE)
    assert len(proofs) > len(check.faults)
    assert [proof for proof in proofs if not proof.good] == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_check_explains_itself_and_has_a_fault_that_makes_it_fail(check: Check) -> None:
    for text in (check.title, check.measures, check.method, check.requires, check.expectation, check.remedy):
        assert len(text) >= 3
    assert any(fault.verdict in (Verdict.FAIL, Verdict.WARNING) for fault in check.faults)
    assert len({fault.name for fault in check.faults}) == len(check.faults)
    assert list(BY_ID) == [each.id for each in CHECKS]


def test_a_check_that_does_not_pass_on_the_sample_is_told_what_to_add() -> None:
    def hungry(evidence: Evidence, subject: Subject) -> Any:
        raise CannotReadError("no swap is known")

    proof = prove([replace(BY_ID["memory"], judge=hungry)])[0]
    assert not proof.good
    assert proof.because.endswith("add it in validation/clustercheck/samples/")


@pytest.mark.parametrize("part", [host.host, host.memory, cpu.cpu, firmware.firmware, pages.huge_pages])
def test_the_sample_has_every_value_that_the_probe_collects_of_a_host(part: Any) -> None:
    lacking = set(part()) - set(sample.probe_record(1)[part.__name__])
    assert lacking == set(), f"add them to {part.__name__} in validation/clustercheck/samples/"


def test_a_fault_leaves_the_healthy_evidence_as_it_was() -> None:
    evidence = sample.healthy()
    before = copy.deepcopy({name: node.raw for name, node in evidence.nodes.items()})
    for check in CHECKS:
        for fault in check.faults:
            fault.inject(evidence)
    assert before == {name: node.raw for name, node in evidence.nodes.items()}


def test_the_self_test_notices_a_check_that_cannot_fail_or_always_fails() -> None:
    blind = replace(BY_ID["gpu-ecc"], judge=lambda evidence, subject: passed())
    proofs = {proof.fault: proof for proof in prove([blind])}
    assert proofs[HEALTHY].good and not proofs["ecc-dram"].good
    unproved = replace(BY_ID["gpu-ecc"], faults=())
    assert not all(proof.good for proof in prove([unproved]))

    def explode(evidence: Evidence, subject: Subject) -> Any:
        raise KeyError("no such field")

    broken = replace(BY_ID["gpu-ecc"], judge=explode)
    result = evaluate(broken, sample.healthy())[0]
    assert result.verdict is Verdict.NOT_RUN and "the check itself failed: KeyError" in result.because
    assert not prove([broken])[0].good


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=4,
)
PARTS = sorted(set(sample.probe_record(1)) - {"probe", "errors", "duration_s"})


@pytest.fixture(scope="module")
def passing() -> set[str]:
    """Checks that pass on healthy evidence: of others test_a_check_proves_itself tells."""
    results = [result for check in OF_NODES for result in evaluate(check, HEALTHY_EVIDENCE)]
    return {check.id for check in OF_NODES} - {r.check for r in results if r.verdict is not Verdict.PASS}


@examples(40)
@given(part=st.sampled_from(PARTS), value=JSON)
def test_a_part_that_is_anything_at_all_never_breaks_a_check(part: str, value: Any) -> None:
    evidence = seeding.edit("gpu01", lambda raw: raw.update({part: value}))(sample.healthy(nodes=2))
    for check in OF_NODES:
        for result in evaluate(check, evidence):
            assert "the check itself failed" not in result.because, (check.id, result.because)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_missing_is_not_run_in_some_check_or_matters_to_none(
    part: str, passing: set[str]
) -> None:
    evidence = seeding.edit("gpu01", lambda raw: raw.pop(part))(HEALTHY_EVIDENCE)
    results = [result for check in OF_NODES for result in evaluate(check, evidence)]
    troubled = {result.check for result in results if result.verdict is not Verdict.PASS} & passing
    described = {
        "toolkit",
        "containerd",
        "device_links",
        "clock",
        "busy",
        "gpu_list",
    }  # the last: where MIG is on
    assert bool(troubled) is (part not in described), (
        f"without the part {part}, these checks do not pass: {sorted(troubled) or 'none'}"
    )
    wrong = {result.check for result in results if result.verdict is Verdict.FAIL} & passing
    assert wrong == set(), f"without the part {part} they fail: a check of what is missing is not run"


def test_only_hardware_reasons_are_throttling() -> None:
    evidence = seeding.smi("gpu01", 0, "clocks_event_reasons/clocks_event_reason_sw_power_cap", "Active")(
        sample.healthy()
    )
    assert all(r.verdict is Verdict.PASS for r in evaluate(BY_ID["gpu-throttle"], evidence))


def test_links_are_excluded_with_mig_and_without_links() -> None:
    evidence = seeding.smi("gpu01", 0, "mig_mode/current_mig", "Enabled")(sample.healthy())
    results = {r.subject: r for r in evaluate(BY_ID["nvlink"], evidence)}
    assert results[Subject("gpu01", 0)].verdict is Verdict.EXCLUDED
    assert "MIG" in results[Subject("gpu01", 0)].because
    assert results[Subject("gpu01", 1)].verdict is Verdict.PASS


def test_a_recovery_action_is_not_asked_of_old_drivers() -> None:
    def old(raw: seeding.Raw) -> None:
        raw["nvidia_smi"]["stdout"] = raw["nvidia_smi"]["stdout"].replace(smi.DRIVER, "535.309.01")

    evidence = seeding.chain(
        seeding.edit("gpu01", old), seeding.smi("gpu01", 0, "gpu_recovery_action", None)
    )(sample.healthy())
    result = evaluate(BY_ID["gpu-recovery"], evidence)[0]
    assert result.verdict is Verdict.EXCLUDED


def test_drivers_that_differ_with_nothing_declared() -> None:
    sound = sample.healthy()
    undeclared = replace(sound, spec=replace(sound.spec, driver_version="", driver_branch=""))
    check = BY_ID["driver-version"]
    assert {r.verdict for r in evaluate(check, undeclared)} == {Verdict.PASS}
    skewed = check.faults[0].inject(undeclared)
    assert [r.verdict for r in evaluate(check, skewed)] == [Verdict.PASS, Verdict.FAIL, Verdict.PASS]
    two = sample.healthy(nodes=2)
    two = replace(two, spec=replace(two.spec, driver_version="", driver_branch=""))
    results = evaluate(check, check.faults[0].inject(two))
    assert [r.verdict for r in results] == [Verdict.FAIL, Verdict.FAIL]
    assert all("cannot determine" in r.because for r in results)


def test_a_node_that_matches_the_settings_passes_if_another_does_not() -> None:
    check = BY_ID["driver-version"]
    for declared in ({}, {"driver_version": "", "driver_branch": "580"}):
        two = sample.healthy(nodes=2)
        two = replace(two, spec=replace(two.spec, **declared))
        other = check.faults[0].inject(two) if not declared else check.faults[1].inject(sample.healthy(3))
        skewed = replace(two, nodes={"gpu01": two.nodes["gpu01"], "gpu02": other.nodes["gpu02"]})
        assert [r.verdict for r in evaluate(check, skewed)] == [Verdict.PASS, Verdict.FAIL]


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [
        ([], Verdict.PASS),
        ([13, 31, 43, 45, 63], Verdict.PASS),
        ([13, 79], Verdict.FAIL),
        ([8, 11, 32, 37, 66, 70, 93, 121, 137], Verdict.PASS),  # the application's, or to be ignored
        ([48], Verdict.FAIL),
        ([46], Verdict.FAIL),
        ([110], Verdict.FAIL),
        ([140], Verdict.FAIL),
        ([143], Verdict.FAIL),
        ([156], Verdict.FAIL),
        ([145], Verdict.NOT_RUN),  # of NVLink 5: its action hangs on the message
        ([999], Verdict.NOT_RUN),
        ([999, 95], Verdict.FAIL),
    ],
)
def test_xids_are_judged_each_by_its_own_action(codes: list[int], verdict: Verdict) -> None:
    xids = [xid for code in codes if (xid := parse_line(line("0000:07:00", code))) is not None]
    assert judge_messages(xids, {"source": "journal"}).verdict is verdict


def test_the_table_of_xids_names_an_action_for_every_code() -> None:
    table = catalogue()
    assert {entry["action"] for entry in table["codes"].values()} <= set(table["actions"])
    reset = [46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158]
    assert {table["codes"][code]["action"] for code in reset} == {"reset_gpu"}
    assert table["codes"][79]["action"] == "reboot_node"
    assert "reset the GPU" in table["actions"][table["codes"][48]["action"]]
    # A fault has something to do, and what is none asks for nothing of the node.
    quiet = {"none", "application", "smoothing"}
    assert all(bool(entry["fault"]) is (entry["action"] not in quiet) for entry in table["codes"].values())


def test_messages_that_were_left_out_are_not_clean() -> None:
    evidence = seeding.edit("gpu01", lambda raw: raw["kernel_log"].update(dropped=3))(sample.healthy())
    assert evaluate(BY_ID["xid"], evidence)[0].verdict is Verdict.NOT_RUN


def test_a_gpu_that_is_gone_keeps_its_number_where_a_whole_node_shows_its_place() -> None:
    evidence = seeding.lose_gpu("gpu02", 2, from_bus=True)(sample.healthy())
    assert evidence.slots("gpu02") == evidence.slots("gpu01")
    alone = Evidence(sample.spec(1), {"gpu01": NodeEvidence("gpu01", sample.probe_record(1))})
    lonely = seeding.lose_gpu("gpu01", 2, from_bus=True)(alone)
    results = evaluate(BY_ID["gpu-present"], lonely)
    assert [r.subject.gpu for r in results if r.verdict is Verdict.FAIL] == [7]  # the number cannot be known
    (culprit,) = find_culprits(results, None, group_is_slow=False)
    assert (culprit.scope, culprit.node, culprit.gpu) == ("node", "gpu01", None)
    assert "no complete node of its kind shows which one is missing" in culprit.because
    assert "complete node of the same kind" in culprit.remedy


def test_a_list_of_gpus_may_say_more_behind_each() -> None:
    def says_more(raw: seeding.Raw) -> None:
        raw["container_gpus"]["stdout"] = raw["container_gpus"]["stdout"].replace(")\n", ") (simulated)\n")

    evidence = seeding.edit("gpu01", says_more)(sample.healthy())
    assert evaluate(BY_ID["container-gpus"], evidence)[0].verdict is Verdict.PASS


OF_JOBS = [check for check in CHECKS if check.job]
KEYS = [
    "points",
    "not_done",
    "cases",
    "without",
    "trials",
    "backend",
    "interface",
    "parameters_sha256",
    "max_loss_difference",
    "losses",
    "tolerance",
]


@examples(50)
@given(key=st.sampled_from(KEYS), value=JSON | st.floats(), whole=st.booleans())
def test_no_verdict_of_a_rank_is_a_pass_by_mistake(key: str, value: Any, whole: bool) -> None:
    def change(rank: Any, said: seeding.Raw) -> None:
        if rank.node == "gpu01":
            if key in ("points", "trials", "cases") and key in said and not whole:
                said[key] = [value, *said[key][1:]]
            else:
                said[key] = value

    healthy = sample.healthy()
    for check in OF_JOBS:
        evidence = seeding.verdicts(check.job, change)(healthy)
        for result in evaluate(check, evidence):
            assert "the check itself failed" not in result.because, (check.id, result.because)
            if key == "parameters_sha256" and check.id == "data-parallel" and result.subject.node == "gpu01":
                assert result.verdict is not Verdict.PASS
