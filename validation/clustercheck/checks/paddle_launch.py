"""A plain script by paddle.distributed.launch on all nodes: does it start, divide the samples and agree?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import commonest, failed_on, has_mig, outcome_of, ranks_of
from clustercheck.checks.support.samples_shared import UNKNOWN, Shared, find_shared
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.votes import count_votes, find_majority
from clustercheck.launch.first_failure import GAVE_UP, OWN_CAUSE, PEER_GONE
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, NotDoneError, first_line

JOB = "paddle_launch"
WITNESSES = 2  # nodes, whose word counts more than one's
ABORTED = (-6, 134, 250)  # by SIGABRT, as Python, a shell and an exit code of eight bits say it
SHOWN = 600  # characters of what was printed, the last
MAX_SAMPLES = 100_000
EXPECTED = "each sample once an epoch, and a loss that falls"
MAX_LOSS = 1e9  # no honest one is near it; a node that says more is not counted

Trainer = Mapping[str, Any]


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The launcher's end, its processes, their parameters; then samples and losses of all nodes together."""
    node = str(subject.node)
    if (finding := failed_on(evidence, JOB, subject)) is not None:
        return finding
    ranks = ranks_of(outcome_of(evidence, JOB), node)
    answer = ranks[0].verdict or {}
    if (finding := _judge_end(evidence, node, answer)) is not None:
        return finding
    if because := evidence.once(_no_number):
        return failed(f"{because} ({UNKNOWN})", "not a number", EXPECTED, joint=True)
    trainers = trainers_of(ranks[0])
    if (finding := _too_few(evidence, node, answer, trainers)) is not None:
        return finding
    if because := _unlike(evidence, answer, trainers):
        return failed(because, "wrong", "as on all processes", joint=True)
    return _together(evidence, node) or passed(
        f"{len(trainers)} of {answer['all_processes']} processes",
        "each sample once an epoch",
        evidence={
            "devices": sorted({str(trainer["device"])[:20] for trainer in trainers}),
            "losses": list(trainers[0]["losses"]),
            "command": str(answer["launched"].get("command"))[-SHOWN:],
        },
    )


def _judge_end(evidence: Evidence, node: str, answer: Mapping[str, Any]) -> Finding | None:
    """How the node's launcher ended, next to those of the others. Raises NotDoneError where they did it."""
    lost = evidence.once(_lost_nodes)
    if node in lost:
        raise NotDoneError("its launcher waited for another node's or lost it, as those of most nodes did")
    if (finding := _ended_badly(answer)) is not None:
        launched = evidence.once(_launchers)[node]
        log = str(launched.get("log"))  # behind the library's own word may stand Paddle's, of the signal
        gave_up = launched.get("exit_code") in ABORTED and GAVE_UP.search(log) and not OWN_CAUSE.search(log)
        joint = _lost_peer(launched) or bool(gave_up)
        return replace(finding, between=evidence.once(_either_of_two).get(node, ""), joint=joint)
    because = (
        f"its launcher says that it succeeded, while those of {len(lost)} nodes waited for it or lost it"
    )
    return failed(because, "exit code 0", "ends with the others") if lost else None


def _together(evidence: Evidence, node: str) -> Finding | None:
    """What all nodes together show against this one."""
    if shared := evidence.once(_shared_samples).get(node):
        return failed(shared.because, "wrong", EXPECTED, between=shared.between, joint=True)
    if because := evidence.once(_missing_processes).get(node):
        return failed(because, "wrong", EXPECTED)
    if because := evidence.once(_loss_problem):
        return failed(f"{because} ({UNKNOWN})", "wrong", EXPECTED, joint=True)
    return None


def _launchers(evidence: Evidence) -> dict[str, Mapping[str, Any]]:
    """What each node says of its launcher; nothing where that has no form."""
    said = {rank.node: (rank.verdict or {}).get("launched") for rank in outcome_of(evidence, JOB).ranks}
    return {node: each if isinstance(each, Mapping) else {} for node, each in said.items()}


def _lost_peer(launched: Mapping[str, Any]) -> bool:
    """Whether a launcher did not end, or its processes ended because they lost others."""
    code, error = launched.get("exit_code", 0), _last_error(launched)
    has_lost = PEER_GONE.search(error) and not OWN_CAUSE.search(error)
    return code is None or (code != 0 and bool(has_lost))


def _lost_nodes(evidence: Evidence) -> frozenset[str]:
    """The nodes whose launchers waited for others or lost them, where most did, and others ended otherwise:
    whom they waited for.

    None of two nodes, of which each may be right.
    """
    launched = _launchers(evidence)
    lost = {node for node, said in launched.items() if _lost_peer(said)}
    is_most = len(lost) >= WITNESSES and 2 * len(lost) > len(launched)
    return frozenset(lost) if is_most and lost != set(launched) else frozenset()


def _either_of_two(evidence: Evidence) -> dict[str, str]:
    """Of two nodes the one whose launcher waited for the other or lost it, and that one, which says that it
    succeeded.
    """
    launched = _launchers(evidence)
    lost = [node for node, said in launched.items() if _lost_peer(said)]
    others = [node for node, said in launched.items() if said.get("exit_code") == 0]
    return {lost[0]: others[0]} if len(launched) == 2 and lost and others else {}


def _last_error(launched: Mapping[str, Any]) -> str:
    lines = [line for line in str(launched.get("log")).splitlines() if "Error" in line]
    return first_line(lines[-1]) if lines else "its processes named no error"


def _ended_badly(answer: Mapping[str, Any]) -> Finding | None:
    launched = answer.get("launched")
    if not isinstance(launched, Mapping) or "exit_code" not in launched:
        raise CannotReadError("the rank does not say how the launcher ended")
    more = {"printed": str(launched.get("text"))[-SHOWN:], "log": str(launched.get("log"))[-2 * SHOWN :]}
    if launched["exit_code"] is None:
        because = f"paddle.distributed.launch did not end within {launched.get('limit_s')} s"
        return failed(because, "no end", "exit code 0", evidence=more)
    if launched["exit_code"] != 0:
        because = f"paddle.distributed.launch ended with {launched['exit_code']}: {_last_error(launched)}"
        return failed(because, f"exit code {launched['exit_code']}", "exit code 0", evidence=more)
    return None


def trainers_of(rank: RankOutcome) -> list[Trainer]:
    """What a node's processes wrote. Raises CannotReadError where that is none of it, or malformed."""
    answer = rank.verdict or {}
    trainers = answer.get("trainers")
    if not isinstance(trainers, list) or not all(map(_is_whole, trainers)):
        raise CannotReadError(f"the processes on {rank.node} did not report all of their training")
    for key in ("processes", "all_processes", "samples", "epochs"):
        if not _is_count(answer.get(key)) or answer[key] > MAX_SAMPLES:
            raise CannotReadError(f"the rank on {rank.node} does not say how it was launched")
    if any(len(trainer["seen"]) != answer["epochs"] for trainer in trainers):
        raise CannotReadError(f"a process on {rank.node} did not report every epoch")
    return trainers


def _is_whole(trainer: object) -> bool:
    if not isinstance(trainer, Mapping):
        return False
    seen, losses, parameters = (trainer.get(key) for key in ("seen", "losses", "parameters_sha256"))
    return (
        isinstance(trainer.get("rank"), int)
        and _is_count(trainer.get("world"))
        and isinstance(trainer.get("device"), str)
        and isinstance(parameters, str)
        and len(parameters) >= 16
        and isinstance(losses, list)
        and len(losses) > 1
        and all(loss is None or (isinstance(loss, (int, float)) and abs(loss) <= MAX_LOSS) for loss in losses)
        and isinstance(seen, list)
        and all(
            isinstance(epoch, list)
            and len(epoch) <= MAX_SAMPLES
            and all(isinstance(number, int) for number in epoch)
            for epoch in seen
        )
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _too_few(
    evidence: Evidence, node: str, answer: Mapping[str, Any], trainers: list[Trainer]
) -> Finding | None:
    expected = _started(evidence, node, answer)
    if len(trainers) != expected:
        because = f"{len(trainers)} of {expected} processes finished their training"
        return failed(because, len(trainers), expected, unit="processes")
    gpus = evidence.gpu_count(node)
    on_gpus = any(trainer["device"].startswith("gpu") for trainer in trainers)
    if on_gpus and len(trainers) < gpus and not has_mig(evidence, node):
        because = f"Paddle trained on {len(trainers)} of {gpus} GPUs"
        return failed(because, len(trainers), gpus, unit="GPUs")
    worlds, usual = {trainer["world"] for trainer in trainers}, evidence.once(_worlds)
    if worlds != usual:
        found, of = min(worlds - usual or worlds), " or ".join(map(str, sorted(usual)))
        because = f"the processes found {found} of {of} processes of all nodes"
        return failed(because, found, max(usual), unit="processes")
    return None


def _started(evidence: Evidence, node: str, answer: Mapping[str, Any]) -> int:
    """How many processes the node was to start: by the launcher, else as it says."""
    processes = outcome_of(evidence, JOB).facts.get("processes") or {}
    return int(processes.get(node, answer["processes"]))


def _worlds(evidence: Evidence) -> set[int]:
    """How many processes most nodes found together, each with one vote: by what they were launched for, one
    node that starts fewer would fail all others.
    """
    votes: Counter[int] = Counter()
    for rank in outcome_of(evidence, JOB).ranks:
        with suppress(CannotReadError):
            votes.update(commonest(Counter(trainer["world"] for trainer in trainers_of(rank))))
    return commonest(votes)


def _parameters(evidence: Evidence) -> set[str]:
    """The hashes that most nodes have, each with one vote."""
    votes: Counter[str] = Counter()
    for rank in outcome_of(evidence, JOB).ranks:
        try:
            here = Counter(str(trainer["parameters_sha256"]) for trainer in trainers_of(rank))
        except CannotReadError:
            continue
        votes.update(commonest(here))
    return commonest(votes)


def _unlike(evidence: Evidence, answer: Trainer, trainers: list[Trainer]) -> str:
    """What is wrong with this node alone, next to what most nodes say."""
    launches, votes = evidence.once(_launches), evidence.once(_parameters)
    if _launch_of(answer) not in launches:
        return "it was launched for other numbers of processes, samples or epochs than most nodes"
    if len(launches) > 1:
        return (
            "nodes were launched for unlike numbers of processes, samples or epochs: cannot determine which"
        )
    for trainer in trainers:
        if because := _problem(trainer, votes) or _part_problem(trainer, answer):
            return f"process {trainer['rank']}: {because}"
    return ""


Launch = tuple[int, int, int]


def _launch_of(answer: Trainer) -> Launch:
    return answer["all_processes"], answer["samples"], answer["epochs"]


def _launches(evidence: Evidence) -> set[Launch]:
    """How most nodes say that they were launched, each with one vote."""
    votes: Counter[Launch] = Counter()
    for rank in outcome_of(evidence, JOB).ranks:
        with suppress(CannotReadError):
            trainers_of(rank)
            votes[_launch_of(rank.verdict or {})] += 1
    return commonest(votes)


def _share(trainer: Trainer, answer: Trainer) -> int:
    """The samples of a process in an epoch: the sampler repeats some to make the parts equal."""
    return -(-int(answer["samples"]) // int(trainer["world"]))


def _part_problem(trainer: Trainer, answer: Trainer) -> str:
    """What is wrong with the samples of one process by itself."""
    for number, epoch in enumerate(trainer["seen"], 1):
        if len(epoch) != _share(trainer, answer):
            share = _share(trainer, answer)
            return f"it trained on {len(epoch)} samples in epoch {number}, {share} expected"
        if strange := [sample for sample in epoch if not 0 <= sample < answer["samples"]]:
            return f"it trained on samples in epoch {number} that there are not ({len(strange)})"
    return ""


def _sound(evidence: Evidence) -> dict[str, list[Trainer]]:
    """The processes of each node that can be read and is right by itself: what all nodes are judged by.

    One that is not fails for itself, and says nothing of the others.
    """
    launches, worlds, found = evidence.once(_launches), evidence.once(_worlds), {}
    for rank in outcome_of(evidence, JOB).ranks:
        answer = rank.verdict or {}
        with suppress(CannotReadError):
            trainers = trainers_of(rank)
            is_whole = len(trainers) == _started(evidence, rank.node, answer)
            is_alike = {_launch_of(answer)} == launches and {each["world"] for each in trainers} == worlds
            if is_whole and is_alike and not any(_part_problem(trainer, answer) for trainer in trainers):
                found[rank.node] = trainers
    return found


def _shared_samples(evidence: Evidence) -> dict[str, Shared]:
    """By node that trained on what others did, too: as each process has its share, others are missing."""
    nodes, launches = evidence.once(_sound), evidence.once(_launches)
    if not nodes or len(launches) != 1:
        return {}
    ((_, samples, epochs),), (world,) = launches, evidence.once(_worlds)
    return find_shared(
        [
            {
                name: [n for trainer in of_node for n in trainer["seen"][epoch]]
                for name, of_node in nodes.items()
            }
            for epoch in range(epochs)
        ],
        repeats=-(-samples // world) * world - samples,
    )


def _missing_processes(evidence: Evidence) -> dict[str, str]:
    """By node why it is held against it that all nodes together trained with more or fewer processes than
    they were launched with: where most have as many, against the others; not where shared samples say why.
    """
    nodes, launches = evidence.once(_sound), evidence.once(_launches)
    if len(nodes) < len(outcome_of(evidence, JOB).ranks) or evidence.once(_shared_samples):
        return {}
    ((launched, _, _),), (world,) = launches, evidence.once(_worlds)
    together = sum(map(len, nodes.values()))
    if together == world == launched:
        return {}
    usual = find_majority(count_votes(Counter([len(trainers)]) for trainers in nodes.values()))
    trained = world if together == launched else together
    because = f"{trained} processes trained on all nodes together, of {launched}"
    if usual is None or all(len(trainers) == usual for trainers in nodes.values()):
        return dict.fromkeys(nodes, f"{because} ({UNKNOWN})")
    return {
        node: f"{because}: {len(trainers)} here, {usual} on most nodes"
        for node, trainers in nodes.items()
        if len(trainers) != usual
    }


def _no_number(evidence: Evidence) -> str:
    """Of all nodes together, where half of them have a loss that is no number: each gets all gradients."""
    without = []
    for rank in outcome_of(evidence, JOB).ranks:
        with suppress(CannotReadError):
            without.append(any(None in trainer["losses"] for trainer in trainers_of(rank)))
    return "the loss is not a number" if any(without) and 2 * sum(without) >= len(without) else ""


def _problem(trainer: Trainer, votes: set[str]) -> str:
    if None in trainer["losses"]:
        return "its loss is not a number"
    if trainer["parameters_sha256"] not in votes or len(votes) > 1:
        return "it ends with other parameters than the others"
    return ""


def _loss_problem(evidence: Evidence) -> str:
    """Of all nodes together, each with one vote: each epoch has the same samples, a node has others each
    time.
    """
    sound = evidence.once(_sound)
    nodes = {n: found for n, found in sound.items() if not any(None in each["losses"] for each in found)}
    if not nodes:
        return ""
    first, last = (
        median(fmean(trainer["losses"][place] for trainer in node) for node in nodes.values())
        for place in (0, -1)
    )
    return "" if last < first else f"the loss did not fall: {first:.4f} to {last:.4f}"


def _on(change: Callable[[seeding.Raw], None], node: str = "gpu02") -> seeding.Inject:
    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node:
            change(verdict)

    return seeding.verdicts(JOB, on)


def _launched(**answer: Any) -> seeding.Inject:
    return _on(lambda verdict: verdict["launched"].update(answer))


def _trained(**answer: Any) -> seeding.Inject:
    return _on(lambda verdict: verdict["trainers"][3].update(answer))


def _everywhere(**answer: Any) -> seeding.Inject:
    def on(_rank: RankOutcome, verdict: seeding.Raw) -> None:
        for trainer in verdict["trainers"]:
            trainer.update(answer)

    return seeding.verdicts(JOB, on)


def _shares(verdict: seeding.Raw) -> None:
    """A process that reads what another one does, as without a DistributedBatchSampler."""
    verdict["trainers"][3]["seen"] = verdict["trainers"][2]["seen"]


def _twice(verdict: seeding.Raw) -> None:
    for epoch in verdict["trainers"][3]["seen"]:
        epoch.append(epoch[0])


LOG = "Traceback (most recent call last):\nRuntimeError: NCCL error 2, unhandled system error\n"
_NODE = Subject("gpu02")
CHECK = Check(
    id="paddle-launch",
    title="paddle.distributed.launch",
    section=Section.TRAINING,
    scope=Scope.GROUP,
    severity=Severity.CRITICAL,
    measures="whether a plain script of a user trains on all GPUs of all nodes, each sample once an epoch, "
    "with equal parameters",
    method="python -m paddle.distributed.launch on every node at once, with --host and the interface; a "
    "script of DataParallel, DistributedBatchSampler and DataLoader",
    requires="the training image on every node; free TCP ports between the nodes (peer-ports)",
    expectation="exit code 0 on every node, a process for each GPU, equal hashes of the parameters, every "
    "sample once an epoch except those that make the parts equal, a loss that falls",
    remedy="Read the log of the process that failed. If all wait for each other, compare the interface, "
    "/etc/hosts (no 127.0.1.1 for the host's name), peer-ports; if training-numerics fails, too, that first.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    faults=(
        SeededFault("launcher-fails", _launched(exit_code=1, log=LOG), _NODE),
        SeededFault("launcher-waits", _launched(exit_code=None), _NODE),
        SeededFault("process-missing", _on(lambda verdict: verdict["trainers"].pop()), _NODE),
        SeededFault(
            "gpu-not-used",
            _on(lambda verdict: verdict.update(trainers=verdict["trainers"][:7], processes=7)),
            _NODE,
        ),
        SeededFault("node-by-itself", _trained(world=8), _NODE),
        SeededFault("other-parameters", _trained(parameters_sha256="f" * 64), _NODE),
        SeededFault("loss-does-not-fall", _everywhere(losses=[0.4, 0.4]), _NODE),
        SeededFault("samples-shared", _on(_shares), _NODE),
        SeededFault("sample-twice", _on(_twice), _NODE),
        SeededFault("nothing-told", _on(lambda verdict: verdict.pop("launched")), _NODE, Verdict.NOT_RUN),
        SeededFault("epoch-missing", _trained(seen=[]), _NODE, Verdict.NOT_RUN),
        SeededFault(
            "rank-crashes", seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by SIGKILL"), _NODE
        ),
        SeededFault("not-run", lambda e: seeding.without_job(e, JOB), _NODE, Verdict.NOT_RUN),
    ),
)
