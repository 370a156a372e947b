"""What nccl-tests wrote leaves the node without the values of its environment."""

from __future__ import annotations

import json

import pytest

from clustercheck.jobs.nccl_tests import remove_environment

SECRET = "HTTPS_PROXY=http://ops:hunter2@proxy.example:3128"
WRITTEN = {
    "version": 3,
    "args": ["all_reduce_perf", "-g", "8"],
    "env": ["PATH=/usr/bin", SECRET, 'ODD="}]'],
    "results": [{"time": 8.871800}],
    "end_time": "2026-11-26 03:13:04",
}


@pytest.mark.parametrize("indent", [None, 2])
def test_all_but_the_environment_is_kept_to_the_letter(indent: int | None) -> None:
    text = json.dumps(WRITTEN, indent=indent)
    kept = remove_environment(text)
    assert "hunter2" not in kept
    assert json.loads(kept) == {**WRITTEN, "env": []}
    assert kept.endswith(text.split('"results"')[1])


def test_what_ends_among_the_variables_is_not_kept() -> None:
    text = json.dumps(WRITTEN)
    assert remove_environment(text[: text.index("hunter2") + 7]) == ""


def test_older_versions_have_no_environment() -> None:
    text = json.dumps({key: value for key, value in WRITTEN.items() if key != "env"})
    assert remove_environment(text) == text


@pytest.mark.parametrize("nested", ["[", '{"a":'])
def test_what_nests_without_end_does_not_end_the_rank(nested: str) -> None:
    """Across nodes any user of the first one could have written it."""
    assert remove_environment('{"env":' + nested * 100_000) == ""
