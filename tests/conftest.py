"""Shared by all tests: profiles, drawing, and where things are."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support import drawn, heavy, programs
from tests.support.tree import ROOT

# The tests of jobs run in a training image, too, which has pytest, the framework and none of these.
if find_spec("hypothesis"):
    from tests.support import examples

    examples.register_profiles()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-drawn", action="store_true", help="run all tests of drawn groups")
    parser.addoption("--light", action="store_true", help="leave out the tests of tests/heavy.txt")
    harbor = parser.getgroup("harbor", "the contract tests against a real Harbor (script/test --harbor)")
    harbor.addoption("--harbor", metavar="URL", help="a real Harbor")
    harbor.addoption("--admin-password-file", metavar="FILE", type=Path, help="its administrator's password")
    harbor.addoption("--ca", metavar="FILE", type=Path, help="the authority of its certificate")
    harbor.addoption(
        "--harbor-in-use", action="store_true", help="it holds what is others': touch nothing of it"
    )


def pytest_configure() -> None:
    """Ctrl-C works in what the tests start, also where this was started in the background."""
    # All workers draw the same, also over midnight.
    os.environ.setdefault(drawn.SEED, drawn.seed_of_the_day())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # of what -m and -k leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    drawn.deselect_undrawn(config, items)
    heavy.deselect_heavy(config, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    programs.require_marked(item)


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """Programs that are called in this process may close their umask; the next test wants its own."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the tree under test."""
    return ROOT


@pytest.fixture(scope="session")
def engine() -> None:
    """A container engine on this machine, as for a lab: started where none answers, and left to it."""
    from clusterlab.engine import ensure_engine
    from clusterlab.progress import LabProgress

    ensure_engine(LabProgress(lambda _: None))


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """Real captures, where the machine has them next to the clone; tests that want them skip elsewhere."""
    directory = ROOT.parent / "shared" / "fixtures"
    if not directory.is_dir():
        pytest.skip("the captures are not next to this clone")
    return directory
