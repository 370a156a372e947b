"""All that these tests asked of the stand-in, and all that it answered, is as Harbor describes its API."""

from __future__ import annotations

import re
from pathlib import Path

from .harbor_calls import listed_calls
from .harbor_exchanges import Recorder, replaying
from .prism_proxy import between, described
from .test_harbor_swagger import DESCRIPTION, KNOWN

UNKNOWN_STATUS = r"Unable to match the returned status code.*"
# Beyond what one run meets: what tests do on purpose, and refusals of Harbor's source that are not described.
BEYOND: dict[str, tuple[str, str, str, str]] = {
    "a rule without parameters is written into the store by a test": (
        "GET", r"/retentions/\d+", r"response\.body\.rules\.\d+\.params", r".*must be object"),
    "a page that is too large is asked for to be refused": (
        "GET", r"/projects", r"request\.query\.page_size", r".*must be <= 100"),
    "who may not, or is not known, is told so by every call": (
        "GET|POST", r"/(robots|projects)", r"response", UNKNOWN_STATUS),
    "a retention policy that is gone, or another project's, is told so": (
        "PUT|GET", r"/retentions/\d+(/executions)?", r"response", UNKNOWN_STATUS),
    "a preheat policy's filters that are no text are refused": (
        "POST", r"/projects/[^/]+/preheat/policies", r"response", UNKNOWN_STATUS),
    "a network that policies use is not disabled": (
        "PUT", r"/p2p/preheat/instances/[^/]+", r"response", UNKNOWN_STATUS),
}  # fmt: skip


def test_every_exchange_of_these_tests_is_as_described(exchanges: Recorder, tmp_path: Path) -> None:
    """It comes last; alone it has nothing to judge."""
    with (
        replaying(exchanges) as upstream,
        between(described(DESCRIPTION, tmp_path / "swagger.json"), upstream) as prism,
    ):
        found = dict.fromkeys(exchanges.judged(prism))
    known = (*KNOWN.values(), *BEYOND.values())
    left = [one for one in found if not any(all(map(re.fullmatch, each, one)) for each in known)]
    assert left == [], f"of {len(exchanges.seen)} exchanges:\n" + "\n".join(map(str, left))


def test_every_call_of_the_client_is_listed(exchanges: Recorder) -> None:
    listed = list(listed_calls())
    asked = {(one.method, one.target.partition("?")[0]) for one in exchanges.seen.values() if one.is_ours}
    assert [one for one in sorted(asked) if not any(each.matches(*one) for each in listed)] == []
