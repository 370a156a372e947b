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
    trusted = trusted_templates({**defaults, **ours})
    made: Any = Templar(DataLoader(), variables={**trusted, **variables}).template(trusted[name])
    return made


def trusted_templates(value: Any) -> Any:
    """A value of a role whose texts Ansible takes for templates, as it does those of a play."""
    try:
        from ansible.template import trust_as_template
    except ImportError:
        return value
    return _trusted(value, trust_as_template)


def _trusted(value: Any, trust: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _trusted(each, trust) for key, each in value.items()}
    if isinstance(value, list):
        return [_trusted(each, trust) for each in value]
    return trust(value) if isinstance(value, str) else value
