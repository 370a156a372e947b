"""What is said where Ansible ended and nothing was heard of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.engine.playbook import PlaybookRequest, _ansible_failed

RECAP = "PLAY RECAP ***\ngpu01 : ok=5 changed=0\n"
SILENT = "[WARNING]: Failed to load callback plugin 'clusterctl_events': module has no attribute 'X'\n"
OTHER = "[WARNING]: Host 'gpu01' is using a discovered Python interpreter\n"
ERROR = "[ERROR]: the playbook: site.yml could not be found\n"


@pytest.mark.parametrize(
    ("log", "what"),
    [
        (OTHER + ERROR, "Ansible did not start (exit code 4): the playbook: site.yml could not be found"),
        (
            OTHER + SILENT + RECAP + ERROR,
            "Ansible reported nothing (exit code 4): Failed to load callback plugin 'clusterctl_events': "
            "module has no attribute 'X'",
        ),
    ],
    ids=["error", "no callback"],
)
def test_the_cause_is_told_and_not_what_else_the_log_has(tmp_path: Path, log: str, what: str) -> None:
    request = PlaybookRequest(tmp_path / "site.yml", tmp_path / "hosts.yml", ("gpu01",), tmp_path)
    request.log.write_text(log)
    assert _ansible_failed(request, 0, 4).what == what
