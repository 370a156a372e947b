"""Can the node resolve names?"""

from __future__ import annotations

from collections.abc import Mapping

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject
from clustercheck.parse.reading import CannotReadError


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A dead first name server makes every look-up wait; a name that is not known stops what needs it."""
    part = evidence.nodes[str(subject.node)].mapping("name_service")
    servers, addresses, name = part.get("servers"), part.get("addresses"), part.get("name")
    if not isinstance(servers, list) or not isinstance(addresses, list) or not name:
        raise CannotReadError("the probe's part name_service has an unexpected form")
    if not all(isinstance(each, Mapping) for each in servers):
        raise CannotReadError("the probe's record of the name servers has an unexpected form")
    silent = [
        f"{each.get('address')} ({each.get('because')})" for each in servers if each.get("rcode") is None
    ]
    more = {"servers": [each.get("address") for each in servers], "silent": silent}
    if servers and len(silent) == len(servers):
        return failed(f"no name server answers: {', '.join(silent)}", 0, len(servers), evidence=more)
    if servers and servers[0].get("rcode") is None:
        because = f"the first name server does not answer, and every look-up waits for it: {silent[0]}"
        return failed(because, len(servers) - len(silent), len(servers), evidence=more)
    if not addresses:
        why = part.get("because") or "no address"
        return failed(f"the name {name} cannot be resolved: {why}", "no address", "an address", evidence=more)
    return passed(f"{name} is {addresses[0]}", "an address", evidence=more)


def _silent(raw: seeding.Raw, *numbers: int) -> None:
    for number in numbers:
        raw["name_service"]["servers"][number].update(rcode=None, because="no answer within 2 s")


CHECK = Check(
    id="name-service",
    title="Names (DNS)",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="whether the node's name servers answer, and whether it knows the registry's name",
    method="a query to each name server of /etc/resolv.conf, and a look-up by the system's resolver",
    requires="nothing",
    expectation="the first name server answers, and the name has an address",
    remedy=(
        "Check the node's /etc/resolv.conf: configure a server that answers there (`resolvectl status` "
        "if systemd-resolved writes it), or fix the route to it."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("dns-broken", seeding.edit("gpu02", lambda raw: _silent(raw, 0, 1)), Subject("gpu02")),
        SeededFault(
            "first-server-silent", seeding.edit("gpu01", lambda raw: _silent(raw, 0)), Subject("gpu01")
        ),
        SeededFault(
            "name-unknown",
            seeding.edit("gpu03", lambda raw: raw["name_service"].update(addresses=[], because="not known")),
            Subject("gpu03"),
        ),
    ),
)
