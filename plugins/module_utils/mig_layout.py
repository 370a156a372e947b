# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What `hardware_mig` declares of each GPU, and where instances fit: node and clusterctl decide alike.

A layout is text: ``disabled``, ``enabled`` (MIG without an instance), ``all-1g.10gb`` (as many as fit), or
instances such as ``2x3g.40gb``. Nothing here asks a GPU or imports anything of Ansible.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

DISABLED = "disabled"
ENABLED = "enabled"
FILL = "all-"
EVERY = "all"
MAX_GPUS = 64
MAX_INSTANCES = 16
PROFILE = re.compile(r"(?:\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb(?:[+-][a-z]+(?:\.[a-z]+)*)?")
# Of mig-parted, whose own word for what is not a GPU's own profile comes with a filter by PCI device.
ENTRY_KEYS = {"devices", "mig-enabled", "mig-devices"}
WORDS = "Write `disabled`, `all-1g.10gb`, or instances as `nvidia-smi mig -lgip` names them: `2x3g.40gb`."


class LayoutError(ValueError):
    """A declaration that means no layout, or one that does not fit; the text says which part."""


class Profile(NamedTuple):
    """A way to cut an instance out of a GPU: memory slices that it takes, and where it may start."""

    name: str
    size: int
    starts: tuple[int, ...]
    limit: int


class Instance(NamedTuple):
    """A GPU instance, and the memory slice that it starts at."""

    profile: str
    start: int


class Rule(NamedTuple):
    """A layout of some GPUs, by index; None is every GPU."""

    gpus: tuple[int, ...] | None
    layout: str


def parse(value: Any) -> tuple[Rule, ...]:
    """The rules of a `hardware_mig`: the last that names a GPU counts. Raises LayoutError."""
    if value is None or value == "":
        return ()
    if isinstance(value, Mapping) and "mig-configs" in value:
        value = _only_config(value["mig-configs"])
    if isinstance(value, Mapping):
        rules = [Rule(_gpus(key), _layout(layout)) for key, layout in value.items()]
        return tuple(sorted(rules, key=lambda rule: rule.gpus is not None))
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        return tuple(_entry(one) for one in value)
    return (Rule(None, _layout(value)),)


def layout_of(rules: Sequence[Rule], gpu: int) -> str:
    """The layout of one GPU; empty where none is declared."""
    found = [rule.layout for rule in rules if rule.gpus is None or gpu in rule.gpus]
    return found[-1] if found else ""


def shown(profiles: Iterable[str]) -> str:
    """Instances as a layout."""
    parts = (f"{count}x{name}" if count > 1 else name for name, count in sorted(Counter(profiles).items()))
    return ", ".join(parts) or ENABLED


def listed(layout: str) -> tuple[str, ...] | None:
    """The instances of a layout that counts them; None for ``disabled`` and for one that fills the GPU."""
    if layout == DISABLED or layout.startswith(FILL):
        return None
    return tuple(_counted(layout)) if layout != ENABLED else ()


def instances(layout: str, profiles: Mapping[str, Profile]) -> tuple[str, ...] | None:
    """The instances that a layout means on a GPU with these profiles; None is no MIG. Raises LayoutError."""
    if layout == DISABLED:
        return None
    name = layout.removeprefix(FILL)
    wanted = listed(layout)
    if wanted is None:
        wanted = (name,) * _known(name, profiles).limit
    place(wanted, profiles)
    return wanted


def place(
    wanted: Sequence[str], profiles: Mapping[str, Profile], kept: Sequence[Instance] = ()
) -> tuple[Instance, ...]:
    """Where the wanted instances go next to those that are kept. Raises LayoutError where they do not fit."""
    for name, count in Counter([*wanted, *(one.profile for one in kept)]).items():
        limit = _known(name, profiles).limit
        if count > limit:
            raise LayoutError(f"{count} instances of {name}: this GPU has room for {limit}")
    taken = frozenset(part for one in kept for part in _slices(one, profiles))
    order = sorted(wanted, key=lambda name: (-profiles[name].size, len(profiles[name].starts), name))
    found = next(_placements(tuple(order), profiles, taken), None)
    if found is None:
        raise LayoutError(
            f"{shown([*wanted, *(one.profile for one in kept)])} do not fit on one GPU together"
        )
    return found


def change(
    there: Sequence[Instance], wanted: Sequence[str], profiles: Mapping[str, Profile]
) -> tuple[tuple[Instance, ...], tuple[Instance, ...]]:
    """What is kept of the instances that are there, as many as can be, and what is created next to them.

    Raises LayoutError where the wanted ones do not fit at all.
    """
    place(wanted, profiles)
    for number in range(min(len(there), len(wanted)), -1, -1):
        for kept in combinations(there, number):
            missing = Counter(wanted)
            missing.subtract(one.profile for one in kept)
            if any(count < 0 for count in missing.values()):
                continue
            try:
                return kept, place(list(missing.elements()), profiles, kept)
            except LayoutError:
                continue
    raise AssertionError("an empty GPU has room for what fits")  # place() above has raised


def _placements(
    names: tuple[str, ...], profiles: Mapping[str, Profile], taken: frozenset[int], least: int = 0
) -> Iterator[tuple[Instance, ...]]:
    if not names:
        yield ()
        return
    first, *rest = names
    for start in profiles[first].starts:
        one = Instance(first, start)
        slices = _slices(one, profiles)
        if start < least or taken & slices:
            continue
        after = start + 1 if rest[:1] == [first] else 0
        for others in _placements(tuple(rest), profiles, taken | slices, after):
            yield (one, *others)


def _slices(one: Instance, profiles: Mapping[str, Profile]) -> frozenset[int]:
    return frozenset(range(one.start, one.start + profiles[one.profile].size))


def _known(name: str, profiles: Mapping[str, Profile]) -> Profile:
    if name not in profiles:
        raise LayoutError(f"this GPU has no profile {name}: it has {', '.join(profiles) or 'none'}")
    return profiles[name]


def _layout(value: Any) -> str:
    """One GPU's layout in canonical form."""
    if value is False or value is True:
        raise LayoutError(f"YAML reads that as {str(value).lower()}. {WORDS}")
    if isinstance(value, Mapping):
        return _of_counts(value)
    if isinstance(value, list):
        if not value:
            raise LayoutError(f"an empty list names no instance. {WORDS}")
        value = ", ".join(str(one) for one in value)
    if not isinstance(value, str):
        raise LayoutError(f"{str(value)[:40]!r} is not a layout. {WORDS}")
    text = value.strip()
    if text in (DISABLED, ENABLED):
        return text
    if text in (f"{FILL}{DISABLED}", f"{FILL}{ENABLED}"):
        return text.removeprefix(FILL)
    if text.startswith(FILL) and PROFILE.fullmatch(text.removeprefix(FILL)):
        return text
    return shown(_counted(text))


def _counted(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        word = re.sub(r"\s+", "", part)
        match = re.fullmatch(rf"(?:(\d{{1,2}})x)?({PROFILE.pattern})", word)
        if match is None or match[1] == "0":
            raise LayoutError(f"{part.strip()[:40]!r} is not a MIG instance. {WORDS}")
        found += [match[2]] * int(match[1] or 1)
    if len(found) > MAX_INSTANCES:
        raise LayoutError(f"{len(found)} instances: no GPU has room for more than {MAX_INSTANCES}")
    return found


def _of_counts(counts: Mapping[Any, Any]) -> str:
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MAX_INSTANCES:
            raise LayoutError(f"{str(count)[:40]!r} instances of {str(name)[:40]}: write a number above 0")
    return (
        shown(_counted(", ".join(f"{count}x{name}" for name, count in counts.items()))) if counts else ENABLED
    )


def _gpus(value: Any) -> tuple[int, ...] | None:
    """GPU indices of a key (``0``, ``0-3``, ``0,2``) or of mig-parted's list; None is every GPU."""
    if value == EVERY:
        return None
    words = value if isinstance(value, list) else str(value).split(",")
    found: list[int] = []
    for word in words:
        match = re.fullmatch(r"\s*(\d{1,2})(?:\s*-\s*(\d{1,2}))?\s*", str(word))
        last = int(match[2] or match[1]) if match else -1
        if match is None or not int(match[1]) <= last < MAX_GPUS:
            raise LayoutError(f"{str(word)[:40]!r} is not an index of a GPU. Write 0, `0-3`, `0,2` or `all`.")
        found += range(int(match[1]), last + 1)
    return tuple(dict.fromkeys(found))


def _entry(entry: Mapping[str, Any]) -> Rule:
    """One entry of a configuration of mig-parted."""
    if "device-filter" in entry:
        raise LayoutError(
            "`device-filter` is not read: declare hardware_mig for the group of hosts with that GPU"
        )
    if not {"devices", "mig-enabled"} <= set(entry) <= ENTRY_KEYS:
        raise LayoutError(f"an entry of mig-parted has {', '.join(sorted(ENTRY_KEYS))}, and nothing else")
    if not isinstance(entry["mig-enabled"], bool):
        raise LayoutError("`mig-enabled` is true or false")
    made = entry.get("mig-devices") or {}
    if not isinstance(made, Mapping) or (made and not entry["mig-enabled"]):
        raise LayoutError("`mig-devices` is a mapping of profiles to numbers, where `mig-enabled` is true")
    return Rule(_gpus(entry["devices"]), _of_counts(made) if entry["mig-enabled"] else DISABLED)


def _only_config(configs: Any) -> Any:
    if not isinstance(configs, Mapping) or len(configs) != 1:
        raise LayoutError("`mig-configs` must have one configuration: that of these hosts")
    return next(iter(configs.values()))
