"""Is the running driver the one that the settings ask for, and the same everywhere?"""

from __future__ import annotations

from collections import Counter, defaultdict

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject
from clustercheck.parse.reading import CannotReadError


def versions(evidence: Evidence) -> dict[str, str]:
    """Version of the running kernel module by node, as far as it can be read."""
    found = {}
    for name in evidence.reachable:
        try:
            found[name] = evidence.nodes[name].module_version()
        except CannotReadError:
            continue
    return found


def _counts(evidence: Evidence) -> dict[tuple[str, str], Counter[str]]:
    """How many nodes run which version, by what is asked of them."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for name, version in versions(evidence).items():
        counts[_asked_of(evidence, name)][version] += 1
    return counts


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Module against library, then the settings, then the other nodes of which the same is asked."""
    node = str(subject.node)
    module = evidence.nodes[node].module_version()
    library = _library(evidence, node)
    asked, branch = _asked_of(evidence, node)
    running = evidence.once(_counts)
    alike = running[asked, branch]
    everywhere = Counter({v: count for v, count in alike.items() if _is_asked(v, asked, branch)})
    commonest = [version for version, count in everywhere.items() if count == max(everywhere.values())]
    more = {"module": module, "nvidia_smi": library, "cluster": dict(sum(running.values(), Counter()))}
    if library is not None and module != library:
        return failed(
            f"the kernel module is {module}, the library {library}",
            module,
            library,
            evidence=more,
            remedy="Reload the module or reboot the node: CUDA fails until both are of one version.",
        )
    if asked and module != asked:
        return failed(
            f"driver {module} is running, the settings require {asked}", module, asked, evidence=more
        )
    if branch and module.split(".")[0] != branch:
        return failed(
            f"driver {module} is running, the settings require branch {branch}", module, branch, evidence=more
        )
    if module not in commonest:
        most = " and ".join(sorted(commonest))
        return failed(f"driver {module} is running, most nodes run {most}", module, most, evidence=more)
    if len(commonest) > 1:
        return failed(
            f"nodes run {' and '.join(sorted(commonest))}, in equal numbers: cannot determine which is "
            "intended",
            module,
            "one version",
            evidence=more,
            remedy="Set nvidia_driver_version to the intended one, then clusterctl apply.",
        )
    evidence.nodes[node].smi()
    return passed(module, asked or branch or commonest[0], evidence=more)


def _library(evidence: Evidence, node: str) -> str | None:
    """The library's version, None where nvidia-smi cannot be read."""
    try:
        return evidence.nodes[node].smi().driver_version
    except CannotReadError:
        return None


def _asked_of(evidence: Evidence, node: str) -> tuple[str, str]:
    settings = evidence.spec.settings_of(node)
    return settings.driver_version, settings.driver_branch


def _is_asked(version: str, asked: str, branch: str) -> bool:
    if asked:
        return version == asked
    return not branch or version.split(".", maxsplit=1)[0] == branch


def _all_at(nodes: dict[str, str]) -> seeding.Inject:
    return seeding.chain(*(_runs(node, version) for node, version in nodes.items()))


def _runs(node: str, version: str) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        answer = raw["nvidia_smi"]["stdout"]
        raw["nvidia_smi"]["stdout"] = answer.replace(raw["module"]["version"], version)
        raw["module"]["version"] = version

    return seeding.edit(node, change)


def _module_alone(raw: seeding.Raw) -> None:
    raw["module"]["version"] = "580.65.06"


CHECK = Check(
    id="driver-version",
    title="Driver version",
    section=Section.DRIVER,
    scope=Scope.HOST,
    measures="version of the running kernel module, and of the driver's library",
    method="/sys/module/nvidia/version and nvidia-smi -q -x",
    requires="a loaded NVIDIA kernel module",
    expectation="nvidia_driver_version, or nvidia_driver_branch, and the same on all nodes",
    remedy="Install the declared version on the node: clusterctl apply --only driver --limit NODE",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault("driver-version-skew", _runs("gpu02", "580.105.08"), Subject("gpu02")),
        SeededFault(
            "other-branch",
            _all_at({"gpu01": "570.148.08", "gpu02": "570.148.08", "gpu03": "570.148.08"}),
            Subject("gpu01"),
        ),
        SeededFault(
            "other-driver-and-no-answer-of-nvidia-smi",
            seeding.chain(_runs("gpu02", "580.105.08"), seeding.program_fails("gpu02", "nvidia_smi", rc=9)),
            Subject("gpu02"),
        ),
        SeededFault("module-and-library-apart", seeding.edit("gpu03", _module_alone), Subject("gpu03")),
    ),
)
