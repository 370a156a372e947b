"""First apply, second apply and validate on labs of several sizes, against ansible-playbook and pyinfra.

    script/test --bench -- tests/bench/test_rollout_speed.py -s --hosts 16,1,3,8

A size at a time, each in a lab of its own. What was measured is kept in .lab-test-figures/ and written to
docs/performance.md after each size; a size that fails says so there, and the others continue. Sizes that are
not named keep what an earlier run measured.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from . import contenders, figures
from .labs import BenchLab, fresh_lab
from .taken import Taken

# A busy machine took 15 minutes to the end of one size; the whole ends by `--minutes`.
pytestmark = [pytest.mark.bench, pytest.mark.timeout(2400)]

ROUNDS = 5
# Of the slow ones as many rounds as fit in here, at least one.
STAGE_S = 90.0
# About what one size takes, and each node of it, on two cores.
SIZE_S, NODE_S = 60.0, 40.0
GOAL_OVER_ANSIBLE = 6.0
GOAL_OVER_PYINFRA = 1.0
GOAL_CPU_S = 0.5


@pytest.fixture(scope="module")
def work(repository: Path) -> Path:
    """Where figures and pyinfra are kept between runs."""
    directory = repository / ".lab-test-figures"
    directory.mkdir(exist_ok=True)
    contenders.install_pyinfra(directory)
    return directory


def rounds(measure: Callable[[], Taken], most: int = ROUNDS) -> Iterator[Taken]:
    """What several runs took, fewer where they are slow."""
    begun = time.monotonic()
    for number in range(most):
        if number and (time.monotonic() - begun) * (number + 1) / number > STAGE_S:
            return
        yield measure()


def test_a_second_apply_beside_plain_ansible_and_pyinfra(
    bench_hosts: int, bench_deadline: float, work: Path, repository: Path
) -> None:
    if time.monotonic() + SIZE_S + NODE_S * bench_hosts > bench_deadline:
        pytest.skip("there is no time left for this size (--minutes); what was measured before stays")
    kept = figures.load(work / "figures.json")
    one: dict[str, Any] = {"measured": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")}
    kept[str(bench_hosts)] = one
    problems: list[str] = []

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        """One stage: its failure is written down, and the next starts."""
        begun = time.monotonic()
        try:
            yield
        except (RuntimeError, OSError, ValueError, KeyError) as error:
            problems.append(f"{name}: {error}")
        sys.stderr.write(f"{bench_hosts} node(s): {name} {time.monotonic() - begun:.1f} s\n")

    try:
        with stage("lab"), fresh_lab(work / f"lab{bench_hosts}", bench_hosts) as lab:
            measure(lab, one, work, stage)
    finally:
        one["problems"] = [problem.replace("\n", " ")[:300] for problem in problems]
        figures.save(work / "figures.json", kept)
        sizes = ",".join(sorted(kept, key=int))
        command = f"script/test --bench -- tests/bench/test_rollout_speed.py -s --hosts {sizes}"
        figures.write(repository / "docs/performance.md", kept, command)
    sys.stderr.write(figures.table({str(bench_hosts): one}) + "\n")
    assert problems == []
    judge(bench_hosts, one)


def measure(lab: BenchLab, one: dict[str, Any], work: Path, stage: Callable[[str], Any]) -> None:
    """Fill ``one`` with what each stage took, in seconds."""
    program = str(Path(sys.executable).with_name("clusterctl"))
    ours = [program, "-C", str(lab.cluster)]
    with stage("first apply"):
        one["first"] = [contenders.timed([*ours, "apply", "--yes"])[0].wall_s]
    with stage("second apply"):
        taken = list(rounds(lambda: contenders.second_apply(lab)))
        one["second"], one["second_cpu"] = [t.wall_s for t in taken], [t.cpu_s for t in taken]
    with stage("parts of it"):
        for name, command in (("start", [program, "--version"]), ("inventory", [*ours, "hosts", "list"])):
            one[name] = [contenders.timed(command)[0].wall_s for _ in range(ROUNDS)]
    with stage("second apply, every task through Ansible"):
        taken = list(rounds(lambda: contenders.timed([*ours, "apply", "--yes", "--full"])[0], 2))
        one["full"], one["full_cpu"] = [t.wall_s for t in taken], [t.cpu_s for t in taken]
    with stage("what the others need"):
        contenders.prepare(lab, work)
    with stage("pyinfra"):
        one["pyinfra"] = [t.wall_s for t in rounds(lambda: contenders.pyinfra(lab, work))]
    with stage("plain ansible-playbook"):
        one["ansible"] = [t.wall_s for t in rounds(lambda: contenders.plain_ansible(lab, work), 3)]
    with stage("second apply, again"):  # the others have changed nothing, and the machine is as it was
        again = [contenders.second_apply(lab) for _ in range(2)]
        one["second"] += [t.wall_s for t in again]
        one["second_cpu"] += [t.cpu_s for t in again]
    with stage("validate"):
        taken_once, one["validate_verdict"] = contenders.validation(lab)
        one["validate"] = [taken_once.wall_s]


def judge(size: int, one: dict[str, Any]) -> None:
    """The goals: held where the lab is as large as they are set for, shown elsewhere."""
    ours, plain, other = (figures.middle(one[name]) for name in ("second", "ansible", "pyinfra"))
    assert ours
    assert plain
    assert other
    assert plain > ours, "an apply that changes nothing is slower than plain Ansible"
    if size >= 16:
        cpu = figures.middle(one["second_cpu"])
        assert cpu
        assert plain / ours >= GOAL_OVER_ANSIBLE
        assert ours / other <= GOAL_OVER_PYINFRA
        assert cpu / (size + 1) <= GOAL_CPU_S
