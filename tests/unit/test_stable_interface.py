"""What scripts rely on stays: names, fields, codes and options, as listed since 5954ee5."""

from __future__ import annotations

from pathlib import Path

from tests.support import stable_interface


def test_nothing_that_scripts_rely_on_is_gone(repository: Path) -> None:
    golden = (repository / "tests" / "golden" / "interface.txt").read_text("utf-8").splitlines()
    now = set(stable_interface.lines(repository))
    gone = [line for line in golden if line not in now]
    assert gone == [], "a renamed one keeps working under its old name, with a deprecation line"


def test_what_is_new_is_listed(repository: Path) -> None:
    golden = set((repository / "tests" / "golden" / "interface.txt").read_text("utf-8").splitlines())
    new = [line for line in stable_interface.lines(repository) if line not in golden]
    assert new == [], "add them: .venv/bin/python -m tests.support.stable_interface"


def test_a_lost_name_would_be_seen(repository: Path) -> None:
    found = stable_interface.lines(repository)
    for one in (
        "command clusterctl apply --limit",
        "command clusterctl hosts add argument 2",
        "exit code 3 EXIT_INCOMPLETE",
        "event wave_started.hosts",
        "error code host.unreachable",
        "file .clusterctl/ca/ca.crt",
        "file .clusterctl/known_hosts",
        "file .clusterctl/runs/*/result.json",
        "file .clusterctl/secrets/registry-pull.password",
        "json job_placed ranks",
        "json search_finished because",
        "json summary exit",
        "json verdict exit",
        "lab fault slow-link",
        "metric clusterctl_validation_verdict",
        "metric clusterctl_validation_culprit{peer}",
        "module node_lease",
        "node file /var/lib/clusterctl/holds.json",
        "result coverage.pass",
        "setting nvidia_driver nvidia_driver_version",
        "suite quick gpu-model",
    ):
        assert one in found
