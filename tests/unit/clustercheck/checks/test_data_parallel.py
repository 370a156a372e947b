"""The losses of a rank: what is none of them is not read, and no error of the check."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.malformed import require_not_run

from clustercheck.checks.data_parallel import CHECK


@pytest.mark.parametrize("losses", [None, 5, 0.5, True, "12", {}, {"1": 2}, [], [None], ["1"], [[]]])
def test_losses_that_are_none_are_not_run(losses: Any) -> None:
    require_not_run(CHECK, lambda verdict: verdict.update(losses=losses))
