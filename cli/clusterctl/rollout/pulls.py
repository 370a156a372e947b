"""Pulls of the training image against the links: the least time before, how near it came after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from clustercheck.parse.reading import CannotReadError
from clusterctl import console
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host
from clusterctl.cluster.untrusted import Count, HostAnswer, Seconds, Sentence, read_answer_as
from clusterctl.engine.ledger import HostRecord
from clusterctl.engine.wording import counted, elapsed, format_hosts
from clusterctl.rollout.waves import Wave

# What TCP over Ethernet with frames of 1500 bytes leaves of a link: 1448 of 1538 bytes.
PAYLOAD = 0.94
LEAST_MBPS, LEAST_S, MOST = 1.0, 0.001, 1e9
LINK = "training_image_link_mbps"
REGISTRY_LINK = "training_image_registry_link_mbps"


class PullReport(HostAnswer):
    """What the module `container_image` says of a pull; what it cannot know is not there."""

    digest: Sentence | None = None
    layers: Annotated[dict[str, Count], Field(max_length=10_000)] | None = None
    link_mbps: Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)] | None = None
    seconds: Seconds | None = None
    download_s: Seconds | None = None


@dataclass(frozen=True)
class NodePull:
    """One node's pull: what it moves over what link; with its times once it is done. 0 is not known."""

    host: str
    bytes: int
    layers: int
    link_mbps: float
    seconds: float = 0.0
    download_s: float = 0.0


@dataclass(frozen=True)
class WavePull:
    """The pulls of one wave, the least time that the links allow all of them, and which link that is."""

    wave: str
    nodes: tuple[NodePull, ...]
    limit_s: float
    limited_by: str

    @property
    def seconds(self) -> float:
        """What the slowest of them took; 0 before the pull."""
        return max((node.seconds for node in self.nodes), default=0.0)

    @property
    def achieved(self) -> float | None:
        """The limit over what was taken; None where either is not known."""
        return round(self.limit_s / self.seconds, 4) if self.limit_s and self.seconds else None

    def as_record(self) -> dict[str, Any]:
        """For scripts, and for the run's result."""
        done = {"seconds": round(self.seconds, 3), "achieved": self.achieved} if self.seconds else {}
        return {
            "wave": self.wave,
            "limit_s": round(self.limit_s, 3),
            "limited_by": self.limited_by,
            **done,
            "nodes": [asdict(node) for node in self.nodes],
        }


def locked_layers(directory: ClusterDirectory) -> dict[str, dict[str, int]]:
    """The layers of every locked image, by each digest that it may be named by.

    Raises ClusterctlError (``images.lock-unreadable``).
    """
    lock = lock_file.read(directory)
    return {
        digest: {layer.digest: layer.size for layer in image.layers}
        for image in (lock.images if lock else ())
        for digest in filter(None, (image.index, image.digest, image.manifest))
    }


def of_waves(
    waves: Iterable[Wave],
    hosts: Mapping[str, Host],
    records: Mapping[str, HostRecord],
    locked: Mapping[str, Mapping[str, int]] | None = None,
) -> list[WavePull]:
    """What each wave pulls or has pulled, from what nodes said; ``locked``: layer sizes by image's digest.

    The lock's sizes come before the registry's: before the first copy the registry has no image to ask for.
    """
    found = []
    for wave in waves:
        nodes = [
            _node_pull(hosts[name], report, locked or {})
            for name in wave.hosts
            if name in hosts and name in records and (report := _report(records[name])) is not None
        ]
        if nodes:
            shared = max(_number(hosts[node.host], REGISTRY_LINK) for node in nodes)
            found.append(WavePull(wave.name, tuple(nodes), *limit(nodes, shared)))
    return found


def limit(nodes: Sequence[NodePull], registry_mbps: float) -> tuple[float, str]:
    """The least seconds for all of ``nodes``, and the link that sets them; (0, "") where nothing is known.

    The registry's link is shared by all; 0 takes it to be as fast as the fastest node's own.
    """
    known = [node for node in nodes if node.bytes and node.link_mbps]
    if not known:
        return 0.0, ""
    shared = registry_mbps or max(node.link_mbps for node in known)
    slowest = max(known, key=lambda node: node.bytes / node.link_mbps)
    own_s = _seconds(slowest.bytes, slowest.link_mbps)
    shared_s = _seconds(sum(node.bytes for node in known), shared)
    if shared_s > own_s:
        return shared_s, f"the registry's link, {_speed(shared)} for {counted(len(known), 'node')}"
    return own_s, f"the link of {slowest.host}, {_speed(slowest.link_mbps)}"


def predicted(pull: WavePull) -> str:
    """What a plan says of one wave."""
    nodes = format_hosts(node.host for node in pull.nodes)
    sizes = sorted({(node.bytes, node.layers) for node in pull.nodes if node.bytes})
    if not sizes:
        return f"{pull.wave}: {nodes} would pull the training image; its size is not known yet"
    size, layers = sizes[-1]
    what = f"{pull.wave}: {nodes} would pull {_size(size)} in {counted(layers, 'layer')}"
    what += " each" if len(pull.nodes) > 1 else ""
    if not pull.limit_s:
        return f"{what}; the link speed is unknown (set {LINK})"
    return f"{what}: minimum {_time(pull.limit_s)}, limited by {pull.limited_by}"


def told(pull: WavePull) -> str:
    """What a run says of one wave that has pulled."""
    nodes = format_hosts(node.host for node in pull.nodes)
    moved = max(node.bytes for node in pull.nodes)
    size = _size(moved) if moved else "the training image"
    slowest = max(pull.nodes, key=lambda node: node.seconds)
    what = f"{pull.wave}: {nodes} pulled {size} in {_time(pull.seconds)}"
    if slowest.download_s:
        what += f" ({_time(slowest.download_s)} of it the download)"
    if pull.achieved is None:
        return what
    efficiency = f"{pull.achieved:.0%} efficiency"
    return f"{what}; minimum {_time(pull.limit_s)}, limited by {pull.limited_by} ({efficiency})"


def summary(pulled: Sequence[WavePull]) -> dict[str, Any]:
    """What a run's summary says of its pulls; nothing if there were none."""
    return {"pulls": [one.as_record() for one in pulled]} if pulled else {}


def tell(pulled: Sequence[WavePull]) -> None:
    """Say what each wave has pulled."""
    for one in pulled:
        console.say(f"images, {told(one)}")


def _report(one: HostRecord) -> PullReport | None:
    """What a node says of its pull; None where it pulled nothing, or says nothing that can be read."""
    if "pull" not in one.facts:
        return None
    try:
        return read_answer_as(PullReport, one.facts["pull"], "what it says of its pull")
    except CannotReadError as error:
        console.say(f"{one.name}: {error}")
        return None


def _node_pull(host: Host, report: PullReport, locked: Mapping[str, Mapping[str, int]]) -> NodePull:
    layers: Mapping[str, int] = report.layers or {}
    # What moved is known better by the node than what there was to move.
    if not report.seconds:
        layers = locked.get(report.digest or "") or layers
    return NodePull(
        host.name,
        sum(layers.values()),
        len(layers),
        _number(host, LINK) or _known(report.link_mbps),
        _known(report.seconds, LEAST_S),
        _known(report.download_s, LEAST_S),
    )


def _number(host: Host, name: str) -> float:
    try:
        return _known(float(str(host.value(name) or 0)))
    except ValueError:
        return 0.0


def _known(figure: float | None, least: float = LEAST_MBPS) -> float:
    """The figure, 0 where it is none or below the least: by what is nearly 0 nothing can be divided."""
    return figure if figure is not None and least <= figure <= MOST else 0.0


def _seconds(size: int, mbps: float) -> float:
    return size * 8 / (mbps * 1e6 * PAYLOAD)


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _speed(mbps: float) -> str:
    return f"{mbps / 1000:g} Gbit/s" if mbps >= 1000 else f"{mbps:g} Mbit/s"


def _time(seconds: float) -> str:
    return elapsed(seconds) if seconds >= 60 else f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
