"""What can be declared of Harbor: held against itself, known to the settings, shown on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterctl.cluster import settings
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.settings.options import Option, catalogue
from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.harbor.fields import size_words
from clusterlab.simulated.harbor.api.server import StandIn

from .declared_site import call, declare, refusal


@pytest.mark.parametrize(
    ("declared", "said"),
    [("1536M", "1536M"), ("2T", "2T"), (1, "1"), ("1024K", "1M"), ("unlimited", "unlimited")],
)
def test_a_quota_is_said_as_one_writes_it(declared: str, said: str) -> None:
    raw = {"registry_projects": [{"name": "a", "quota": declared}]}
    assert size_words(DeclaredHarbor.model_validate(raw).registry_projects[0].quota) == said


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("registry_projects", [{"name": "a", "proxy_of": "up"}], "project a is a proxy of up"),
        ("registry_projects", [{"name": "a"}, {"name": "a"}], "registry_projects has a twice"),
        ("registry_projects", [{"name": "a", "quota": "0"}], "registry_projects[a].quota: write unlimited"),
        (
            "registry_projects",
            [{"name": "a", "retention": [{"keep": "always", "count": 3}]}],
            "always has none",
        ),
        ("registry_schedules", {"gc": {"cron": "0 3 * * 0"}}, "registry_schedules.gc.cron: write six fields"),
        ("registry_replications", [{"name": "r"}], "write either source or destination"),
        ("registry_robots", [{"name": "r", "permissions": []}], "registry_robots[r].permissions"),
        (
            "registry_preheat",
            {
                "instances": [
                    {"name": n, "vendor": "kraken", "endpoint": f"http://{n}", "default": True} for n in "ab"
                ]
            },
            "one instance may be the default, and these are: a, b",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(
    site: Path, harbor: StandIn, setting: str, value: Any, said: str
) -> None:
    declare(site, {setting: value, "registry_api_url": harbor.url})
    error = refusal(call(site, "plan"))
    assert error.code == "registry.declared"
    assert said in error.what
    assert not harbor.calls


def test_the_settings_know_every_field_of_what_can_be_declared() -> None:
    """The settings' own schema gives lines, the models give sense; they must know the same fields."""
    schema = DeclaredHarbor.model_json_schema()
    known = catalogue()
    for name, part in schema["properties"].items():
        assert fields(part, schema) == names(known[name].options), name


def test_the_example_of_the_page_is_valid(repository: Path, site: Path, harbor: StandIn) -> None:
    page = (repository / "docs/harbor.md").read_text(encoding="utf-8")
    example = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    assert set(example) == set(DeclaredHarbor.model_fields)
    declare(site, {**example, "registry_api_url": harbor.url})
    assert settings.check(ClusterDirectory(site)) == []
    secret = site / ".clusterctl/secrets/docker-hub.password"
    secret.write_text("x\n")
    secret.chmod(0o600)
    assert call(site, "plan").stdout.endswith("12 objects: 12 to create\n")


def fields(part: dict[str, Any], schema: dict[str, Any]) -> Any:
    """The fields of a model as nested mappings, from its JSON schema."""
    if "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    for inner in (part.get("items"), *part.get("anyOf", ())):
        if inner and ("$ref" in inner or "items" in inner) and inner.get("type") != "null":
            return fields(inner, schema)
    return {name: fields(inner, schema) for name, inner in part.get("properties", {}).items()}


def names(options: Any) -> Any:
    """The same of the settings."""
    return {
        name: names(inner.options if isinstance(inner, Option) else {}) for name, inner in options.items()
    }
