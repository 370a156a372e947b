"""Shared by all tests: the order of those that share a lab, and where things are."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import ansible.module_utils
import pytest
from hypothesis import HealthCheck, settings
from tests.support import drawn

from clusterlab.engine import ensure_engine
from clusterlab.progress import Progress

REPOSITORY = Path(__file__).resolve().parent.parent

# Our modules are imported as Ansible does it: our module_utils beside its own.
ansible.module_utils.__path__.append(str(REPOSITORY / "plugins" / "module_utils"))

# A test asserts no absolute time, and the machine may be doing other things.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-drawn", action="store_true", help="run all tests of drawn groups")


def pytest_configure() -> None:
    """Ctrl-C works in what the tests start, also where this was started in the background."""
    # All workers draw the same, also over midnight.
    os.environ.setdefault(drawn.SEED, drawn.seed_of_the_day())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # of what -m and -k leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    drawn.deselect_undrawn(config, items)
    items.sort(key=lambda item: (item.get_closest_marker("lab") is not None, _place(item.path.stem)))


def _place(file: str) -> int:
    """What looks at hosts as the lab makes them comes before what applies a site to them.

    Then what judges no bandwidth: beside it Harbor's road runs, in a lab of its own (script/test).
    """
    early = (
        "test_bare_nodes", "test_lab_lifecycle", "test_apply_manners", "test_driver_role", "test_failures",
        "test_fast_apply",
    )  # fmt: skip
    return early.index(file) if file in early else len(early)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the tree under test."""
    return REPOSITORY


@pytest.fixture(scope="session")
def engine() -> None:
    """A container engine on this machine, as for a lab: started where none answers, and left to it."""
    ensure_engine(Progress(lambda _: None))


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """Real captures, where the machine has them beside the clone; tests that want them skip elsewhere."""
    directory = REPOSITORY.parent / "shared" / "fixtures"
    if not directory.is_dir():
        pytest.skip("the captures are not beside this clone")
    return directory
