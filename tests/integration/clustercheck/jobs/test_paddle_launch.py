"""What nodes tell each other before `paddle.distributed.launch` runs on each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.two_ranks import ASKED, ranks


@pytest.mark.parametrize("says", [4000, [4000, 64], -1, "x", None], ids=str)
def test_no_node_says_how_many_processes_the_others_wait_for(tmp_path: Path, says: Any) -> None:
    asked = {**ASKED, "samples": 4, "batch": 2, "epochs": 1, "seed": 1}
    counted = {"CLUSTERCTL_PROCESSES": "1,2"}
    (honest,) = ranks(
        tmp_path, {}, asked, job="paddle_launch", hostile=1, says=says, variables=(counted, counted)
    )
    assert (honest["ok"], honest["processes"], honest["all_processes"]) == (True, 1, 3), honest
    assert honest["samples"] == 4 * 3 - 1
    assert "--nproc_per_node 1" in honest["launched"]["command"]


def test_the_first_node_says_where_all_meet(tmp_path: Path) -> None:
    asked = {**ASKED, "samples": 4, "batch": 2, "epochs": 1, "seed": 1}
    counted = {"CLUSTERCTL_PROCESSES": "1,1"}
    (honest,) = ranks(
        tmp_path, {}, asked, job="paddle_launch", hostile=0, says="x", variables=(counted, counted)
    )
    assert (honest["ok"], honest["collective"]) == (False, True)
    assert "a peer, rank 0, does not say which port is free" in honest["because"]
