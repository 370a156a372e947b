"""`apply --offline`: what must not be declared, who may be contacted, and what the nodes' watches heard."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clustercheck.parse.reading import CannotReadError
from clusterctl import console
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.settings.booleans import is_true
from clusterctl.cluster.spec import role_defaults, setting
from clusterctl.cluster.state_files import replace_file
from clusterctl.engine.ledger import BAD
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.wording import counted, format_hosts
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INCOMPLETE, ClusterctlError, ExplainedError
from clusterctl.rollout.session import Session, play
from clusterctl.rollout.watch_record import read_watch

PLAYBOOK = "offline.yml"
NOT_BEGUN = "nothing was started there"
ALLOWED = "site_offline_hosts"
RECORD = "offline.json"
URL = re.compile(r"https?://(?:[^/@\s]*@)?(\[[0-9a-fA-F:]+\]|[^/:\s]+)")
# Whose settings a part of the site reads.
ROLES_OF = {
    "driver": ("nvidia_driver_",),
    "runtime": ("container_runtime_", "nvidia_container_toolkit_"),
    "registry": ("registry_", "harbor_"),
    "images": ("training_image_",),
}
LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
TRIVY_DATABASES = ("harbor_trivy_db_repository", "harbor_trivy_java_db_repository")
EVERYWHERE = ("site_http_proxy", "site_https_proxy")


@dataclass(frozen=True)
class Allowed:
    """Who may be contacted: addresses and networks, and names that each node resolves for itself."""

    addresses: tuple[str, ...]
    names: tuple[str, ...]

    def has(self, host: str) -> bool:
        """Whether a name or an address, as a setting has it, is among them.

        A loopback address never is: what listens there may be a tunnel, and no packet of it is heard.
        """
        bare = host.strip("[]").lower()
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(bare)
            if address.is_loopback or address.is_unspecified:
                return False
            return any(address in ipaddress.ip_network(one) for one in self.addresses)
        if bare.rstrip(".") in LOOPBACK_NAMES or bare.rstrip(".").endswith(".localhost"):
            return False
        return bare in {name.lower() for name in self.names}


@dataclass
class Watching:
    """The watches of one run; ``found`` is what each host's wrote down, once they have ended.

    ``others`` are the hosts that were not watched, since nothing was to be changed there, and why not.
    """

    hosts: tuple[str, ...] = ()
    run: str = ""
    found: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)

    def verdicts(self) -> dict[str, str]:
        """Why a host is not proved, by host; "" where it is."""
        return {host: why_not(self.found.get(host, {}), self.run) for host in self.hosts}

    @property
    def proved(self) -> bool | None:
        """Whether no watched host turned to anybody else; None if none was watched: nothing is proved."""
        return not any(self.verdicts().values()) if self.hosts else None

    @property
    def exit_code(self) -> int:
        """0 proved or nothing to watch, 1 a host turned to somebody else, 3 not all was heard."""
        if any(record.get("outside") for record in self.found.values()):
            return EXIT_CLUSTER_BAD
        return EXIT_INCOMPLETE if any(self.verdicts().values()) else EXIT_GOOD

    def summary(self) -> dict[str, Any]:
        """What the run's summary says of it; nothing if nobody asked for it."""
        return {"offline": self.as_record()} if self.hosts or self.others else {}

    def add_others(self, hosts: Iterable[str], reasons: Mapping[str, str]) -> None:
        """Those of ``hosts``, all that the apply was asked for, that were not watched."""
        self.others = {host: reasons.get(host) or NOT_BEGUN for host in hosts if host not in self.hosts}

    def as_record(self) -> dict[str, Any]:
        """For scripts, and for the run."""
        verdicts = self.verdicts()
        hosts = {
            host: {"proved": not why, **({"because": why} if why else {}), **self.found.get(host, {})}
            for host, why in verdicts.items()
        }
        others = {"not_watched": self.others} if self.others else {}
        return {"proved": self.proved, "hosts": hosts, **others}


def allowed_hosts(inventory: Inventory) -> Allowed:
    """The hosts of the inventory, the registry by its own name, and what the site adds."""
    words: set[str] = set()
    for host in inventory.hosts:
        words |= {host.name, host.address}
        words.add(str(setting(host, "registry_hostname") or ""))
        words |= {str(one) for one in host.value(ALLOWED) or []}
    addresses, names = set(), set()
    for word in filter(None, (one.strip() for one in words)):
        try:
            addresses.add(str(ipaddress.ip_network(word, strict=False)))
        except ValueError:
            names.add(word)
    return Allowed(tuple(sorted(addresses)), tuple(sorted(names)))


def require_settings(inventory: Inventory, hosts: Sequence[Host], tags: Collection[str]) -> Allowed:
    """Refuse settings that would have nodes turn to anybody else, before any host is touched.

    Raises ClusterctlError (``offline.settings``, exit 2) that names each of them.
    """
    allowed = allowed_hosts(inventory)
    found: dict[str, list[str]] = {}
    for host in hosts:
        for name, value in _declared(host, tags or ROLES_OF).items():
            for goal in URL.findall(value):
                if not allowed.has(goal):
                    found.setdefault(f"{name} names {goal}", []).append(host.name)
        for upstream in _fallbacks(host, tags or ROLES_OF):
            what = f"registry_client_mirrors falls back to {upstream}"
            found.setdefault(what, []).append(host.name)
    if found:
        what = "; ".join(f"{what} ({format_hosts(names)})" for what, names in found.items())
        raise ClusterctlError(
            f"these settings reach out of the cluster: {what}",
            code="offline.settings",
            where=str(inventory.directory.group_vars),
            hint=f"Point them to hosts of the cluster, or name the mirrors of your site in {ALLOWED}.",
        )
    return allowed


@contextlib.contextmanager
def watched(session: Session, hosts: Sequence[str], allowed: Allowed | None) -> Iterator[Watching]:
    """Watch ``hosts`` while the block changes them; without ``allowed`` nothing is watched.

    Raises ClusterctlError before the block where a host cannot be watched (``offline.not-watched``, exit 3)
    or has sources of packages elsewhere (``offline.sources``, exit 2).
    """
    watching = Watching()
    if allowed is None or not hosts:
        yield watching
        return
    watching = Watching(tuple(hosts), session.run.id)
    with terminated_like_interrupted():
        try:
            _begin(session, hosts, allowed)
            yield watching
        finally:
            try:
                watching.found |= _end(session, hosts)
            except ExplainedError as error:
                # How the apply itself ended is not to be lost over it: what was not heard is not proved.
                console.say(f"the watches could not be ended: {error.what}")
            path = session.run.path(RECORD)
            replace_file(path, json.dumps(watching.as_record(), indent=2) + "\n")


def tell(watching: Watching) -> None:
    """Say who was contacted, or that nobody else was."""
    verdicts = watching.verdicts()
    good = [host for host, why in verdicts.items() if not why]
    if good:
        contacts = sum(sum(watching.found[host].get("inside", {}).values()) for host in good)
        number = counted(contacts, "contact")
        console.say(
            f"offline: {format_hosts(good)} contacted no host but the cluster's ({number}, no packet unheard)"
        )
    for host, why in verdicts.items():
        if why:
            console.say(f"{host}: not proved offline: {why}")
    if watching.others:
        others = f"{format_hosts(watching.others)} not watched: nothing was changed there"
        console.say(f"offline: {others}" + ("" if watching.hosts else ", so that nothing is proved"))


def why_not(record: Mapping[str, Any], run: str) -> str:
    """Why what a watch wrote down does not prove that no other host was contacted; "" where it does."""
    if record.get("run") != run:
        return "its traffic is unknown: the recorder left no record"
    outside, open_ = record.get("outside", ()), record.get("open", ())
    gaps, lost = record.get("gaps", 0), record.get("lost", 0)
    reasons = (
        (bool(outside), f"it contacted {_contacts(outside)}"),
        (not record.get("ended"), "its watch did not run to the end"),
        (bool(open_), f"sessions were open before its watch started: {_contacts(open_)}"),
        (gaps > 0, f"its watch was interrupted ({counted(gaps, 'time')})"),
        (lost > 0, f"{counted(lost, 'packet')} went by unheard"),
    )
    return next((because for is_so, because in reasons if is_so), "")


def _contacts(found: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(_contact(one) for one in found)


def _contact(one: Mapping[str, Any]) -> str:
    by = " by " + " of ".join(filter(None, (one.get("by"), one.get("unit")))) if one.get("by") else ""
    port = f":{one['port']}" if one.get("port") else ""
    return f"{one['address']}{port} ({one['protocol']}, {counted(one['times'], 'time')}){by}"


def _declared(host: Host, tags: Collection[str]) -> dict[str, str]:
    """Settings in force on a host that may name another, by name; except what only a node can evaluate."""
    harbor = setting(host, "registry_kind") == "harbor"
    prefixes = tuple(
        prefix for tag in tags for prefix in ROLES_OF.get(tag, ()) if harbor or prefix != "harbor_"
    )
    names = {name for name in {*role_defaults(), *host.variables} if name.startswith(prefixes)}
    found = {}
    for name in sorted({*(n for n in names if n.endswith(("_url", "_proxy"))), *EVERYWHERE}):
        with contextlib.suppress(ClusterctlError):
            if (
                name.startswith("nvidia_driver_repository")
                and setting(host, "nvidia_driver_source") != "cuda"
            ):
                continue
            found[name] = str(setting(host, name) or "")
    if "registry" in tags and harbor and _fetches_databases(host):
        # A registry and a path, without a scheme.
        found |= {name: f"https://{setting(host, name)}" for name in TRIVY_DATABASES}
    return found


def _fetches_databases(host: Host) -> bool:
    return is_true(setting(host, "harbor_trivy_enabled")) and not is_true(
        setting(host, "harbor_trivy_offline")
    )


def _fallbacks(host: Host, tags: Collection[str]) -> list[str]:
    if "registry" not in tags or is_true(setting(host, "registry_client_fail_closed", False)):
        return []
    mirrors = setting(host, "registry_client_mirrors") or []
    return [str(one.get("upstream")) for one in mirrors if is_true(one.get("fallback", True))]


def _begin(session: Session, hosts: Sequence[str], allowed: Allowed) -> None:
    output, reasons = _ask(session, hosts, "started", allowed)
    sources = {host: about["sources"] for host, about in output.items() if about.get("sources")}
    if sources:
        told: dict[str, list[str]] = {}
        for host, elsewhere in sources.items():
            for goal, files in elsewhere.items():
                told.setdefault(f"{goal} in {', '.join(files)}", []).append(host)
        raise ClusterctlError(
            "apt of these hosts would reach out of the cluster, and nothing was changed: "
            + "; ".join(f"{what} ({format_hosts(names)})" for what, names in told.items()),
            code="offline.sources",
            where=format_hosts(sources),
            hint=f"Take the sources away, point them to a mirror of yours, or name it in {ALLOWED}.",
        )
    silent = {host: reasons.get(host, "") for host in hosts if not output.get(host, {}).get("listening")}
    if silent:
        because = next(filter(None, silent.values()), "it did not answer")
        raise ClusterctlError(
            f"{format_hosts(silent)} cannot be watched, and nothing was changed: {because}",
            code="offline.not-watched",
            where=format_hosts(silent),
            hint="Fix what the message names, or apply without --offline: then nothing is proved.",
            exit_code=EXIT_INCOMPLETE,
        )


def _end(session: Session, hosts: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    output, _ = _ask(session, hosts, "ended", Allowed((), ()))
    return {host: about["record"] for host, about in output.items() if "record" in about}


def _ask(
    session: Session, hosts: Sequence[str], state: str, allowed: Allowed
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What each host's watch said, and why those that failed did."""
    variables = {
        "clusterctl_offline_state": state,
        "clusterctl_offline_run": session.run.id,
        "clusterctl_offline_allowed": list(allowed.addresses),
        "clusterctl_offline_names": list(allowed.names),
    }
    asking = replace(session, extra_vars={**session.extra_vars, **variables}, calls=None)
    outcome = play(asking, PLAYBOOK, hosts)
    bad = {host: outcome.reasons[host] for host, state_of in outcome.states.items() if state_of in BAD}
    record: dict[str, dict[str, Any]] = {}
    for host, one in outcome.ledger.hosts.items():
        try:
            record[host] = read_watch(one.facts.get("offline"))
        except CannotReadError as error:
            record[host] = {}
            bad.setdefault(host, str(error))
            console.say(f"{host}: {error}")
    return record, bad
