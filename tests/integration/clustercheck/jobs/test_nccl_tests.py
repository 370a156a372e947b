"""nccl-tests on two nodes, with programs that only pretend to measure, and how they are judged."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.two_ranks import ASKED, counters, ranks

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import GROUP, evaluate
from clustercheck.checks.support import seeding
from clustercheck.jobs import nccl_tests, unprivileged
from clustercheck.model import Subject, Verdict
from clustercheck.samples import sample
from clustercheck.samples.nccl_tests import table

PERF = '[ "$1" = -h ] && { echo "[-J,--output_file <file>]"; exit 0; }\necho "at $HERE: $*"'
# It starts its daemons as Open MPI does: itself on the first host, by the agent on every other, where no
# shell starts what is to run.
MPIRUN = """daemon='echo "asked $HERE" >> "$SEEN"; : orted "1.0;tcp://127.0.0.1:7";'
hosts=; while [ "$1" != sh ]; do [ "$1" = --host ] && hosts=$2; shift; done
for h in $(echo "$hosts" | tr , ' '); do
  if [ "${h%%:*}" = 127.0.0.1 ]; then HERE=first OMPI_COMM_WORLD_RANK=0 "$@"
  else (shift 4; $OMPI_MCA_plm_rsh_agent "${h%%:*}" "$daemon" "$@"); fi || exit 1
done"""


@pytest.fixture
def shared_path() -> Iterator[Path]:
    """A directory like tmp_path, with programs and files of other users than root in it."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    (path / "seen").touch()
    (path / "seen").chmod(0o666)
    yield path
    shutil.rmtree(path)


@pytest.mark.needs("root")
def test_the_programs_run_within_each_node_and_across_both(shared_path: Path) -> None:
    smi = 'echo "GPU 0: A100"; echo "GPU 1: A100"'
    writes = f'{PERF}\nfor file; do :; done; echo "{{}}" > "$file"'
    programs = {"all_reduce_perf": PERF, "all_reduce_perf_mpi": writes, "mpirun": MPIRUN, "nvidia-smi": smi}
    first, second = ranks(shared_path, programs)
    assert (first["gpus"], first["world_gpus"], first["without"], first["without_mpi"]) == (2, 4, "", "")
    assert first["within"]["all_reduce"]["text"].startswith(
        "at node0: -g 2 -f 2 -c 1 -b 8 -e 64 -n 2 -w 1 -J "
    )
    assert second["within"]["all_reduce"]["text"].startswith("at node1: -g 2")
    assert (first["across"]["all_reduce"]["exit_code"], first["across"]["all_reduce"]["json"]) == (0, "{}\n")
    assert "-np 4 --host 127.0.0.1:2,127.0.0.2:2" in first["across"]["all_reduce"]["command"]
    assert second["across"] == {}
    assert (shared_path / "seen").read_text(encoding="utf-8") == "asked node1\n"


@pytest.mark.needs("root")
@pytest.mark.parametrize(("code", "text"), [(0, "measured\n"), (3, "measured\nmade up on gpu02\n")])
def test_what_other_nodes_print_is_no_figure_of_the_group(shared_path: Path, code: int, text: str) -> None:
    """mpirun forwards it, and nobody prints earlier than a process that the others wait for."""
    perf = '[ "$1" = -h ] || echo measured'
    programs = {"all_reduce_perf": perf, "all_reduce_perf_mpi": perf, "nvidia-smi": 'echo "GPU 0: A100"'}
    programs["mpirun"] = f"echo made up on gpu02\n{MPIRUN}\nexit {code}"
    across = ranks(shared_path, programs)[0]["across"]["all_reduce"]
    assert (across["exit_code"], across["text"]) == (code, text)


# Says who it is, and all that it can do to ranks; then it leaves a link where it should write.
GREEDY = """[ "$1" = -h ] && {{ echo --output_file; exit 0; }}
id -u
for node in {nodes}/node*; do
  for file in $node/keys.json $node/arguments.json $node/rank-*.verdict.json $node/new; do
    cat $file && echo read; echo x > $file && echo written
  done
  kill -9 $(pgrep -o -f "rank.py $node") && echo killed
done 2> /dev/null
for file; do :; done
ln -s {nodes}/node0/keys.json "$file" 2> /dev/null || :"""


@pytest.mark.needs("root")
def test_what_mpi_starts_reads_no_key_and_writes_no_verdict(shared_path: Path) -> None:
    """On no node, whoever has it started."""
    programs = {"all_reduce_perf": PERF, "mpirun": MPIRUN, "nvidia-smi": 'echo "GPU 0: A100"'}
    programs["all_reduce_perf_mpi"] = GREEDY.format(nodes=shared_path)
    first, second = ranks(shared_path, programs)
    assert set(first["across"]["all_reduce"]["text"].split()) == {str(unprivileged.USER)}
    assert (first["across"]["all_reduce"]["json"], first["ok"], second["ok"]) == ("", True, True)


@pytest.mark.needs("root")
def test_who_starts_mpi_or_has_more_gpus_is_not_ahead_of_the_others(shared_path: Path) -> None:
    """Else who waits as all others do would seem to hold them up."""
    programs = {"all_reduce_perf": PERF, "all_gather_perf": PERF, "mpirun": "exit 0"}
    programs["nvidia-smi"] = '[ $HERE = node0 ] && echo "GPU 1: A100"; echo "GPU 0: A100"'
    programs["all_reduce_perf_mpi"] = programs["all_gather_perf_mpi"] = PERF
    asked = {**ASKED, "collectives": ["all_reduce", "all_gather"]}
    first, second = ranks(shared_path, programs, asked)
    assert (len(first["within"]), len(second["within"]), len(first["across"])) == (2, 0, 2)
    assert len(counters(shared_path)) == 1


@pytest.mark.needs("root")
def test_rank_0_waits_with_the_others_while_mpi_runs(shared_path: Path) -> None:
    """So is_even holds for all of them, whoever keeps its programs from ending."""
    says = shared_path / "says"
    os.mkfifo(says)
    says.chmod(0o666)
    programs = {"all_reduce_perf": PERF, "all_reduce_perf_mpi": PERF, "nvidia-smi": 'echo "GPU 0: A100"'}
    programs["mpirun"] = f"echo started > {says}; read line < {says}"
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(ranks, shared_path, programs)
        assert says.read_text(encoding="ascii") == "started\n"
        meanwhile = json.loads((shared_path / "node0" / "rank-0.progress").read_text(encoding="utf-8"))
        says.write_text("go on\n", encoding="ascii")
        ran.result(60)
    assert (meanwhile["phase"], meanwhile["collective"]) == ("nccl-tests across nodes", True)
    # Then all wait twice more, at the end.
    assert counters(shared_path) == {meanwhile["counter"] + 2}


@pytest.mark.needs("root")
def test_variables_of_the_settings_reach_the_programs_on_every_node(shared_path: Path) -> None:
    """Those of one value by mpirun's -x; of what differs, each node's daemon has its own."""
    perf = f'{PERF}\necho "$NCCL_IB_HCA $NCCL_IB_TC $OMPI_MCA_pml"'
    starts = MPIRUN.replace('asked $HERE"', 'asked $HERE $NCCL_IB_HCA"')
    programs = {
        "all_reduce_perf": perf, "all_reduce_perf_mpi": perf, "mpirun": starts,
        "nvidia-smi": 'echo "GPU 0: A"',
    }  # fmt: skip
    same = {"NCCL_IB_TC": "106", "OMPI_MCA_pml": "ucx"}
    variables = ({**same, "NCCL_IB_HCA": "=mlx5_0"}, {**same, "NCCL_IB_HCA": "=mlx5_4"})
    arguments = {**ASKED, "variables": ["NCCL_IB_HCA", "NCCL_IB_TC", "OMPI_MCA_pml"]}
    first, _ = ranks(shared_path, programs, arguments, variables=variables)
    across = first["across"]["all_reduce"]
    assert "-x NCCL_IB_TC -x OMPI_MCA_pml sh -c " in across["command"]
    assert "=mlx5_0 106 ucx" in across["text"]
    assert (shared_path / "seen").read_text(encoding="utf-8") == "asked node1 =mlx5_4\n"


def test_an_image_without_nccl_tests_is_reported_and_nothing_runs(tmp_path: Path) -> None:
    for verdict in ranks(tmp_path, {"nvidia-smi": "exit 0"}):
        assert "has no nccl-tests" in verdict["without"]
        assert verdict["within"] == verdict["across"] == {}


def test_of_what_is_printed_without_end_the_start_is_kept(tmp_path: Path) -> None:
    """mpirun prints on the first node what any other one says."""
    smi = 'echo "GPU 0: A100"; echo "GPU 1: A100"'
    flood = "yes flood | head -c 4000000; echo end"
    first, _ = ranks(tmp_path, {"all_reduce_perf": flood, "nvidia-smi": smi})
    assert first["within"]["all_reduce"]["exit_code"] == 0
    kept = (tmp_path / "node0" / "within-all_reduce.json.out").read_text(encoding="ascii")
    assert kept == first["within"]["all_reduce"]["text"] == ("flood\n" * 100_000)[: nccl_tests.MAX_OUTPUT]


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    programs = {"all_reduce_perf": "sleep 600", "nvidia-smi": 'echo "GPU 0: A"; echo "GPU 1: A"'}
    asked = {**ASKED, "limit_each_s": 1}
    programs["all_reduce_perf"] = '[ "$1" = -h ] && exit 0\necho started; sleep 600'
    first, _ = ranks(tmp_path, programs, asked)
    assert (first["within"]["all_reduce"]["exit_code"], first["without_mpi"]) == (
        None,
        "the image has no mpirun",
    )
    assert first["within"]["all_reduce"]["text"] == "started\n"


def test_the_loopback_of_the_adapters_leaves_nccl_nothing_but_the_network(tmp_path: Path) -> None:
    perf = """[ "$1" = -h ] && exit 0
echo "$NCCL_P2P_DISABLE$NCCL_SHM_DISABLE $NCCL_NVLS_ENABLE $*"
echo "$HERE says" > "$NCCL_DEBUG_FILE\""""
    programs = {"all_reduce_perf": perf, "nvidia-smi": 'echo "GPU 0: A"; echo "GPU 1: A"'}
    first, second = ranks(tmp_path, programs, job="nccl_loopback")
    assert first["run"]["text"] == "11 0 -g 2 -f 2 -c 1 -b 8 -e 64 -n 2 -w 1\n"
    assert (first["gpus"], first["nccl_log"], second["nccl_log"]) == (2, "node0 says\n", "node1 says\n")


def test_no_loopback_is_measured_without_nccl_tests_or_with_one_gpu(tmp_path: Path) -> None:
    for verdict in ranks(tmp_path, {"nvidia-smi": 'echo "GPU 0: A"'}, job="nccl_loopback"):
        assert "has no nccl-tests" in verdict["without"] and "run" not in verdict


LIES = [None, 7, "x", [1, 2, 3], ["x"] * 5, {}, ["", "", 10**9, "eth0", {}], ["", "", 1, "eth0", {"A": []}]]


@pytest.mark.parametrize("says", LIES, ids=str)
@pytest.mark.parametrize("hostile", [0, 1])
def test_what_one_node_says_of_itself_ends_no_other(tmp_path: Path, hostile: int, says: Any) -> None:
    programs = {"all_reduce_perf": PERF, "all_reduce_perf_mpi": PERF, "mpirun": MPIRUN}
    programs["nvidia-smi"] = 'echo "GPU 0: A100"; echo "GPU 1: A100"'
    (honest,) = ranks(tmp_path, programs, hostile=hostile, says=says)
    assert honest["ok"], honest
    assert honest["within"]["all_reduce"]["exit_code"] == 0
    assert honest["across"] == {}


def judged(**run: Any) -> dict[Subject, Any]:
    def change(rank: Any, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict["within"]["all_reduce"].update(run)

    evidence = seeding.verdicts("nccl_tests", change)(sample.healthy())
    return {result.subject: result for result in evaluate(BY_ID["nccl-tests-all-reduce"], evidence)}


def test_each_size_with_a_floor_is_judged_and_the_network_from_a_gibibyte_on() -> None:
    results = judged()
    assert {figure.figure.metric for figure in results[Subject("gpu01")].figures} == {
        f"busbw_{size}" for size in (64 << 20, 1 << 30, 4 << 30)
    }
    assert {figure.figure.metric for figure in results[GROUP].figures} == {
        f"busbw_{size}" for size in (1 << 30, 2 << 30, 4 << 30)
    }


def test_a_file_that_cannot_be_read_is_made_up_for_by_what_was_printed() -> None:
    assert judged(json='{"version": 3, "cut')[Subject("gpu02")].verdict is Verdict.PASS
    text = table("all_reduce", ["gpu02"], 8, 236.0)[:500]
    result = judged(json='{"version": 3, "cut', text=text)[Subject("gpu02")]
    assert result.verdict is Verdict.NOT_RUN and "JSON" in result.because


def test_one_node_is_judged_by_itself_and_has_nothing_to_cross() -> None:
    one = sample.healthy(nodes=1)
    outcome = one.jobs["nccl_tests"]
    said = {**(outcome.ranks[0].verdict or {}), "without_mpi": "only one node takes part"}
    one = seeding.with_job(one, replace(outcome, ranks=(replace(outcome.ranks[0], verdict=said),)))
    results = {r.subject: r.verdict for r in evaluate(BY_ID["nccl-tests-all-reduce"], one)}
    assert results == {Subject("gpu01"): Verdict.PASS, GROUP: Verdict.EXCLUDED}
