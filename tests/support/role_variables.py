"""What a role's vars/main.yml makes of settings: templated here, without a host and without a play."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar


def templated(repository: Path, role: str, name: str, variables: dict[str, Any]) -> Any:
    """A variable of a role's vars; ``variables`` are the settings and facts that differ from its defaults."""
    defaults, ours = (
        yaml.safe_load((repository / "roles" / role / name / "main.yml").read_text(encoding="utf-8"))
        for name in ("defaults", "vars")
    )
    try:
        from ansible.template import trust_as_template
    except ImportError:
        trusted = {**defaults, **ours}
    else:
        trusted = _trusted({**defaults, **ours}, trust_as_template)
    made: Any = Templar(DataLoader(), variables={**trusted, **variables}).template(trusted[name])
    return made


def _trusted(value: Any, trust: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _trusted(each, trust) for key, each in value.items()}
    if isinstance(value, list):
        return [_trusted(each, trust) for each in value]
    return trust(value) if isinstance(value, str) else value
