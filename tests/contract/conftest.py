"""For a test: a Harbor, a stand-in or a real one, and an upstream that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support import harbor_play
from tests.support.real_harbor import RealHarbor, real_harbor

from clusterlab.simulated.harbor.api import server
from clusterlab.simulated.harbor.api.asked import Answer, Asked
from clusterlab.simulated.harbor.api.server import StandIn, serving

from .harbor_exchanges import Recorder

LAST = "test_harbor_exchanges.py"


# Those that a real Harbor can be asked for; in the others the stand-in lies, dies or is looked into.
OF_ANY = ("reconcile", "robots", "preheat", "secrets", "stand_in")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without a real Harbor its own tests are none, and with one those of the stand-in's faults are none."""
    kind = collection_path.stem.removeprefix("test_harbor_")
    if kind == collection_path.stem:
        return None
    is_real = kind.partition("_")[0] == "real"
    is_out = not is_real and kind not in OF_ANY if config.option.harbor else is_real
    return is_out or None


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


@pytest.fixture(scope="session")
def the_real_harbor(request: pytest.FixtureRequest) -> Iterator[RealHarbor | None]:
    """The one that was named."""
    options = request.config.option
    if not options.harbor:
        yield None
        return
    if options.admin_password_file is None:
        pytest.exit("--harbor requires --admin-password-file", 2)
    with real_harbor(
        options.harbor, options.admin_password_file, options.ca, in_use=options.harbor_in_use
    ) as found:
        harbor_play.REAL[found.url] = found
        yield found


@pytest.fixture
def harbor(tmp_path: Path, the_real_harbor: RealHarbor | None) -> Iterator[StandIn | RealHarbor]:
    """A new Harbor; the real one, where one was named, as new."""
    if the_real_harbor is not None:
        if the_real_harbor.in_use:
            pytest.skip("wants a Harbor of its own")
        yield the_real_harbor
        the_real_harbor.clean()
        return
    with serving(tmp_path / "harbor.sqlite") as made:
        yield made


@pytest.fixture
def twisted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Asked, Answer], Answer]], None]:
    """Have a function change what the stand-in answers."""
    usual = server._Handler._answer

    def twist(function: Callable[[Asked, Answer], Answer]) -> None:
        monkeypatch.setattr(
            server._Handler, "_answer", lambda handler, asked: function(asked, usual(handler, asked))
        )

    return twist


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory, the_real_harbor: RealHarbor | None) -> Iterator[str]:
    """The address of an upstream that is there: a real Harbor is its own."""
    if the_real_harbor is not None:
        yield the_real_harbor.url
        return
    with serving(tmp_path_factory.mktemp("upstream") / "state.sqlite") as made:
        yield made.url
