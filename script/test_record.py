"""A pytest plugin that writes a JSON line per test: file, phases in seconds, outcome, reason of a skip."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

import pytest

VARIABLE = "CLUSTERCTL_TEST_RECORD"  # the file to write


class Recorder:
    """Collects the phases of each test and writes its line when the last one has ended."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._open: dict[str, dict[str, Any]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file was collected, or left out as a whole."""
        if report.skipped:
            because = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            self._write({"test": report.nodeid, "outcome": "skipped", "because": because})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test has ended, here or in a worker."""
        record = self._open.setdefault(report.nodeid, {"test": report.nodeid, "outcome": "passed"})
        record[report.when or "call"] = round(report.duration, 3)
        if report.failed:
            record["outcome"] = "failed"
        elif report.skipped and record["outcome"] == "passed":
            record["outcome"] = "skipped"
            record["because"] = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if report.when == "teardown":
            self._write(self._open.pop(report.nodeid))

    def _write(self, record: dict[str, Any]) -> None:
        self._stream.write(json.dumps(record) + "\n")
        self._stream.flush()


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that reports, not in the workers of xdist."""
    if VARIABLE in os.environ and not hasattr(config, "workerinput"):
        stream = Path(os.environ[VARIABLE]).open("w", encoding="utf-8")  # noqa: SIM115 - closed by the cleanup
        config.add_cleanup(stream.close)
        config.pluginmanager.register(Recorder(stream), "clusterctl-test-record")
