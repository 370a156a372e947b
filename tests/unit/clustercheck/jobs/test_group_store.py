"""What a rank puts into the store of all leads no other rank elsewhere, and ends none as its own error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clustercheck.jobs.rank import Progress, World
from clustercheck.launch.first_failure import PEER_GONE

ENDPOINTS = "192.0.2.1:4101,192.0.2.2:4201,192.0.2.3:4301"


@pytest.fixture
def world(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> World:
    """The last of three ranks, with a Paddle that notes where it connects to."""
    environment = {
        "PADDLE_TRAINER_ID": "2", "PADDLE_TRAINERS_NUM": "3", "CLUSTERCTL_BACKEND": "gloo",
        "PADDLE_TRAINER_ENDPOINTS": ENDPOINTS, "PADDLE_CURRENT_ENDPOINT": "192.0.2.3:4301",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    core = SimpleNamespace(TCPStore=lambda *place: place)
    paddle = SimpleNamespace(__version__="3", base=SimpleNamespace(core=core))
    return World(paddle, Progress(tmp_path / "progress"))


def store_of(world: World, said: bytes) -> Any:
    return world._store_of([1, 2], SimpleNamespace(get=lambda _key: said))


def test_a_group_meets_where_the_launcher_placed_its_first_rank(world: World) -> None:
    assert store_of(world, b"40001") == ("192.0.2.2", 40001, False, 1)


@pytest.mark.parametrize(
    "said", [b"x", b"\xff", b"", b"203.0.113.9:4000", b"22", b"65536", b"4000\n", b"9" * 5000]
)
def test_what_is_no_port_is_a_peers_error(world: World, said: bytes) -> None:
    with pytest.raises(RuntimeError, match="a peer, rank 1, does not say") as caught:
        store_of(world, said)
    assert PEER_GONE.search(str(caught.value))
