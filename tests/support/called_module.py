"""An Ansible module in this process, as Ansible calls it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils import basic


def called(
    module: ModuleType,
    arguments: Mapping[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    check: bool = False,
) -> dict[str, Any]:
    """What the module answers; its temporary files are under ``tmp_path``."""
    given = {**arguments, "_ansible_check_mode": check, "_ansible_remote_tmp": str(tmp_path / "tmp")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode())
        patch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        with pytest.raises(SystemExit):
            module.main()
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said
