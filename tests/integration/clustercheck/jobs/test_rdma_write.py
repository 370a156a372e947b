"""ib_write_bw between two nodes, with a program that only pretends to measure."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.two_ranks import NOT_MET, counters, ranks

from clustercheck.checks import rdma_write
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.jobs import rdma_write as rdma_job
from clustercheck.model import Verdict
from clustercheck.samples import sample
from clustercheck.samples.rdma import write_text

# Its ends as perftest's: the server waits at a port for one client, and the client prints the table.
WRITE = """import socket, sys
words = sys.argv[1:]
device, port = words[words.index("-d") + 1], int(words[words.index("-p") + 1])
if words[-1] == "--report_gbits" or words[-2] == "-x":
    with socket.create_server(("", port)) as server:
        server.accept()[0].recv(9)
else:
    with socket.create_connection((words[-1], port), timeout=5) as client:
        client.sendall(device.encode())
    print(open("{texts}/" + device).read(), end="")
"""


def perftest(tmp_path: Path, **more: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """The program, with what it prints of each port, and the arguments of a job of two ports a node."""
    for device in ("mlx5_0", "mlx5_1"):
        (tmp_path / device).write_text(write_text(device, 190.0), encoding="utf-8")
    (tmp_path / "write.py").write_text(WRITE.format(texts=tmp_path), encoding="utf-8")
    ports = [{"device": f"mlx5_{number}", "port": 1, "gid": None} for number in range(2)]
    asked = {"ports": [ports, ports], "rounds": [[[0, 1]], [[1, 0]]], "iterations": 10, "limit_each_s": 20}
    program = f'exec {sys.executable} {tmp_path / "write.py"} "$@"'
    return {"ib_write_bw": program}, {"limit_s": 60, **asked, **more}


def test_each_port_writes_to_itself_then_rail_by_rail_to_its_partner(tmp_path: Path) -> None:
    first, second = ranks(tmp_path, *perftest(tmp_path), job="rdma_write")
    for verdict in (first, second):
        assert [(e["device"], e["exit_code"]) for e in verdict["loopback"]] == [("mlx5_0", 0), ("mlx5_1", 0)]
        assert all("BW average" in entry["text"] for entry in verdict["loopback"])
    ends = [(entry["role"], entry["peer"], entry["rail"], entry["exit_code"]) for entry in first["writes"]]
    assert ends == [("client", 1, 0, 0), ("client", 1, 1, 0), ("server", 1, 0, 0), ("server", 1, 1, 0)]
    assert [entry["role"] for entry in second["writes"]] == ["server", "server", "client", "client"]
    assert "190." in first["writes"][1]["text"]


def test_who_has_more_ports_is_not_ahead_of_the_others(tmp_path: Path) -> None:
    programs, asked = perftest(tmp_path)
    first, second = asked["ports"]
    ranks(tmp_path, programs, {**asked, "ports": [first, second[:1]]}, job="rdma_write")
    assert len(counters(tmp_path)) == 1


def test_a_server_that_fails_is_not_waited_for_and_a_client_that_hangs_is_ended(tmp_path: Path) -> None:
    _, asked = perftest(tmp_path, limit_each_s=1)
    program = 'case "$*" in *gbits) echo "no device" >&2; exit 1;; *) sleep 600;; esac'
    begun = time.monotonic()
    first, second = ranks(tmp_path, {"ib_write_bw": program}, asked, job="rdma_write")
    assert time.monotonic() - begun < 4 * rdma_job.LISTEN_S  # two with itself and two for its partner
    refused = (1, "no device\n")
    ends = [(entry["exit_code"], entry["text"]) for entry in first["writes"]]
    assert ends == [(None, ""), (None, ""), refused, refused]
    assert [(entry["exit_code"], entry["text"]) for entry in second["writes"]][:2] == [refused, refused]


@pytest.mark.parametrize("tells", [NOT_MET, [1, 2, 3], ["--out=/x", 1], "x", -1, 70_000], ids=range(6))
def test_a_partner_that_names_no_port_is_not_written_to(tmp_path: Path, tells: Any) -> None:
    programs, asked = perftest(tmp_path, limit_each_s=1)
    (honest,) = ranks(tmp_path, programs, asked, job="rdma_write", hostile=1, tells=tells)
    clients = [each for each in honest["writes"] if each["role"] == "client"]
    assert [each["exit_code"] for each in clients] == [None, None]
    assert all(each["unmet"].startswith("rank 0 did not meet rank 1: ") for each in clients)


def test_who_says_that_its_image_cannot_measure_speaks_for_no_other(tmp_path: Path) -> None:
    programs, asked = perftest(tmp_path, limit_each_s=1)
    (honest,) = ranks(tmp_path, programs, asked, job="rdma_write", hostile=1, tells=None)
    assert (honest["without"], [each["role"] for each in honest["writes"]]) == ("", ["server", "server"])
    assert [entry["exit_code"] for entry in honest["loopback"]] == [0, 0]


@pytest.mark.parametrize("says", [1, "the image has no ib_write_bw"])
def test_what_passes_through_the_first_node_says_nothing_of_ports(tmp_path: Path, says: Any) -> None:
    programs, asked = perftest(tmp_path, limit_each_s=1)
    (honest,) = ranks(tmp_path, programs, asked, job="rdma_write", hostile=0, says=says)
    assert [entry["exit_code"] for entry in honest["loopback"]] == [0, 0]
    assert all("unmet" in each for each in honest["writes"] if each["role"] == "client")


def gpudirect(tmp_path: Path, helped: str, more: str = "") -> tuple[Any, Any]:
    """Two ranks of two GPUs each, with an ib_write_bw of this help."""
    programs, asked = perftest(tmp_path)
    pairs = [{**port, "gpu": gpu} for gpu, port in enumerate(asked["ports"][0])]
    program = f"[ \"$1\" = --help ] && {{ echo '{helped}'; exit 1; }}\n{more}\n{programs['ib_write_bw']}"
    return tuple(  # type: ignore[return-value]
        ranks(tmp_path, {"ib_write_bw": program}, {**asked, "pairs": [pairs, pairs]}, job="gpudirect_write")
    )


def test_each_gpu_is_measured_by_its_adapter_and_by_dma_buf_without_peermem(tmp_path: Path) -> None:
    order = '[ "$CUDA_DEVICE_ORDER" = PCI_BUS_ID ] || exit 9; echo "$*" >> "$SEEN"'
    first, _ = gpudirect(tmp_path, "--use_cuda=<cuda device id> --use_cuda_dmabuf", order)
    assert [(e["gpu"], e["device"], e["exit_code"], e["way"]) for e in first["writes"]] == [
        (0, "mlx5_0", 0, "DMA-BUF"),
        (1, "mlx5_1", 0, "DMA-BUF"),
    ]
    assert all("--use_cuda" in line for line in (tmp_path / "seen").read_text(encoding="utf-8").splitlines())


def test_after_two_gpus_that_hang_the_others_are_left(tmp_path: Path) -> None:
    _, asked = perftest(tmp_path, limit_each_s=1)
    pairs = [{**asked["ports"][0][0], "gpu": gpu} for gpu in range(4)]
    help_ = "[ \"$1\" = --help ] && { echo '--use_cuda= --use_cuda_dmabuf'; exit 1; }"
    program = f'{help_}\ncase "$*" in *gbits) exit 1;; *) sleep 600;; esac'
    asked = {**asked, "pairs": [pairs, []]}
    first, _ = ranks(tmp_path, {"ib_write_bw": program}, asked, job="gpudirect_write")
    assert [entry["exit_code"] for entry in first["writes"]] == [None, None]


def test_an_ib_write_bw_without_cuda_measures_nothing_and_says_why(tmp_path: Path) -> None:
    for verdict in gpudirect(tmp_path, "-a, --all"):
        assert (verdict["unable"], verdict["writes"]) == ("this ib_write_bw was built without CUDA", [])


def test_an_image_without_perftest_is_reported(tmp_path: Path) -> None:
    _, asked = perftest(tmp_path)
    for verdict in ranks(tmp_path, {"true": "true"}, asked, job="rdma_write"):
        assert "no ib_write_bw (package perftest)" in verdict["without"]


def test_ports_are_named_in_order_and_roce_by_the_address_that_can_be_routed() -> None:
    evidence = sample.healthy()
    (ports, _) = rdma_write.arguments_of(evidence, ["gpu01", "gpu02"])
    assert [(port["device"], port["gid"]) for port in ports] == [
        ("mlx5_0", None),
        ("mlx5_1", None),
        ("mlx5_2", 3),
    ]
    assert rdma_write.with_ports(evidence, ["gpu01", "gpu02"]) == ["gpu01", "gpu02"]


def test_any_verdict_about_writes_is_read_safely() -> None:
    for entry in ({}, {"role": "client"}, {"role": "client", "peer": 7, "rail": 0},
                  {"role": "client", "peer": 1, "rail": 9}, 3):  # fmt: skip

        def change(_rank: Any, verdict: seeding.Raw, entry: Any = entry) -> None:
            verdict["writes"] = [entry]

        evidence = seeding.verdicts("rdma_write", change)(sample.healthy())
        verdicts = {result.verdict for result in evaluate(BY_ID["rdma-write"], evidence)}
        assert verdicts <= {Verdict.NOT_RUN, Verdict.EXCLUDED}
