"""Options of the benches."""

from __future__ import annotations

import time

import pytest

SIZES = "1,3,8,16"
MINUTES = 25.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where a file of this directory is named; else the defaults hold."""
    parser.addoption("--hosts", default=SIZES, help="Sizes of lab to measure, in this order.")
    parser.addoption(
        "--minutes", type=float, default=MINUTES, help="No size is started that will hardly end by then."
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a size."""
    if "bench_hosts" in metafunc.fixturenames:
        sizes = [int(size) for size in metafunc.config.getoption("--hosts", SIZES).split(",")]
        metafunc.parametrize("bench_hosts", sizes, ids=[f"{size} hosts" for size in sizes])


@pytest.fixture(scope="session")
def bench_deadline(pytestconfig: pytest.Config) -> float:
    """When all sizes should be done, by the monotonic clock."""
    return time.monotonic() + 60 * float(pytestconfig.getoption("--minutes", MINUTES))
