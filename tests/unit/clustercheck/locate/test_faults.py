"""A search's verdict as the rest of the house knows it."""

from __future__ import annotations

from clustercheck.locate.faults import IsolationResult, LocatedFault

LOCATED = IsolationResult(
    (
        LocatedFault("node", ("gpu01",), "slow with every partner"),
        LocatedFault("gpu", ("gpu02",), "GPU 3 is slow", gpu=3),
        LocatedFault("rail", ("gpu03",), "rail 5 is slow", rail=5),
        LocatedFault("rail", (), "slow for all nodes", rail=2),
        LocatedFault("link", ("gpu04", "gpu05"), "only this pair"),
        LocatedFault("switch", ("gpu06", "gpu07"), "all of it", block="leaf3"),
        LocatedFault("node", ("gpu08",), "not measured", sure=False),
    ),
)


def test_every_kind_becomes_a_culprit_that_names_its_place() -> None:
    found = [(c.scope, c.node, c.gpu, c.peer) for fault in LOCATED.faults for c in fault.as_culprits()]
    assert found == [
        ("node", "gpu01", None, None), ("gpu", "gpu02", 3, None), ("rail", "gpu03", None, "rail 5"),
        ("rail", "", None, "rail 2"), ("link", "gpu04", None, "gpu05"), ("switch", "leaf3", None, None),
        ("node", "gpu08", None, None),
    ]  # fmt: skip
    assert LOCATED.faults[-1].as_culprits()[0].because == "suspected, cannot tell: not measured"


def test_of_many_nodes_of_which_one_is_slow_none_is_named_alone() -> None:
    many = LocatedFault("node", tuple(f"gpu{n:02d}" for n in range(20)), "every pair is slow", sure=False)
    assert [(c.scope, c.node) for c in many.as_culprits()] == [("switch", "")]
    few = LocatedFault("node", ("gpu01", "gpu02"), "one of two", sure=False)
    assert [c.node for c in few.as_culprits()] == ["gpu01", "gpu02"]


def test_uncertain_faults_have_a_remedy_of_their_own() -> None:
    remedies = {"node": "node", "gpu": "gpu", "link": "cable", "switch": "what is shared", "unsure": "look"}
    said = [(c.scope, c.remedy) for fault in LOCATED.faults for c in fault.as_culprits(remedies)]
    assert said == [
        ("node", "node"), ("gpu", "gpu"), ("rail", ""), ("rail", ""), ("link", "cable"),
        ("switch", "what is shared"), ("node", "look"),
    ]  # fmt: skip
