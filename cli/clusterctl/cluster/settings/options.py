"""Every setting there is: the roles' argument_specs, and the options of the site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from clusterctl.content import content_root
from clusterctl.errors import ClusterctlError

SITE_OPTIONS = Path(__file__).resolve().parent.parent / "site_options.yml"
SITE_PREFIX = "site_"
SECRET_WORDS = ("password", "passphrase", "secret", "token", "_pass")


@dataclass(frozen=True)
class Option:
    """One setting, in the words of Ansible's argument specifications."""

    name: str
    type: str = "str"
    choices: tuple[Any, ...] = ()
    elements: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)
    required: bool = False
    default: Any = None
    secret: bool = False
    description: str = ""
    owner: str = ""

    @property
    def shown_choices(self) -> tuple[Any, ...]:
        """The choices to name. True and False next to true and false are how Ansible writes booleans."""
        return tuple(
            choice
            for choice in self.choices
            if not (choice in ("True", "False") and str(choice).lower() in self.choices)
        )

    @property
    def element(self) -> Option:
        """What each item of a list must be."""
        return Option(
            self.name, self.elements or "raw", self.choices, options=self.options, secret=self.secret
        )


@cache
def catalogue() -> Mapping[str, Option]:
    """Every setting by name, aliases too. Raises ClusterctlError (``content.*``) for a broken install."""
    known = _options(_load(SITE_OPTIONS).get("options", {}), "site")
    for path in sorted((content_root() / "roles").glob("*/meta/argument_specs.yml")):
        specs = _load(path).get("argument_specs", {})
        for entry_point in specs.values():
            known.update(_options(entry_point.get("options") or {}, path.parent.parent.name))
    profiles = profile_names()
    if profiles and "hardware_profile" in known:
        site = known["hardware_profile"]
        known["hardware_profile"] = Option(
            site.name, "str", ("", *profiles), description=site.description, owner=site.owner
        )
    return known


def profile_names() -> tuple[str, ...]:
    """The hardware that validation knows, by name."""
    import clustercheck.expect  # noqa: PLC0415 - only its place is wanted

    return tuple(sorted(path.stem for path in Path(clustercheck.expect.__path__[0]).glob("profiles/*.yml")))


def is_secret(name: str) -> bool:
    """True for names whose values no message may show."""
    return any(word in name.lower() for word in SECRET_WORDS)


def _options(declared: Mapping[str, Mapping[str, Any]], owner: str) -> dict[str, Option]:
    known = {}
    for name, raw in declared.items():
        spec = raw or {}
        described = spec.get("description", "")
        option = Option(
            name=name,
            type=str(spec.get("type", "str")),
            choices=tuple(spec.get("choices") or ()),
            elements=str(spec.get("elements", "")),
            options=_options(spec.get("options") or {}, owner),
            required=bool(spec.get("required", False)),
            default=spec.get("default"),
            secret=bool(spec.get("no_log", False)) or is_secret(name),
            description=" ".join(described) if isinstance(described, list) else str(described),
            owner=owner,
        )
        for word in (name, *(spec.get("aliases") or ())):
            known[word] = option
    return known


def _load(path: Path) -> dict[str, Any]:
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - a safe loader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ClusterctlError(
            f"the list of settings cannot be read: {' '.join(str(error).split())}",
            code="content.settings",
            where=str(path),
            hint="Install clusterctl again.",
        ) from error
    return loaded if isinstance(loaded, dict) else {}


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
