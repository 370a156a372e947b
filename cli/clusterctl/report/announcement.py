"""What `clusterctl validate` prints before it starts."""

from __future__ import annotations

from datetime import UTC, datetime

from clustercheck.expect.baseline import Baseline
from clustercheck.running.suites import Suite
from clustercheck.spec import ClusterSpec, lapsed_exclusions
from clusterctl import console
from clusterctl.engine.wording import counted, format_hosts


def say(spec: ClusterSpec, suite: Suite, baseline: Baseline | None) -> None:
    """The nodes and checks, what is excluded, and the baseline."""
    nodes = [node.name for node in spec.nodes if not node.excluded]
    console.say(
        f"validate {counted(len(nodes), 'node')} with {_named(suite)}: {format_hosts(nodes) or 'none'}"
    )
    for node in spec.nodes:
        if node.excluded:
            console.say(f"{node.name}: excluded, {node.excluded}")
    for exclusion in lapsed_exclusions(spec.exclusions, datetime.now(UTC).date()):
        console.say(exclusion.lapsed)
    if baseline is not None:
        console.say(f"measurements are compared with {baseline.named}")


def _named(suite: Suite) -> str:
    if suite.only:
        return f"{counted(len(suite.only), 'check')} of the {suite.name} suite ({', '.join(suite.only)})"
    return f"the {suite.name} suite"
