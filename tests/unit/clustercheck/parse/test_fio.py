"""fio's JSON: figures of one group, how it ended, and what is none of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clustercheck.parse.fio import CHECKSUM_DIFFERS, parse_fio
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples.fio import fio_text


def changed(**job: Any) -> str:
    document = json.loads(fio_text(1.5, 2.5))
    document["jobs"][0].update(job)
    return json.dumps(document)


def test_writing_and_reading_back_are_read_in_gigabytes_a_second() -> None:
    run = parse_fio(fio_text(1.5, 2.5))
    assert (run.version, run.error, run.write_gbps, run.read_gbps) == ("fio-3.33", 0, 1.5, 2.5)
    assert run.written_bytes == run.read_bytes == 1 << 30


def test_warnings_before_the_document_are_passed_over_and_errors_are_read() -> None:
    text = "fio: this is a warning\n" + changed(error=CHECKSUM_DIFFERS)
    assert parse_fio(text).error == CHECKSUM_DIFFERS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fio: failed parsing directory=/none",
        fio_text(1.0, 1.0)[:-30],
        "[]",
        json.dumps({"fio version": "fio-3.33", "jobs": []}),
        changed(error="84"),
        changed(error=True),
        changed(write=None),
        changed(read={"bw_bytes": 1.5, "io_bytes": 1}),
        changed(read={"bw_bytes": -1, "io_bytes": 1}),
    ],
)
def test_what_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(CannotReadError):
        parse_fio(text)
