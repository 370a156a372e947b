"""Where nodes fail because of a server that all of them use: is it the server, or a node's way to it?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from clustercheck.model import Result, Verdict


def unanswering(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """Servers that no node reached, by (check, server), with the results that say so.

    A failed result names the server in its evidence where it may be the cause. One node that is answered
    proves that the server is there: then the others have themselves to blame.
    """
    answered: set[str] = set()
    failed: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        if result.verdict is Verdict.PASS:
            answered.add(result.check)
        elif result.verdict is Verdict.FAIL and (server := result.evidence.get("server")):
            failed[result.check, str(server)].append(result)
    return {key: said for key, said in failed.items() if key[0] not in answered}
