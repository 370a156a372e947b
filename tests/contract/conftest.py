"""Stand-ins for a test: a Harbor, and an upstream that answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterlab.simulated.harbor.api import server
from clusterlab.simulated.harbor.api.server import StandIn, serving

from .harbor_exchanges import Recorder

LAST = "test_harbor_exchanges.py"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What all tests asked is judged after all of them."""
    items.sort(key=lambda one: one.path.name == LAST)


@pytest.fixture(scope="session", autouse=True)
def exchanges() -> Iterator[Recorder]:
    """What is asked of every stand-in of this process, and answered."""
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server._Handler, "_answer", recorder.recording(server._Handler._answer))
        yield recorder


@pytest.fixture
def harbor(tmp_path: Path) -> Iterator[StandIn]:
    """A new Harbor."""
    with serving(tmp_path / "harbor.sqlite") as made:
        yield made


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an upstream that is there."""
    with serving(tmp_path_factory.mktemp("upstream") / "state.sqlite") as made:
        yield made.url
