"""Each module documents exactly the arguments that it takes, with their types, defaults and choices."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from ansible.module_utils import basic
from tests.support.tree import ROOT

MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
KEYS = ("type", "required", "default", "choices", "elements")
# What an argument has where neither says otherwise.
UNSAID = {"type": "str", "required": False, "default": None, "choices": None, "elements": None}


class Asked(Exception):
    """A module has said what it takes."""


def taken(name: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """The argument_spec with which the module starts."""

    def init(_self: object, argument_spec: Mapping[str, Any], **_: object) -> None:
        raise Asked(argument_spec)

    module = importlib.import_module(f"ansible_collections.clusterctl.cluster.plugins.modules.{name}")
    monkeypatch.setattr(basic.AnsibleModule, "__init__", init)
    with pytest.raises(Asked) as asked:
        module.main()
    return asked.value.args[0]


def documented(name: str) -> Mapping[str, Any]:
    module = importlib.import_module(f"ansible_collections.clusterctl.cluster.plugins.modules.{name}")
    texts = yaml.safe_load(module.DOCUMENTATION)
    assert texts["module"] == name
    return texts["options"] or {}


def flat(options: Mapping[str, Any], inner: str, within: str = "") -> dict[str, dict[str, Any]]:
    """Every argument by its path, with what counts of it."""
    found: dict[str, dict[str, Any]] = {}
    for name, option in options.items():
        found[f"{within}{name}"] = {key: option.get(key, UNSAID[key]) for key in KEYS}
        found |= flat(option.get(inner) or {}, inner, f"{within}{name}.")
    return found


@pytest.mark.parametrize("name", MODULES)
def test_each_documented_thing_has_known_keys_alone(name: str) -> None:
    module = importlib.import_module(f"ansible_collections.clusterctl.cluster.plugins.modules.{name}")
    known = {*KEYS, "description", "suboptions", "returned", "sample"}
    returned = yaml.safe_load(module.RETURN) or {}
    for key, value in {**documented(name), **returned}.items():
        assert value.keys() <= known, key
        assert value["description"], key


@pytest.mark.parametrize("name", MODULES)
def test_documentation_and_arguments_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert flat(documented(name), "suboptions") == flat(taken(name, monkeypatch), "options")
