"""What two hosts of an applied lab answered to the drift probe.

`python -m tests.support.drift_answers CLUSTER_DIRECTORY` records it anew.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clusterctl.cluster import inventory
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.rollout.drift.calls import CONTROLLER, Call
from clusterctl.rollout.drift.records import DriftRecord, load_record
from clusterctl.rollout.drift.replay import Answers, replay_calls
from clusterctl.rollout.drift.report import find_differences, fingerprint_answers

FILE = Path(__file__).parents[1] / "golden" / "drift-answers.json"
HOSTS = ("gpu01", "registry01")
# In the place of what names this machine.
ROOT = "/srv/cluster"
KERNEL = "6.1.0-28-amd64"


@dataclass(frozen=True)
class Recorded:
    """The record of a host, and its answers and the controller's (by `CONTROLLER`)."""

    record: DriftRecord
    answers: Mapping[str, Mapping[str, Any]]


def read_recorded() -> dict[str, Recorded]:
    """Returns what was recorded, by host; the fingerprints are made anew."""
    found = {}
    for name, pairs in json.loads(FILE.read_text(encoding="utf-8")).items():
        calls = tuple(Call(**pair["call"]) for pair in pairs)
        answers: dict[str, dict[str, Any]] = {"": {}, CONTROLLER: {}}
        for call, pair in zip(calls, pairs, strict=True):
            answers[call.at][call.identity] = pair["answer"]
        record = DriftRecord(name, "run", "inputs", calls, fingerprint_answers(calls, answers))
        assert not find_differences(record, answers), name
        found[name] = Recorded(record, answers)
    return found


def main() -> None:
    """Asks the hosts, and writes calls and answers without the lab's secrets."""
    directory = ClusterDirectory(Path(sys.argv[1]).resolve())
    records = {name: record for name in HOSTS if (record := load_record(directory, name))}
    calls = {name: record.calls for name, record in records.items()}
    with OpenSshTransport(directory, inventory.load(directory).hosts) as transport:
        controller, answers = replay_calls(calls, transport)
    found = {}
    for name, record in records.items():
        given: dict[str, Answers] = {CONTROLLER: controller, "": answers[name]}
        assert not find_differences(record, given), (name, find_differences(record, given))
        found[name] = [{"call": asdict(call), "answer": _answer(given, call)} for call in record.calls]
    text = json.dumps(found, indent=1, sort_keys=True)
    text = text.replace(str(directory.root), ROOT).replace(platform.release(), KERNEL)
    for path in directory.secrets.iterdir():
        secret = path.read_text(encoding="utf-8").strip()
        assert not secret or secret not in text, path
    FILE.write_text(text + "\n", encoding="utf-8")


def _answer(given: Mapping[str, Answers], call: Call) -> Mapping[str, Any]:
    answers = given[call.at]
    assert not isinstance(answers, str), answers
    return answers[call.identity]


if __name__ == "__main__":
    main()
