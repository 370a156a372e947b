"""NCCL's own log: which road each pair of ranks takes, what is wrong with it, and when it is not whole."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mutations import FUZZ, meddled, misprinted, read_or_refused

from clustercheck.parse import nccl_log
from clustercheck.parse.nccl_findings import REMEDIES, NcclSite, findings
from clustercheck.parse.nccl_log import NcclLog, parse_nccl_log
from clustercheck.parse.reading import CannotReadError

ADAPTERS = {"nodea": ("mlx5_0", "mlx5_1"), "nodeb": ("mlx5_0", "mlx5_1")}


def log_of(
    *,
    within: str = "P2P/IPC/read",
    across: str = "NET/IB/{nic}/GDRDMA",
    using: str = "",
    more: str = "",
    old: bool = False,
) -> str:
    """Two nodes of two GPUs, two channels, in the words of NCCL 2.18 (init.cc, transport); 2.15 if old."""
    lines = ["NCCL version 2.18.3+cuda12.1"]
    rings = ((0, 1, 2, 3), (1, 0, 3, 2))
    trees = {0: "[0] 1/2/-1->0->-1 [1] -1/-1/-1->0->1", 1: "[0] -1/-1/-1->1->0 [1] 0/3/-1->1->-1",
             2: "[0] 3/-1/-1->2->0 [1] -1/-1/-1->2->3",
             3: "[0] -1/-1/-1->3->2 [1] 2/-1/-1->3->1"}  # fmt: skip
    steps = sorted(
        {(c, a, b) for c, ring in enumerate(rings) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)}
        | {(0, 2, 0), (0, 1, 0), (0, 3, 2), (0, 0, 2), (1, 0, 1), (1, 2, 3), (1, 3, 1), (1, 1, 3)}
    )
    for rank in range(4):
        host = "nodea" if rank < 2 else "nodeb"

        def say(message: str, host: str = host, rank: int = rank) -> None:
            lines.append(f"{host}:{4100 + rank}:{4200 + rank} [{rank % 2}] NCCL INFO {message}")

        def end(of: int) -> str:
            return f"{of}[{7 + 8 * (of % 2):x}000]" if old else f"{of}[{of % 2}]"

        say("Bootstrap : Using eth0:10.0.0.4<0>")
        say(using or "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.4<0>")
        say("Using network IB")
        say(f"DMA-BUF is available on GPU device {rank % 2}")
        say(f"comm 0x55d0c0{rank} rank {rank} nranks 4 cudaDev {rank % 2} busId 7000 - Init START")
        say("NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'")
        say("Pattern 4, crossNic 0, nChannels 2, bw 24.000000/24.000000, type NVL/PXB, sameChannels 0")
        if rank == 0:
            for channel, ring in enumerate(rings):
                say(f"Channel {channel:02}/02 :    " + "   ".join(map(str, ring)))
        say(f"Trees {trees[rank]}")
        for channel, a, b in steps:
            if a // 2 == b // 2:
                if a == rank:
                    say(f"Channel {channel:02}/0 : {end(a)} -> {end(b)} via {within}")
            else:
                for of, side in ((a, "send"), (b, "receive")):
                    if of == rank:
                        road = across.format(nic=channel)
                        say(f"Channel {channel:02}/0 : {end(a)} -> {end(b)} [{side}] via {road}")
        say("Connected all rings")
        say("Connected all trees")
        if more:
            say(more)
        say(f"comm 0x55d0c0{rank} rank {rank} nranks 4 cudaDev {rank % 2} busId 7000 - Init COMPLETE")
    return "\n".join(lines) + "\n"


GOOD = log_of()


def read(text: str) -> NcclLog:
    return parse_nccl_log(text, 4)


def site(
    adapters: Any = ADAPTERS, *, gpus_reach_each_other: bool = True, gpudirect: Any = ADAPTERS
) -> NcclSite:
    return NcclSite(
        adapters=adapters,
        rdma=adapters,
        interfaces=dict.fromkeys(ADAPTERS, "eth0"),
        gpudirect=gpudirect,
        near=ADAPTERS if gpus_reach_each_other else (),
        peers=lambda one, other: gpus_reach_each_other,
    )


def codes(text: str, adapters: Any = ADAPTERS, **more: Any) -> list[str]:
    found = findings(read(text), site(adapters, **more))
    assert all(finding.hosts and finding.seen and finding.remedy for finding in found)
    return [finding.code for finding in found]


# --- what is said is read


def test_a_healthy_group_is_read_whole_and_nothing_is_wrong_with_it() -> None:
    log = read(GOOD)
    assert log.version == "2.18.3"
    assert log.hosts == ("nodea", "nodea", "nodeb", "nodeb")
    assert {joined.road for joined in log.joined} == {"P2P", "NET"}
    assert {joined.how for joined in log.joined if joined.road == "NET"} == {"IB"}
    assert all(joined.gpudirect for joined in log.joined if log.crosses(joined))
    assert log.adapters["nodeb"] == ("mlx5_0", "mlx5_1")
    assert log.gpudirect["nodea", "mlx5_0"]
    assert log.dma_buf == {"nodea", "nodeb"}
    assert log.patterns == {host: {(4, "NVL", "PXB")} for host in ("nodea", "nodeb")}
    assert log.connected == {"rings", "trees"}
    assert codes(GOOD) == []


def test_other_versions_and_other_ways_of_writing_are_read() -> None:
    assert codes(log_of(old=True)) == []
    assert codes(log_of(across="NET/IBext_v8/{nic}(3)/GDRDMA(PCI)/Shared")) == []
    assert codes(log_of(within="P2P/CUMEM")) == codes(log_of(within="P2P/direct pointer")) == []
    tagged = "\n".join(f"[1,0]<stdout>:{line}" for line in GOOD.splitlines())
    assert read(tagged).joined == read(GOOD).joined
    latest = GOOD.replace("comm 0x", "ncclCommInitRank comm 0x").replace(
        "Connected all rings", "Connected all rings, use ring PXN 0 GDR 1"
    )
    assert read(latest).joined == read(GOOD).joined


@pytest.mark.parametrize("relaxed", ["", "[RO]"])
def test_a_node_without_adapters_uses_sockets(relaxed: str) -> None:
    """NCCL 2.28.9 says that it uses no adapter, after it found none."""
    none = (
        f"NET/IB : No device found.\nnodea:1:1 [0] NCCL INFO NET/IB : Using {relaxed}; OOB eth0:10.0.0.4<0>"
    )
    log = read(log_of(across="NET/Socket/0", using=none))
    assert (log.adapters, log.no_adapter) == ({}, {"nodea", "nodeb"})


def test_an_adapter_that_is_gone_in_the_next_line_is_refused() -> None:
    with pytest.raises(CannotReadError, match="two ways which adapters nodea"):
        read(GOOD.replace("Using network IB", "NET/IB : Using [RO]; OOB eth0:10.0.0.4<0>"))


@pytest.mark.parametrize("left", range(1, 24))
def test_trees_are_read_as_far_as_nccl_wrote_them(left: int) -> None:
    """NCCL cuts a line after 1,023 bytes; the last tree may be another one's start, and does not count."""
    one = "[0] 1/2/-1->0->-1 [1] -1/-1/-1->0->1"
    more = "".join(f" [{channel}] -1/-1/-1->0->-1" for channel in range(2, 80))
    lines = GOOD.splitlines()
    number = next(n for n, line in enumerate(lines) if one in line)
    lines[number] = (lines[number] + more)[: nccl_log.CUT_AT + left - 1]
    assert read("\n".join(lines)).joined == read(GOOD).joined


def test_ranks_that_a_switch_reduces_for_are_read() -> None:
    log = read(log_of(more="CollNet 00/0 : 3 [send] via COLLNET/SHARP/1/GDRDMA"))
    assert log.collnet == {(3, "SHARP", True)}
    with pytest.raises(CannotReadError, match="unknown form"):
        read(log_of(more="CollNet 00/0 : 3 [send] via COLLNET/"))


# --- what is wrong is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (log_of(across="NET/Socket/0"), ["sockets"]),
        (
            log_of(across="NET/Socket/0", using="NET/Socket : Using [0]docker0:172.17.0.1<0>"),
            ["sockets", "interface-foreign"],
        ),
        (log_of(across="NET/IB/{nic}"), ["gpudirect-off"]),
        (log_of(within="SHM/direct/direct"), ["shared-memory"]),
        (GOOD.replace("type NVL/PXB", "type SYS/SYS"), ["ring-over-sys"]),
        (log_of(using="NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.4<0>"), ["adapters-unused"]),
        (
            log_of(
                using="NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE [2]mlx5_1:1/IB [RO]; OOB eth0:1<0>"
            ),
            ["adapters-foreign"],
        ),
    ],
)
def test_what_is_wrong_is_found(text: str, found: list[str]) -> None:
    assert codes(text) == found


def test_what_the_hardware_cannot_do_better_is_not_found() -> None:
    assert codes(log_of(within="SHM/direct/direct"), gpus_reach_each_other=False) == []
    assert codes(log_of(across="NET/Socket/0"), {}) == []
    assert codes(log_of(across="NET/Socket/0", using="NET/Socket : Using [0]eth0:10.0.0.4<0>"), {}) == []
    assert codes(log_of(across="NET/IB/{nic}"), gpudirect=()) == []
    listed = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_bond_0:1/RoCE [RO]; OOB eth0:1<0>"
    assert codes(log_of(using=listed)) == []


def test_the_host_whose_end_has_no_gpudirect_is_named() -> None:
    text = "\n".join(
        line.replace("/GDRDMA", "") if line.startswith("nodeb") else line for line in GOOD.splitlines()
    )
    (finding,) = findings(read(text), site())
    assert (finding.code, finding.hosts) == ("gpudirect-off", ("nodeb",))


def test_ranks_of_one_node_over_the_network_are_found() -> None:
    one_host = GOOD.replace("nodeb", "nodea")
    assert codes(one_host) == ["network-within-node"]


def test_a_finding_names_ranks_hosts_and_what_the_environment_sets() -> None:
    text = log_of(across="NET/Socket/0", more="NCCL_IB_DISABLE set by environment to 1.")
    (finding,) = findings(read(text), site())
    assert finding.hosts == ("nodea", "nodeb")
    assert "ranks 0 -> 2, 0 -> 3, 1 -> 2" in finding.seen
    assert "NCCL_IB_DISABLE=1" in finding.seen
    assert finding.remedy == REMEDIES["sockets"]


def test_warnings_are_kept_and_found() -> None:
    warned = (
        GOOD + "[2026-11-20 10:00:00] nodea:4100:4300 [0] net_ib.cc:1295 NCCL WARN NET/IB : Got completion\n"
    )
    assert read(warned).warnings == ("nodea: NET/IB : Got completion",)
    assert codes(warned) == ["warnings"]


# --- what is not whole is refused


@pytest.mark.parametrize(
    ("instead_of", "stands", "says"),
    [
        ("nranks 4", "nranks 8", "group of 8 ranks"),
        ("rank 3 nranks", "rank 2 nranks", "two hosts|rank 3 got ready"),
        ("via P2P/IPC/read", "via TELEPATHY", "unknown road"),
        ("via NET/IB/0/GDRDMA", "via NET/IB", "unknown road"),
        ("[send] via NET/IB/0", "via NET/IB/0", "unknown road"),
        ("-> 3[1]", "-> 9[1]", "rank 9"),
        ("[1] NCCL INFO Connected", "[1] NCCL INFO Connnodeb:4102:4202 [0] NCCL INFO ",
         "run into each other"),
        ("NCCL version 2.18.3+cuda12.1", "", "names no version"),
        ("NCCL version 2.18.3+cuda12.1", "NCCL version 2.18.3\nNCCL version 2.19.1", "two versions"),
    ],
)  # fmt: skip
def test_a_log_that_contradicts_itself_is_refused(instead_of: str, stands: str, says: str) -> None:
    assert instead_of in GOOD
    with pytest.raises(CannotReadError, match=says):
        read(GOOD.replace(instead_of, stands))


def test_a_group_that_never_did_anything_together_is_refused() -> None:
    silent = "\n".join(
        line for line in GOOD.splitlines() if " via " not in line and "Connected all" not in line
    )
    with pytest.raises(CannotReadError, match="one collective operation"):
        read(silent)


@FUZZ
@given(text=meddled(GOOD))
def test_after_a_mishap_the_same_roads_are_read_or_none(text: str) -> None:
    found = read_or_refused(read, text)
    if found is not None:
        whole = read(GOOD)
        assert (found.joined, found.version) == (whole.joined, whole.version)
        assert [found.crosses(j) for j in found.joined] == [whole.crosses(j) for j in whole.joined]


@FUZZ
@given(text=misprinted(GOOD))
def test_a_wrong_digit_makes_no_road_better(text: str) -> None:
    found = read_or_refused(read, text)
    if found is not None:
        assert {(joined.road, joined.gpudirect) for joined in found.joined} == {("P2P", False), ("NET", True)}


@FUZZ
@given(text=st.text(max_size=300))
def test_any_text_is_refused(text: str) -> None:
    assert read_or_refused(read, text) is None


@pytest.mark.parametrize(
    "text",
    ["", "NCCL INFO " * 100_000, "a:1:1 [0] NCCL INFO " + "Trees [0] " * 1000, "x\n" * (1 << 20),
     "\t" * (33 << 20),
     "a:1:1 [0] NCCL INFO NET/" + "/" * 100_000],
)  # fmt: skip
def test_megabytes_of_something_else_are_refused(text: str) -> None:
    with pytest.raises(CannotReadError):
        read(text)


@pytest.mark.parametrize(
    "line",
    [
        "CollNet 0/0 : {} [send] via COLLNET/x/0",
        "Using network n{}",
        "NCCL_A set by environment to {}",
        "Pattern {}, crossNic 0, nChannels 1, bw 1/1, type P/P, sameChannels 1",
    ],
    ids=["collnet", "network", "environment", "pattern"],
)
def test_ever_new_values_take_time_by_their_number_not_its_square(line: str) -> None:
    def seconds(lines: int) -> float:
        text = "".join(f"a:1:1 [0] NCCL INFO {line.format(n)}\n" for n in range(lines))
        began = process_time()
        with pytest.raises(CannotReadError, match="got ready"):
            parse_nccl_log(text, 2)
        return process_time() - began

    # By the square it is 64 times.
    assert min(seconds(16_000) for _ in range(3)) < 24 * min(seconds(2_000) for _ in range(3))
