"""This cluster when it was good: the figures of an earlier run, and what they may be compared with."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clustercheck.errors import ExplainedError
from clustercheck.expect.judge import BaselineValue
from clustercheck.expect.software import OF_CLUSTER, OF_NODE, Software, software_of
from clustercheck.model import Figure, Subject
from clustercheck.parse.document import require_few_values
from clustercheck.parse.nvidia_smi import plain_model
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError

SCHEMA = "clusterctl/baseline/1"
# What passed, and what was measured where nobody knew yet what to expect.
KEPT = ("pass", "excluded")
MAX_VERSION = 300
Key = tuple[str, Subject, str]  # check, subject, metric


@dataclass(frozen=True)
class BaselineGpu:
    """A GPU as it was."""

    model: str = ""
    serial: str = ""


@dataclass(frozen=True)
class BaselineNode:
    """A node as it was; its GPUs by PCI address. ``environment`` is what the settings gave its ranks; None
    where that was not recorded, as ``simulated`` may not be: what the node said of its devices.
    """

    driver: str = ""
    gpus: Mapping[str, BaselineGpu] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    simulated: bool | None = None


@dataclass(frozen=True)
class BaselineFigure:
    """One figure as it was, and how it was measured."""

    measured: float
    unit: str
    method: str
    conditions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """A good run. ``named`` is what a sentence calls it."""

    run: str
    finished: str
    simulated: bool
    figures: Mapping[Key, BaselineFigure]
    nodes: Mapping[str, BaselineNode] = field(default_factory=dict)
    software: Software = field(default_factory=Software)

    @property
    def named(self) -> str:
        """The run, as reports name it."""
        return f"run {self.run} of {self.finished[:10]}"

    def before(self, check: str, subject: Subject, figure: Figure) -> BaselineValue | None:
        """The same figure as it was; None if there is none, or it was measured in another way."""
        then = self.figures.get((check, subject, figure.metric))
        if then is None or then.unit != figure.unit:
            return None
        same = then.method == figure.method and _are_equal(then.conditions, figure.conditions)
        return BaselineValue(then.measured, self.named) if same else None


def _are_equal(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two figures may be compared: a GPU's model may have got the vendor's name with a new driver.

    Not every figure has one, and those of before 2026-11-29 have fewer: nodes with GPUs of another model than
    then are compared with nothing, whatever is said here.
    """
    if dict(then) == dict(now):
        return True
    plain = [_with_plain_model(each) for each in (then, now)]
    if not all(each["gpu"] for each in plain):
        plain = [{**each, "gpu": ""} for each in plain]
    return plain[0] == plain[1]


def _with_plain_model(conditions: Mapping[str, Any]) -> dict[str, Any]:
    return {**conditions, "gpu": plain_model(str(conditions.get("gpu", "")))}


def from_result(document: Mapping[str, Any], *, where: str) -> Baseline:
    """The figures of a result document.

    Raises ExplainedError: ``baseline.unfit`` where it did not pass, ``baseline.unreadable``.
    """
    try:
        record = record_of(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise _unreadable(where, f"{type(error).__name__}: {error}") from error
    if document.get("verdict") != "pass":
        raise ExplainedError(
            f"run {record['run']} is not a baseline: its verdict is {document.get('verdict')}",
            code="baseline.unfit",
            where=where,
            hint="A baseline is a run that passed: name one.",
        )
    return from_record(record, where=where)


def record_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a result document as a baseline, in JSON values."""
    nodes = document["environment"].get("nodes") or {}
    software = software_of(document["environment"])
    return {
        "schema": SCHEMA,
        "run": document["run"],
        "finished": document["finished"],
        "cluster": document["cluster"],
        "simulated": document["simulated"],
        "software": dict(software.cluster),
        "nodes": {
            name: {
                "driver": node.get("driver") or "",
                "software": dict(software.nodes[name]),
                "gpus": {
                    str(gpu["address"]): {"model": gpu.get("model") or "", "serial": gpu.get("serial") or ""}
                    for gpu in node.get("gpus") or []
                    if gpu.get("address")  # a node that says too much has part of it omitted
                },
                "job_environment": node.get("job_environment"),
                "simulated": node.get("simulated"),
            }
            for name, node in nodes.items()
        },
        "figures": [
            {
                "check": result["check"],
                "subject": dict(result["subject"]),
                **{key: figure[key] for key in ("metric", "measured", "unit", "method", "conditions")},
            }
            for result in document["results"]
            if result["verdict"] in KEPT
            for figure in result.get("figures") or []
        ],
    }


def parse(text: str, *, where: str) -> Baseline:
    """A baseline from its own file, or from a result document.

    Raises ExplainedError (``baseline.unreadable``, ``baseline.unfit``).
    """
    try:
        require_few_values(text.encode(errors="surrogatepass"))
        record = json.loads(text)
    except CannotReadError as error:
        raise _unreadable(where, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(where, "it is not JSON") from error
    if isinstance(record, dict) and str(record.get("schema", "")).startswith("clusterctl/result/"):
        return from_result(record, where=where)
    return from_record(record, where=where)


def from_record(record: Any, *, where: str) -> Baseline:
    """A baseline from its JSON values. Raises ExplainedError (``baseline.unreadable``)."""
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise _unreadable(where, "it is not a baseline and no result document")
    try:
        figures = dict(_figure(entry) for entry in record["figures"])
        nodes = {str(name): _node(node) for name, node in record["nodes"].items()}
        run, finished = str(record["run"]), str(record["finished"])
        (run + finished).encode()  # raises for half a surrogate pair, which cannot be written
        return Baseline(run, finished, bool(record["simulated"]), figures, nodes, _software(record))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _unreadable(where, f"{type(error).__name__}: {error}") from error


def _figure(entry: Mapping[str, Any]) -> tuple[Key, BaselineFigure]:
    subject = Subject(entry["subject"]["node"], entry["subject"]["gpu"], entry["subject"]["peer"])
    measured = entry["measured"]
    if isinstance(measured, bool) or not math.isfinite(measured):
        raise ValueError(f"{entry['metric']} is not a number")
    then = BaselineFigure(
        float(measured), str(entry["unit"]), str(entry["method"]), dict(entry["conditions"])
    )
    return (str(entry["check"]), subject, str(entry["metric"])), then


def _node(node: Mapping[str, Any]) -> BaselineNode:
    gpus = {
        str(address): BaselineGpu(str(gpu["model"]), str(gpu["serial"]))
        for address, gpu in node["gpus"].items()
    }
    told = node.get("job_environment")
    environment = None if told is None else {str(name): str(value) for name, value in told.items()}
    simulated = node.get("simulated")
    return BaselineNode(
        str(node["driver"]), gpus, environment, simulated if isinstance(simulated, bool) else None
    )


def _software(record: Mapping[str, Any]) -> Software:
    """Baselines of before 2026-11-24 have the driver alone."""
    return Software(
        _versions(record.get("software") or {}, OF_CLUSTER),
        {
            str(name): _versions({"driver": node["driver"], **(node.get("software") or {})}, OF_NODE)
            for name, node in record["nodes"].items()
        },
    )


def _versions(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    return {name: _encodable(record[name]) for name in names if record.get(name)}


def _encodable(version: Any) -> str:
    text = one_line(str(version), MAX_VERSION)
    text.encode()  # raises for half a surrogate pair
    return text


def _unreadable(where: str, why: str) -> ExplainedError:
    return ExplainedError(
        f"the baseline cannot be read: {why}",
        code="baseline.unreadable",
        where=where,
        hint="Name a run that passed (clusterctl runs list), or save one again: validate --save-baseline.",
    )
