"""The matrix of peer access: all pairs in order, known words only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mutations import FUZZ, meddled, misprinted, read_or_refused

from clustercheck.parse.p2p import MEANINGS, PeerAccess, parse_peer_access
from clustercheck.parse.reading import CannotReadError

# As drivers 535 to 595 print it for four GPUs, one of which stands behind another chipset.
TEXT = """\
 \tGPU0\tGPU1\tGPU2\tGPU3\t
 GPU0\tX\tOK\tOK\tCNS\t
 GPU1\tOK\tX\tOK\tCNS\t
 GPU2\tOK\tOK\tX\tCNS\t
 GPU3\tCNS\tCNS\tCNS\tX\t

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown
"""


def read(text: str) -> PeerAccess:
    return parse_peer_access(text, 4)


def test_every_ordered_pair_is_read() -> None:
    found = read(TEXT)
    assert len(found.words) == 12
    assert found.words[0, 1] == "OK"
    assert found.refused == ((0, 3), (1, 3), (2, 3), (3, 0), (3, 1), (3, 2))
    assert MEANINGS[found.words[3, 0]] == "not supported by the chipset"


def test_a_terminals_underline_is_not_in_the_way() -> None:
    assert read(TEXT.replace("\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1\x1b[0m", 1)) == read(TEXT)


def test_one_gpu_has_no_peer() -> None:
    assert parse_peer_access("\tGPU0\n GPU0\tX\n", 1).refused == ()


@pytest.mark.parametrize(
    ("instead_of", "stands"),
    [
        ("GPU3\tCNS", "GPU4\tCNS"),
        ("X\tOK\tOK\tCNS", "OK\tOK\tOK\tCNS"),
        ("X\tOK\tOK\tCNS", "X\tX\tOK\tCNS"),
        ("X\tOK\tOK\tCNS", "X\tOK\tOK"),
        ("X\tOK\tOK\tCNS", "X\tOK\tOK\tCNS\tOK"),
        ("X\tOK\tOK\tCNS", "X\tgut\tOK\tCNS"),
        ("GPU2\tGPU3\t\n", "GPU2\t\n"),
        (" GPU3\tCNS\tCNS\tCNS\tX\t\n", ""),
    ],
)
def test_a_matrix_that_is_not_whole_is_refused(instead_of: str, stands: str) -> None:
    assert instead_of in TEXT
    with pytest.raises(CannotReadError):
        read(TEXT.replace(instead_of, stands, 1))


@pytest.mark.parametrize("gpus", [0, 3, 5, 8])
def test_a_matrix_of_other_gpus_is_refused(gpus: int) -> None:
    with pytest.raises(CannotReadError):
        parse_peer_access(TEXT, gpus)


@FUZZ
@given(text=st.one_of(meddled(TEXT), misprinted(TEXT)))
def test_after_a_mishap_the_same_matrix_is_read_or_none(text: str) -> None:
    found = read_or_refused(read, text)
    assert found is None or found == read(TEXT)


@FUZZ
@given(text=st.text(max_size=300))
def test_any_text_is_refused(text: str) -> None:
    assert read_or_refused(read, text) is None


@pytest.mark.parametrize(
    "text", ["", "GPU0 " * 100_000, "\x1b[" * 300_000, "x\n" * (1 << 18), "y" * (2 << 20)]
)
def test_megabytes_of_something_else_are_refused(text: str) -> None:
    with pytest.raises(CannotReadError):
        read(text)
