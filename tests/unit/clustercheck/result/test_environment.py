"""What is said of a node's software is text, whatever its programs print."""

from __future__ import annotations

import json

import pytest

from clustercheck.checks.support import seeding
from clustercheck.result.environment import describe
from clustercheck.samples import sample

NODE = "gpu02"


@pytest.mark.parametrize(
    "printed",
    [
        "[" * 100_000,
        '{"ServerVersion": ' + "[" * 700 + "]" * 700 + "}",
        '{"ServerVersion": {"\\u001b[2J": 1}}',
        '{"ServerVersion": NaN}',
        "null",
        "",
    ],
    ids=["deep", "deep inside", "a name", "NaN", "null", "nothing"],
)
def test_no_answer_of_docker_reaches_the_description_but_a_version(printed: str) -> None:
    hostile = seeding.edit(NODE, lambda raw: raw["docker"].update(stdout=printed))(sample.healthy())
    nodes = describe(hostile)["nodes"]
    assert nodes[NODE]["docker"] is None
    assert nodes["gpu01"]["docker"] == describe(sample.healthy())["nodes"]["gpu01"]["docker"] is not None


def test_only_texts_and_numbers_stand_where_such_are_expected() -> None:
    def nested(raw: dict[str, object]) -> None:
        raw["host"] = {"kernel": {"a": [1]}, "boot_id": 7, "os": {"PRETTY_NAME": ["Debian"]}}
        raw["nics"] = [{"name": "eth0", "speed_mbps": [1], "state": {}, "default_route": True}]

    described = describe(seeding.edit(NODE, nested)(sample.healthy()))["nodes"][NODE]
    assert [described[name] for name in ("kernel", "boot_id", "os")] == [None, None, None]
    (nic,) = described["nics"]
    assert nic == {"name": "eth0", "speed_mbps": None, "state": None, "default_route": True}
    json.dumps(described, allow_nan=False)
