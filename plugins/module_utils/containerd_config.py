# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""containerd's config.toml: where it looks for hosts.toml, and NVIDIA's runtime, read from its own mouth.

Nothing here rewrites TOML: what an operator wrote stays as he wrote it, comments and order included.
"""

from __future__ import annotations

import re

# The plugin that pulls for Kubernetes, by the version of the configuration's format.
PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.images"}
# The plugin that runs Kubernetes' containers, likewise.
RUNTIME_PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
ENABLE_CDI = re.compile(r"^[ \t]*enable_cdi[ \t]*=[ \t]*(true|false)[ \t]*$", re.MULTILINE)
BINARY = re.compile(r"""^[ \t]*BinaryName[ \t]*=[ \t]*["']([^"'\n]*)["']""", re.MULTILINE)
SYSTEMD_CGROUP = re.compile(r"^[ \t]*SystemdCgroup[ \t]*=[ \t]*true[ \t]*$", re.MULTILINE)
# All that Docker's package has in the file, besides comments: it is meant for Docker.
WITHOUT_CRI = re.compile(r"""^ *disabled_plugins *= *\[ *["']cri["'] *\] *$""", re.MULTILINE)
TABLE = re.compile(r"^[ \t]*\[+[ \t]*([^\]#]+?)[ \t]*\]+", re.MULTILINE)
CONFIG_PATH = re.compile(r"""^[ \t]*config_path[ \t]*=[ \t]*["']([^"'\n]*)["'].*$""", re.MULTILINE)
WORD = re.compile(r"""\.?[ \t]*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))""")


def format_version(text: str) -> int:
    """The format that a configuration says it has; 1 where it says nothing, as containerd takes it."""
    head = text[: match.start()] if (match := TABLE.search(text)) else text
    found = re.search(r"^[ \t]*version[ \t]*=[ \t]*(\d+)", head, re.MULTILINE)
    return int(found[1]) if found else 1


def default_version(containerd_version: str) -> int:
    """The format for a containerd that has no configuration yet, from ``containerd --version``."""
    found = re.search(r"\bv?(\d+)\.\d+", containerd_version)
    return 3 if found and int(found[1]) >= 2 else 2


def only_disables_cri(text: str) -> bool:
    """Whether the configuration is that of Docker's package, which only switches off Kubernetes' plugin."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return len(lines) == 1 and bool(WITHOUT_CRI.search(lines[0]))


def with_cri(text: str, version: int) -> str:
    """That configuration in this format, with the plugin switched on and comments as they were."""
    return WITHOUT_CRI.sub(f"version = {version}", text)


def registry_trees(dumped: str) -> list[str]:
    """The directories of hosts.toml trees in force, from ``containerd config dump``."""
    section = _section(dumped, *(f'plugins."{name}".registry' for name in PLUGINS.values()))
    found = CONFIG_PATH.search(section or "")
    return [tree for tree in found[1].split(":") if tree.startswith("/")] if found else []


def in_the_way(text: str) -> list[str]:
    """Tables of the old form, next to which containerd refuses to take a config_path."""
    names = [_name(match[1]) for match in TABLE.finditer(text)]
    found = set()
    for plugin in PLUGINS.values():
        prefix = f"plugins.{plugin}.registry."
        for name in names:
            kind, _, rest = name.removeprefix(prefix).partition(".")
            if name.startswith(prefix) and kind == "mirrors" and rest:
                found.add(f"registry.{kind}")
            elif name.startswith(prefix) and kind == "configs" and rest.endswith(".tls"):
                found.add("registry.configs.tls")
    return sorted(found)


def with_config_path(text: str, version: int, tree: str) -> str:
    """The configuration with this directory of hosts.toml trees, all else as it was.

    Raises ValueError for a format that has no such setting.
    """
    if version not in PLUGINS:
        raise ValueError(
            f"its format is version {version}, which knows no config_path; `containerd config migrate` "
            "prints it in a later one"
        )
    plugin = PLUGINS[version]
    line = f'config_path = "{tree}"'
    if not text.strip():
        return f'version = {version}\n\n[plugins."{plugin}".registry]\n  {line}\n'
    start, end = _bounds(text, f'plugins."{plugin}".registry')
    if start < 0:
        gap = "" if text.endswith("\n") else "\n"
        return f'{text}{gap}\n[plugins."{plugin}".registry]\n  {line}\n'
    body = text[start:end]
    if there := CONFIG_PATH.search(body):
        indent = there[0][: len(there[0]) - len(there[0].lstrip())]
        return text[:start] + CONFIG_PATH.sub(lambda _: indent + line, body, count=1) + text[end:]
    return f"{text[:start]}\n  {line}{body}{text[end:]}"


def runtime_binary(dumped: str, name: str) -> str | None:
    """The program of a runtime, from ``containerd config dump``; None if there is no such runtime."""
    tables = [f'plugins."{plugin}".containerd.runtimes.{name}' for plugin in RUNTIME_PLUGINS.values()]
    if _section(dumped, *tables) is None:
        return None
    found = BINARY.search(_section(dumped, *(f"{table}.options" for table in tables)) or "")
    return found[1] if found else ""


def cdi_state(dumped: str) -> str:
    """Whether the CRI plugin takes CDI devices: true, false, empty where it knows none (before 1.7)."""
    # From 2.0 on the older name is that of the plugin's server, which knows nothing of devices.
    tables = (f'plugins."{plugin}"' for plugin in reversed(RUNTIME_PLUGINS.values()))
    found = ENABLE_CDI.search(_section(dumped, *tables) or "")
    return found[1] if found else ""


def with_runtime(text: str, version: int, name: str, binary: str, dumped: str) -> str:
    """The configuration with one runtime more, whose cgroups are managed as runc's are, all else as it was.

    A file that names any runtime has no runtime by default: runc is named too, or CRI does not start.
    Raises ValueError for a format that is not known.
    """
    runtimes = f'plugins."{_runtime_plugin(version)}".containerd.runtimes'
    tables = [f'plugins."{each}".containerd.runtimes.runc.options' for each in RUNTIME_PLUGINS.values()]
    systemd = bool(SYSTEMD_CGROUP.search(_section(dumped, *tables) or ""))
    named = _section(text, f"{runtimes}.runc", f"{runtimes}.runc.options") is not None
    lines = [] if named else _runtime(f"{runtimes}.runc", "", systemd)
    return _appended(text, version, [*lines, *_runtime(f"{runtimes}.{name}", binary, systemd)])


def _runtime(table: str, binary: str, systemd: bool) -> list[str]:
    """The lines of a runtime."""
    return [
        f"[{table}]",
        '  runtime_type = "io.containerd.runc.v2"',
        f"  [{table}.options]",
        *([f'    BinaryName = "{binary}"'] if binary else []),
        *(["    SystemdCgroup = true"] if systemd else []),
    ]


def with_cdi(text: str, version: int) -> str:
    """The configuration with CDI devices enabled. Raises ValueError for a format that is not known."""
    table = f'plugins."{_runtime_plugin(version)}"'
    start, end = _bounds(text, table)
    if start < 0:
        return _appended(text, version, [f"[{table}]", "  enable_cdi = true"])
    body = text[start:end]
    if ENABLE_CDI.search(body):
        return text[:start] + ENABLE_CDI.sub("  enable_cdi = true", body, count=1) + text[end:]
    return f"{text[:start]}\n  enable_cdi = true{body}{text[end:]}"


def _runtime_plugin(version: int) -> str:
    if version not in RUNTIME_PLUGINS:
        raise ValueError(
            f"its format is version {version}, and NVIDIA's runtime is set in 2 and 3; "
            "`containerd config migrate` prints it in a later one"
        )
    return RUNTIME_PLUGINS[version]


def _appended(text: str, version: int, lines: list[str]) -> str:
    """Tables behind what is there already."""
    before = text if text.strip() else f"version = {version}\n"
    gap = "" if before.endswith("\n") else "\n"
    return f"{before}{gap}\n" + "".join(f"{line}\n" for line in lines)


def _name(table: str) -> str:
    """A table's name with its quotes gone."""
    return ".".join(
        next(part for part in match.groups() if part is not None) for match in WORD.finditer(table)
    )


def _bounds(text: str, table: str) -> tuple[int, int]:
    """Where a table's body starts (after its head) and ends; -1 if there is no such table."""
    wanted = _name(table)
    for match in TABLE.finditer(text):
        if _name(match[1]) == wanted and "[[" not in match[0]:
            following = TABLE.search(text, match.end())
            return match.end(), following.start() if following else len(text)
    return -1, -1


def _section(text: str, *tables: str) -> str | None:
    for table in tables:
        start, end = _bounds(text, table)
        if start >= 0:
            return text[start:end]
    return None
