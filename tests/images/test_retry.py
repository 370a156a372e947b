"""How long is waited before a registry is asked again: by our own clock, or as it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.registries import Fault, Proxy, Running, bytes_of, put_image

from .driving import MB, call, good, mirror, records, site


@pytest.fixture
def directory(tmp_path: Path, source: Running, before_source: Proxy, pauses: list[float]) -> Path:
    """A cluster of one locked image; nobody has waited yet."""
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    made = site(tmp_path, before_source.host, "one")
    good(call(made, "lock"))
    assert pauses == []
    return made


def test_pauses_double_and_come_to_an_end(
    directory: Path, before_source: Proxy, destination: Running, pauses: list[float]
) -> None:
    before_source.fault = lambda *_: Fault(status=503)
    assert records(mirror(directory, destination))[0]["code"] == "images.registry-fails"
    assert len(pauses) == 5
    for number, seconds in enumerate(pauses):
        assert 0.75 * 2**number <= seconds <= 1.25 * 2**number


@pytest.mark.parametrize(("kind", "status"), [("manifests", 429), ("blobs", 429), ("blobs", 503)])
def test_a_source_is_asked_again_when_it_says(
    kind: str, status: int, directory: Path, before_source: Proxy, request: pytest.FixtureRequest
) -> None:
    destination, pauses = (request.getfixturevalue(name) for name in ("destination", "pauses"))
    refused: set[str] = set()

    def fault(method: str, path: str, _number: int) -> Fault | None:
        if method != "GET" or f"/{kind}/" not in path or path in refused:
            return None
        refused.add(path)
        return Fault(status=status, headers={"Retry-After": "17"})

    before_source.fault = fault
    assert records(good(mirror(directory, destination)))[-1]["failed"] == 0
    assert refused
    assert pauses == [17.0] * len(refused)


def test_nobody_makes_us_wait_for_ever(
    directory: Path, before_source: Proxy, destination: Running, pauses: list[float]
) -> None:
    before_source.fault = lambda *_: Fault(status=429, headers={"Retry-After": "86400"})
    assert records(mirror(directory, destination))[0]["code"] == "images.rate-limited"
    assert pauses == [30.0] * 5


def test_a_registry_of_ours_is_asked_again_when_it_says(
    directory: Path, destination: Running, pauses: list[float]
) -> None:
    from tests.support.registries import proxy

    refused: list[str] = []

    def fault(method: str, path: str, _number: int) -> Fault | None:
        if method != "PUT" or "/blobs/uploads/" not in path or len(refused) == 2:
            return None
        refused.append(path)
        return Fault(status=503, headers={"Retry-After": "9"})

    with proxy(destination.port) as before:
        before.fault = fault
        assert records(good(mirror(directory, before, "--jobs", "1")))[-1]["failed"] == 0
    assert pauses == [9.0, 9.0]
