"""Which versions are others now: from what it was to what it is, once for all nodes that share it."""

from __future__ import annotations

import json

import pytest
from tests.support.judged import passing

from clustercheck.errors import ExplainedError
from clustercheck.expect import baseline
from clustercheck.expect.software import OF_CLUSTER, OF_NODE, Software, software_changes, software_of

OLD, NEW = "580.95.05", "580.105.08"


def cluster(**drivers: str) -> Software:
    return Software({"image": "paddle@1"}, {node: {"driver": driver} for node, driver in drivers.items()})


def test_an_upgrade_is_said_from_then_to_now_once() -> None:
    then = cluster(gpu01=OLD, gpu02=OLD, gpu03=OLD)
    (all_nodes,) = software_changes(then, cluster(gpu01=NEW, gpu02=NEW, gpu03=NEW))
    assert (all_nodes.text, all_nodes.nodes) == (f"driver {OLD} -> {NEW}", ("gpu01", "gpu02", "gpu03"))
    (some,) = software_changes(then, cluster(gpu01=OLD, gpu02=NEW, gpu03=NEW))
    assert some.text == f"driver {OLD} -> {NEW}: gpu02, gpu03"
    assert some.as_json()["everywhere"] is False
    many = {f"gpu{n:02d}": OLD for n in range(9)}
    (few,) = software_changes(cluster(**many, last=OLD), cluster(**dict.fromkeys(many, NEW), last=OLD))
    assert few.text.endswith(": gpu00, gpu01, gpu02, gpu03 and 5 more")


def test_what_is_unknown_of_either_run_and_who_is_new_has_not_changed() -> None:
    then = cluster(gpu01=OLD)
    assert software_changes(then, Software({}, {"gpu01": {}, "gpu02": {"driver": NEW}})) == []
    assert software_changes(Software(), cluster(gpu01=NEW)) == []


@pytest.mark.parametrize("name", [*OF_CLUSTER, *OF_NODE])
def test_every_version_goes_into_a_baseline_and_comes_back(name: str) -> None:
    """Of a document as validate makes it; another version in the next is that one change."""
    made = json.loads(json.dumps(passing().as_json()))
    environment = made["environment"]
    if name == "vbios":
        assert all(gpu["vbios"] for node in environment["nodes"].values() for gpu in node["gpus"])
    kept = json.dumps(baseline.record_of(made))
    then = baseline.parse(kept, where="test").software
    now = software_of(environment)
    assert then == now
    assert software_changes(then, now) == []
    if name in OF_CLUSTER:
        environment[name] = "another"
    elif name == "vbios":
        for node in environment["nodes"].values():
            node["gpus"] = [{**gpu, "vbios": "another"} for gpu in node["gpus"]]
    else:
        for node in environment["nodes"].values():
            node[name] = "another"
    (change,) = software_changes(then, software_of(environment))
    assert change.now == "another" and change.what == {**OF_CLUSTER, **OF_NODE}[name]
    assert change.everywhere


def test_a_baseline_of_an_older_version_still_has_its_drivers() -> None:
    made = passing().as_json()
    record = baseline.record_of(made)
    del record["software"]
    for node in record["nodes"].values():
        del node["software"]
        node["driver"] = OLD + "1"
    found = baseline.parse(json.dumps(record), where="test")
    changes = software_changes(found.software, software_of(made["environment"]))
    assert [change.what for change in changes] == ["driver"]


@pytest.mark.parametrize("software", [[1], "x", {"nccl": "\ud800"}])
def test_versions_that_are_none_make_the_baseline_unreadable_or_are_cleaned(software: object) -> None:
    record = {**baseline.record_of(passing().as_json()), "software": software}
    try:
        found = baseline.parse(json.dumps(record), where="test")
    except ExplainedError as error:
        assert error.code == "baseline.unreadable"
    else:
        assert found.software.cluster == {"nccl": ""}
