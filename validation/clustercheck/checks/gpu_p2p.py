"""May each GPU read and write the memory of every other GPU of its node?"""

from __future__ import annotations

from collections.abc import Mapping

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_gpu,
    failed,
    not_applicable,
    not_run,
    passed,
)
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.p2p import MEANINGS, PeerAccess, parse_peer_access
from clustercheck.parse.reading import CannotReadError, program_output

WAYS = {"r": "read", "w": "write", "n": "NVLink"}
SOURCE = "nvidia-smi topo -p2p: NVML's nvmlGpuP2PStatus_t of each pair"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Where NVSwitches join all GPUs every pair has access; elsewhere the board decides, except settings."""
    node = str(subject.node)
    gpu, profile = gpu_of(evidence, subject), evidence.profile(node)
    if gpu.mig == "Enabled":
        return not_applicable("MIG is on, which switches peer access off")
    gpus = len(evidence.nodes[node].smi().gpus)
    if gpus < 2:
        return not_applicable("the node has one GPU and no peers")
    matrices, unread = evidence.once(lambda _: _read(evidence.nodes[node], gpus), ("peer access", node))
    joined = profile is not None and profile.switched
    refused = _refused(matrices, gpu.index)
    plain = [way for way in ("r", "w") if way in matrices]
    more = {"peers": gpus - 1, "refused": refused}
    if joined:
        guilty = {
            way: peers
            for way in matrices
            if (peers := _blamed(matrices[way], gpu.index, tuple(refused[way])))
        }
    else:
        guilty = {
            way: peers
            for way in plain
            if (peers := [peer for peer, word in refused[way].items() if word == "DR"])
        }
    if guilty:
        message = "; ".join(_said(way, refused[way], peers) for way, peers in guilty.items())
        most = max(len(peers) for peers in guilty.values())
        return failed(message, gpus - 1 - most, gpus - 1, unit="peers", source=SOURCE, evidence=more)
    if unread:
        raise unread[0]
    if any(word == "U" for way in plain for word in refused[way].values()):
        return not_run("the driver cannot determine whether this GPU reaches its peers", evidence=more)
    if not joined and any(refused[way] for way in plain):
        words = sorted({MEANINGS[word] for way in plain for word in refused[way].values()})
        return not_applicable(
            f"no NVSwitch connects these GPUs, and the driver reports: {', '.join(words)}", evidence=more
        )
    return passed(gpus - 1, gpus - 1, unit="peers", source=SOURCE, evidence=more)


def peer_access(node: NodeEvidence, gpus: int) -> dict[str, PeerAccess]:
    """The matrices for reading, writing and NVLink. Raises CannotReadError."""
    found, unread = _read(node, gpus)
    if unread:
        raise unread[0]
    return found


def _read(node: NodeEvidence, gpus: int) -> tuple[dict[str, PeerAccess], list[CannotReadError]]:
    """The matrices that can be read, and why the others cannot."""
    part = node.mapping("peer_access")
    found, unread = {}, []
    for way in WAYS:
        try:
            found[way] = parse_peer_access(program_output(part.get(way), f"nvidia-smi topo -p2p {way}"), gpus)
        except CannotReadError as error:
            unread.append(error)
    return found, unread


def _refused(matrices: Mapping[str, PeerAccess], gpu: int) -> dict[str, dict[int, str]]:
    """By way: the peers that this GPU does not reach, or that do not reach it, with the driver's word."""
    return {
        way: {
            (b if a == gpu else a): matrix.words[a, b] for a, b in reversed(matrix.refused) if gpu in (a, b)
        }
        for way, matrix in matrices.items()
    }


def _blamed(matrix: PeerAccess, gpu: int, peers: tuple[int, ...]) -> list[int]:
    """The peers whose refusal is this GPU's: not those that are refused by most GPUs themselves."""

    def refusals(one: int) -> int:
        return len({pair for a, b in matrix.refused if one in (a, b) for pair in (frozenset((a, b)),)})

    if 2 * len(peers) > matrix.gpus - 1:
        return list(peers)
    return [peer for peer in peers if 2 * refusals(peer) <= matrix.gpus - 1]


def _said(way: str, refused: Mapping[int, str], peers: list[int]) -> str:
    words = " and ".join(sorted({f"{MEANINGS[refused[peer]]} ({refused[peer]})" for peer in peers}))
    names = ", ".join(f"GPU{peer}" for peer in sorted(peers))
    return f"peer access ({WAYS[way]}) with {names}: {words}"


def _behind_chipset(*ways: str, word: str = "CNS") -> seeding.Inject:
    """GPU 2 of gpu02 and its peers have no access to each other."""

    def change(raw: seeding.Raw) -> None:
        for way in ways:
            rows = [line.split("\t") for line in raw["peer_access"][way]["stdout"].split("\n")]
            for row, cells in enumerate(rows[1:9]):
                for column in range(8):
                    if (row == 2) != (column == 2):
                        cells[column + 1] = word
            raw["peer_access"][way]["stdout"] = "\n".join("\t".join(cells) for cells in rows)

    return seeding.edit("gpu02", change)


def _one_pair(raw: seeding.Raw) -> None:
    stdout = raw["peer_access"]["w"]["stdout"]
    raw["peer_access"]["w"]["stdout"] = stdout.replace(" GPU0\tX\tOK", " GPU0\tX\tTNS", 1)


CHECK = Check(
    id="gpu-p2p",
    title="Peer access",
    section=Section.GPU_STATE,
    scope=Scope.LINK,
    measures="whether the driver lets each GPU read and write the memory of every other, and over NVLink",
    method="nvidia-smi topo -p2p r, w and n",
    requires="two GPUs, MIG off",
    expectation="with every peer where NVSwitches join them; elsewhere with none switched off by a setting",
    remedy="Where NVSwitches join the GPUs, restart Fabric Manager and reset the GPUs; where a setting of "
    "the driver disables it (DR), take it out of NVreg_RegistryDwords in /etc/modprobe.d.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault("gpu-without-peers", _behind_chipset("r", "w", "n"), Subject("gpu02", 2)),
        SeededFault("nvlink-not-used-for-peers", _behind_chipset("n", word="NS"), Subject("gpu02", 2)),
        SeededFault("one-pair-refused", seeding.edit("gpu01", _one_pair), Subject("gpu01", 0)),
        SeededFault(
            "one-pair-refused-beside-no-answer",
            seeding.chain(
                seeding.edit("gpu01", _one_pair),
                seeding.edit("gpu01", lambda raw: raw["peer_access"]["n"].update(timed_out=True, rc=None)),
            ),
            Subject("gpu01", 0),
        ),
        SeededFault(
            "matrix-cut-off",
            seeding.edit(
                "gpu03", lambda raw: raw["peer_access"]["r"].update(stdout="\tGPU0\tGPU1\n GPU0\tX\tOK\n")
            ),
            Subject("gpu03", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "no-answer",
            seeding.edit("gpu03", lambda raw: raw["peer_access"]["w"].update(timed_out=True, rc=None)),
            Subject("gpu03", 5),
            Verdict.NOT_RUN,
        ),
    ),
)
