"""The file that nccl-tests writes with `-J`, its versions 1 to 3 (nccl-tests 2.17.7 to 2.19)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from clustercheck.parse.document import member, read_json
from clustercheck.parse.nccl_tests import COLLECTIVES, Device, NcclTest, NcclTestsRow, Sweep, Timing, agreed
from clustercheck.parse.reading import CannotReadError, bus_address

KNOWN_VERSIONS = (1, 2, 3)
_WHAT = "the JSON of nccl-tests"
_PROGRAM = re.compile(r"(?:.{0,4000}/)?(\w{1,40}?)_perf\S{0,40}")


def parse_nccl_tests_json(text: str, collective: str, ranks: int) -> NcclTest:
    """Read the file of one run of ``collective`` over ``ranks`` ranks.

    Raises CannotReadError where it is not whole, of an unknown version, not what was asked for, or
    contradicts itself.
    """
    document = read_json(text, _WHAT)
    version = member(document, "version", int, _WHAT)
    if version not in KNOWN_VERSIONS:
        raise CannotReadError(f"{_WHAT} is of the unknown version {version}")
    arguments = member(document, "args", list, _WHAT)
    program = _PROGRAM.fullmatch(str(arguments[0])) if arguments else None
    if collective not in COLLECTIVES or program is None or program[1] != collective:
        raise CannotReadError(f"{_WHAT} is not {collective}'s")
    member(document, "end_time", str, _WHAT)  # written last
    config = member(document, "config", dict, _WHAT)
    bounds = member(document, "out_of_bounds", dict, _WHAT)
    out_of_bounds = member(bounds, "count", int, _WHAT)
    if member(bounds, "okay", str, _WHAT) != ("false" if out_of_bounds else "true"):
        raise CannotReadError(f"{_WHAT} contradicts itself on values out of bounds")
    average = member(document, "average_bus_bandwidth", dict, _WHAT)
    errors = document.get("errors")
    return agreed(
        NcclTest(
            collective,
            ranks,
            tuple(_device(answer) for answer in member(config, "devices", list, _WHAT)),
            _sweep(config),
            tuple(_row(answer) for answer in member(document, "results", list, _WHAT)),
            out_of_bounds,
            float(member(average, "bandwidth", Decimal, _WHAT)),
            error="; ".join(map(str, errors))[:300] if isinstance(errors, list) else "",
        )
    )


def _sweep(config: Mapping[str, Any]) -> Sweep:
    by_factor = "step_factor" in config
    return Sweep(
        least=member(config, "minimum_bytes", int, _WHAT),
        most=member(config, "maximum_bytes", int, _WHAT),
        step=member(config, "step_factor" if by_factor else "step_bytes", int, _WHAT),
        by_factor=by_factor,
        iterations=member(config, "iterations", int, _WHAT),
        validated=member(config, "validation", int, _WHAT) > 0,
        ranks_a_process=member(config, "nthreads", int, _WHAT) * member(config, "ngpus", int, _WHAT),
    )


def _device(answer: Any) -> Device:
    if member(answer, "group", int, _WHAT) != 0:
        raise CannotReadError("nccl-tests ran in several groups")
    return Device(
        member(answer, "rank", int, _WHAT),
        member(answer, "hostname", str, _WHAT),
        member(answer, "pid", int, _WHAT),
        member(answer, "device", int, _WHAT),
        bus_address(member(answer, "device_hex", str, _WHAT)),
        member(answer, "device_info", str, _WHAT),
    )


def _row(answer: Any) -> NcclTestsRow:
    return NcclTestsRow(
        member(answer, "size", int, _WHAT),
        member(answer, "count", int, _WHAT),
        member(answer, "type", str, _WHAT),
        member(answer, "redop", str, _WHAT),
        member(answer, "root", str, _WHAT).strip(),
        _timing(member(answer, "out_of_place", dict, _WHAT)),
        _timing(member(answer, "in_place", dict, _WHAT)),
    )


def _timing(record: Mapping[str, Any]) -> Timing:
    by_cpu = "cpu_time" in record
    wrong = record.get("nwrong", "")
    if wrong is not None and not (isinstance(wrong, Decimal) and wrong >= 0 and wrong == int(wrong)):
        raise CannotReadError(f"{_WHAT} counts {str(wrong)[:20]!r} wrong elements")
    return Timing(
        member(record, "cpu_time" if by_cpu else "time", Decimal, _WHAT),
        member(record, "alg_bw", Decimal, _WHAT),
        member(record, "bus_bw", Decimal, _WHAT),
        None if wrong is None else int(wrong),
        by_cpu=by_cpu,
    )
