"""Xid 154, which asks for a recovery and says when it is over, among the driver's other messages."""

from __future__ import annotations

import pytest

from clustercheck.checks.xid import judge_messages, line
from clustercheck.model import Verdict
from clustercheck.parse.kernel_log import parse_line

ASKED = line("0000:07:00", 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
DONE = line("0000:07:00", 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
OF_A_PROGRAM = line("0000:07:00", 13, "Graphics Exception")


@pytest.mark.parametrize(
    ("messages", "verdict"),
    [
        ((ASKED, DONE), Verdict.PASS),
        ((DONE, ASKED), Verdict.FAIL),
        ((ASKED, OF_A_PROGRAM), Verdict.FAIL),
        ((ASKED, DONE, OF_A_PROGRAM), Verdict.PASS),
        ((OF_A_PROGRAM, ASKED), Verdict.FAIL),
    ],
)
def test_a_gpu_is_faulty_until_its_recovery_is_over_whatever_else_is_said(
    messages: tuple[str, ...], verdict: Verdict
) -> None:
    xids = [xid for text in messages if (xid := parse_line(text)) is not None]
    assert len(xids) == len(messages)
    assert judge_messages(xids, {}).verdict is verdict
