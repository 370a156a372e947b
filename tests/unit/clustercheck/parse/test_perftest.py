"""ib_write_bw: its text in both units, no figure that its message rate denies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mutations import FUZZ, meddled, misprinted, read_or_refused

from clustercheck.parse.perftest import (
    PerftestRequest,
    WriteBandwidth,
    parse_write_bandwidth,
)
from clustercheck.parse.reading import CannotReadError

LINE = "-" * 87 + "\n"
# In the words of src/perftest_parameters.c and src/cuda_memory.c; figures as of one HDR port.
HEADER = f"""\
{LINE}                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_0
 Number of qps   : 2		Transport type : IB
 Connection type : RC		Using SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 TX depth        : 128
 CQ Moderation   : 100
 Mtu             : 4096[B]
 Link type       : IB
 Max inline data : 0[B]
 rdma_cm QPs	 : OFF
 Data ex. method : Ethernet
{LINE} local address: LID 0x08 QPN 0x00dc PSN 0xf0a0c8 RKey 0x1fdfd1 VAddr 0x007f2419000000
 remote address: LID 0x09 QPN 0x00dd PSN 0x55e9f4 RKey 0x1fdfd0 VAddr 0x007f2418800000
{LINE}"""
TEXT = f"""{HEADER} #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1000.259000 != 2105.420000. CPU Frequency is not max.
 2097152    5000             196.53             196.47\t\t     0.011711
 4194304    5000             196.58             196.55\t\t     0.005858
 8388608    5000             196.61             196.60\t\t     0.002930
{LINE}"""
GPU = """\
initializing CUDA
Listing all CUDA devices in system:
CUDA device 0: PCIe address is 07:00

Picking device No. 0
[pid = 69, dev = 0] device name = [NVIDIA A100-SXM4-40GB]
creating CUDA Ctx
making it the current CUDA Ctx
cuMemAlloc() of a 33554432 bytes GPU buffer
allocated GPU buffer address at 00007f2418000000 pointer=0x7f2418000000
"""
SIZES = (2 << 20, 4 << 20, 8 << 20)
ASKED = PerftestRequest("mlx5_0", SIZES)


def read(text: str) -> WriteBandwidth:
    return parse_write_bandwidth(text, ASKED)


def read_of_gpu(text: str) -> WriteBandwidth:
    return parse_write_bandwidth(text, PerftestRequest("mlx5_0", SIZES, gpu=0))


READERS = {read: TEXT, read_of_gpu: GPU + TEXT}
EVERY = pytest.mark.parametrize("reader", list(READERS), ids=lambda reader: reader.__name__)


def test_what_is_printed_is_read() -> None:
    found = read(TEXT)
    assert (found.link, found.mtu_bytes, found.queue_pairs, found.both_ways) == ("IB", 4096, 2, False)
    assert [row.size_bytes for row in found.rows] == list(SIZES)
    assert found.rows[-1].average_gbps == 196.60


@pytest.mark.parametrize("unit", ["MB", "MiB"])
def test_the_other_unit_is_the_same_bandwidth(unit: str) -> None:
    text = TEXT.replace("[Gb/sec]", f"[{unit}/sec]")
    for gbps, mib in (("196.47", "23420.90"), ("196.55", "23430.24"), ("196.60", "23436.40")):
        text = text.replace(gbps, mib)
    for rate, fine in (("0.011711", "0.011710"), ("0.005858", "0.005858"), ("0.002930", "0.002930")):
        text = text.replace(rate, fine)
    assert read(text).rows[-1].average_gbps == pytest.approx(196.6, rel=1e-3)


def test_gpu_memory_is_told_from_host_memory() -> None:
    assert not read_of_gpu(GPU + TEXT).dma_buf
    by_dma_buf = (
        GPU + "using DMA-BUF for GPU buffer address at 0x7f24 aligned at 0x7f24 with aligned size 33554432\n"
    )
    assert read_of_gpu(by_dma_buf + TEXT).dma_buf
    for asked, text in ((ASKED, GPU + TEXT), (PerftestRequest("mlx5_0", SIZES, gpu=0), TEXT)):
        with pytest.raises(CannotReadError, match="memory"):
            parse_write_bandwidth(text, asked)
    host_after_all = GPU.replace("allocated GPU", "Host allocation, no")
    with pytest.raises(CannotReadError, match="memory"):
        read_of_gpu(host_after_all + TEXT)


@pytest.mark.parametrize(
    ("instead_of", "stands"),
    [
        ("196.60", "296.60"),
        ("0.002930", "0.003930"),
        ("Gb/sec", "Tb/sec"),
        ("average[Gb/sec]", "average[MB/sec]"),
        ("mlx5_0", "mlx5_1"),
        ("RDMA_Write BW", "RDMA_Read BW"),
        ("4194304", "4194305"),
        (" 4194304    5000", " 4194304    5000    7"),
        ("Mtu ", "Mtü "),
        ("Link type       : IB", "Link type       : Token Ring"),
        (f"0.002930\n{LINE}", "0.002930\n"),
    ],
)
def test_what_contradicts_itself_or_was_not_asked_for_is_refused(instead_of: str, stands: str) -> None:
    assert instead_of in TEXT
    with pytest.raises(CannotReadError):
        read(TEXT.replace(instead_of, stands))


@EVERY
@FUZZ
@given(data=st.data())
def test_after_a_mishap_the_same_rows_are_read_or_none(reader: Any, data: st.DataObject) -> None:
    found = read_or_refused(reader, data.draw(meddled(READERS[reader])))
    if found is not None:
        assert found.rows == reader(READERS[reader]).rows
        assert found.asked.gpu == reader(READERS[reader]).asked.gpu


@EVERY
@FUZZ
@given(data=st.data())
def test_a_wrong_digit_moves_no_bandwidth(reader: Any, data: st.DataObject) -> None:
    whole = reader(READERS[reader])
    found = read_or_refused(reader, data.draw(misprinted(READERS[reader])))
    if found is not None:
        assert [row.size_bytes for row in found.rows] == [row.size_bytes for row in whole.rows]
        averages = [row.average_gbps for row in whole.rows]
        assert [row.average_gbps for row in found.rows] == pytest.approx(averages, rel=1e-3)


@EVERY
@FUZZ
@given(text=st.text(max_size=300))
def test_any_text_is_refused(reader: Any, text: str) -> None:
    assert read_or_refused(reader, text) is None


@EVERY
@pytest.mark.parametrize(
    "text", ["", "9" * 300_000, " 1 " * 300_000, ": " * 400_000, "A " * 100_000, "x\n" * (1 << 20)]
)
def test_megabytes_of_something_else_are_refused(reader: Any, text: str) -> None:
    with pytest.raises(CannotReadError):
        reader(text)
