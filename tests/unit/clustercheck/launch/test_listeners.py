"""All nodes of a job are listened to where this process may open enough files."""

from __future__ import annotations

import resource

import pytest

from clustercheck.launch.listeners import reserve_listeners

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("count", "limits", "room", "raised"),
    [
        (3, (1024, 524288), 3, None),
        (64, (1024, 524288), 64, None),
        (65, (1024, 524288), 65, (1032, 524288)),
        (1000, (1024, 524288), 1000, (8512, 524288)),
        (1000, (1024, INFINITY), 1000, (8512, INFINITY)),
        (1000, (INFINITY, INFINITY), 1000, None),
        (1000, (1024, 4096), 448, (4096, 4096)),
        (1000, (1024, 1024), 64, (1024, 1024)),
        (3, (256, 256), 3, (256, 256)),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_needed_and_allowed(
    monkeypatch, count, limits, room, raised
):
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair))
    assert reserve_listeners(count, at_least=64) == room
    assert asked == ([raised] if raised else [])


def test_where_the_system_allows_no_more_files_some_nodes_wait_for_their_turn(monkeypatch):
    def refuse(_kind, _pair):
        raise ValueError

    monkeypatch.setattr(resource, "getrlimit", lambda _: (2048, INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert reserve_listeners(1000, at_least=64) == 192
