"""Which host keys to trust: those that the operator expected, or confirmed after seeing them once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clusterctl.cluster import known_hosts
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.known_hosts import HostKey
from clusterctl.cluster.scan import Reached, format_keys
from clusterctl.errors import ClusterctlError

UNEXPECTED = "key-unexpected"
PREFIX = "SHA256:"


@dataclass(frozen=True)
class Proposal:
    """Keys of one host that could be pinned. ``vouched`` ones were expected, and need no question."""

    host: Reached
    keys: tuple[HostKey, ...]
    vouched: bool


def expected_fingerprints(words: Iterable[str], known: Sequence[str]) -> dict[str, set[str]]:
    """``HOST=SHA256:...`` as a mapping. Raises ClusterctlError (``hosts.expect``)."""
    found: dict[str, set[str]] = {}
    for word in words:
        host, _, fingerprint = word.partition("=")
        if host not in known or not fingerprint.startswith(PREFIX):
            raise ClusterctlError(
                f"--expect {word} is not HOST={PREFIX}... of a host of this cluster",
                code="hosts.expect",
                hint="On the host's console: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
            )
        found.setdefault(host, set()).add(fingerprint.rstrip("="))
    return found


def against_expected(host: Reached, expected: Mapping[str, set[str]]) -> Reached:
    """The host, marked where it offers none of the keys that the operator expects of it."""
    wanted = expected.get(host.node)
    if not wanted or not host.keys or any(key.fingerprint in wanted for key in host.keys):
        return host
    return replace(
        host,
        state=UNEXPECTED,
        because=f"it offers {format_keys(host.keys)}; expected was {', '.join(sorted(wanted))}",
        remedy="Is this the right machine? Compare with the fingerprint on its console.",
    )


def proposal(host: Reached, expected: Mapping[str, set[str]]) -> Proposal:
    """What to pin of a host: the keys that were expected, else the first that it offers, if confirmed.

    One is compared with the console; who is on the way could have offered the others.
    """
    vouched = tuple(key for key in host.keys if key.fingerprint in expected.get(host.node, ()))
    return Proposal(host, vouched or host.keys[:1], bool(vouched))


def pin_confirmed(
    directory: ClusterDirectory, proposals: Sequence[Proposal], confirm: Callable[[Sequence[Proposal]], bool]
) -> set[str]:
    """Pin what was vouched for, and the rest if ``confirm`` says so. Returns the nodes now pinned."""
    asked = [one for one in proposals if not one.vouched]
    agreed = confirm(asked) if asked else False
    chosen = [one for one in proposals if one.vouched or agreed]
    for one in chosen:
        known_hosts.pin(directory, one.host.lookup, one.keys, comment=one.host.node)
    return {one.host.node for one in chosen}
