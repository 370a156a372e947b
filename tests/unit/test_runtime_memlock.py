"""Docker's options as the role asks for them: memory may be locked where there is an RDMA adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

MEMLOCK = {"Name": "memlock", "Soft": -1, "Hard": -1}


def options(repository: Path, found: dict[str, Any], **settings: Any) -> dict[str, Any]:
    role = repository / "roles/container_runtime"
    ours = yaml.safe_load((role / "vars/main.yml").read_text(encoding="utf-8"))
    variables = {
        "container_runtime_lock_memory": True,
        "container_runtime_daemon_options": {},
        "__container_runtime_rdma": found,
        **settings,
    }
    loader = DataLoader()
    try:
        from ansible.template import trust_as_template
    except ImportError:
        text = ours["_container_runtime_options"]
    else:
        text = trust_as_template(ours["_container_runtime_options"])
    made: dict[str, Any] = Templar(loader, variables=variables).template(text)
    return made


@pytest.mark.parametrize(
    ("found", "settings", "expected"),
    [
        ({"matched": 8}, {}, {"default-ulimits": {"memlock": MEMLOCK}}),
        ({"matched": 0}, {}, {}),
        ({"skipped": True}, {}, {}),  # the kernel knows no RDMA at all
        ({"matched": 8}, {"container_runtime_lock_memory": False}, {}),
        (
            {"matched": 8},
            {"container_runtime_daemon_options": {"default-ulimits": {"memlock": {"Hard": 65536}}}},
            {"default-ulimits": {"memlock": {**MEMLOCK, "Hard": 65536}}},
        ),
        (
            {"matched": 1},
            {"container_runtime_daemon_options": {"log-driver": "journald"}},
            {"log-driver": "journald", "default-ulimits": {"memlock": MEMLOCK}},
        ),
    ],
)
def test_memory_may_be_locked_where_there_is_rdma_and_the_operator_has_the_last_word(
    repository: Path, found: dict[str, Any], settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert options(repository, found, **settings) == expected
