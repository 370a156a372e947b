"""Does the registry of the training image answer every node?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject
from clustercheck.parse.reading import CannotReadError

ANSWERS = (200, 401)  # 401: it needs a log-in, and answers


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Beyond the name, the registry itself may be the cause: the finding names it as its ``server``."""
    part = evidence.nodes[str(subject.node)].mapping("registry")
    if part.get("skipped"):
        return not_applicable(str(part["skipped"]))
    host, stage, status = part.get("host"), part.get("stage"), part.get("status")
    if not host or not stage:
        raise CannotReadError("the probe's part registry has an unexpected form")
    if host != _registry_of(evidence.spec.settings_of(str(subject.node)).image):
        raise CannotReadError("the probe asked another registry than that of the training image")
    place, because = f"{host}:{part.get('port')}", str(part.get("because") or "no reason given")
    if status in ANSWERS:
        return passed(f"{place} answers", "an answer")
    if stage == "name":
        return failed(
            f"the name of the registry {host} cannot be resolved: {because}", "no address", "an answer"
        )
    if stage == "connect":
        return failed(
            f"the registry {place} cannot be reached: {because}", "no answer", "an answer", server=host
        )
    if stage == "tls":
        message = f"no secure connection to the registry {place}: {because}"
        return failed(message, "no secure connection", "an answer", server=host, remedy=TRUST)
    message = f"the registry {place} answers {status or because}"
    return failed(message, str(status or because), "an answer", server=host)


def _registry_of(image: str) -> str:
    return image.partition("/")[0].partition(":")[0]


def _fails(node: str, stage: str, because: str, status: int | None = None) -> seeding.Inject:
    how = {"stage": stage, "because": because, "status": status}
    return seeding.edit(node, lambda raw: raw["registry"].update(how))


def refused(*nodes: str) -> seeding.Inject:
    """The registry refuses these nodes' connections."""
    return seeding.chain(*(_fails(node, "connect", "Connection refused") for node in nodes))


TRUST = (
    "See whether the registry's certificate is still good, and whether this node trusts it: "
    "`clusterctl apply --only registry,runtime` ensures both."
)
CHECK = Check(
    id="registry-reachable",
    title="Registry answers",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures=(
        "whether the training image's registry answers this node, with a certificate that the node trusts"
    ),
    method="GET /v2/ over TLS, with the authorities of the system and of /etc/docker/certs.d",
    requires="a training image from a registry that has a name",
    expectation="200, or 401 if it requires a log-in",
    remedy=(
        "Check the registry's host and its service (`systemctl status clusterctl-registry`, or Harbor's "
        "containers); `clusterctl apply --only registry` repairs a registry of ours. If other nodes "
        "reach it, check this node's route and firewall."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("registry-down", refused("gpu01", "gpu02", "gpu03"), Subject("gpu02")),
        SeededFault("no-route", _fails("gpu01", "connect", "No route to host"), Subject("gpu01")),
        SeededFault("not-trusted", _fails("gpu02", "tls", "self-signed certificate"), Subject("gpu02")),
        SeededFault("name-unknown", _fails("gpu03", "name", "Name or service not known"), Subject("gpu03")),
        SeededFault("registry-broken", _fails("gpu01", "http", "", 503), Subject("gpu01")),
    ),
)
