"""Every command, argument and option, from Click's tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from clusterctl.cluster.access import password_options
from clusterctl.reference.markdown import code, page, table

INTRODUCTION = """\
`clusterctl -C DIR COMMAND ...` works on the cluster directory DIR; without `-C` on the current one, or
on the nearest parent that is one. Results go to standard output, messages to standard error. `--json`
prints one JSON object per line.

| exit code | means |
|---|---|
| 0 | success |
| 1 | a check or a host failed |
| 2 | invalid request: usage, settings |
| 3 | incomplete: a check could not run, or a busy host was skipped |
| 130 | interrupted |

What an error's code means: [troubleshooting](../troubleshooting.md), or `clusterctl explain CODE`."""

PASSWORDS = """\
## Passwords

Commands that log in take these, if SSH keys or sudo without a password do not suffice. Passwords never
appear in arguments, environment, logs or files that others can read."""


def render(program: click.Group) -> str:
    """The page."""
    root = click.Context(program, info_name="clusterctl")
    shared = _password_parameters()
    sections = [_section(context, shared) for context in _leaves(root)]
    passwords = table(("option", "meaning"), (_row(root, parameter) for parameter in shared))
    names = ", ".join(f"[{name}](#{_anchor(name)})" for name in (_name(c) for c in _leaves(root)))
    return page("Commands", INTRODUCTION, names, *sections, PASSWORDS, passwords)


def _leaves(context: click.Context) -> Iterator[click.Context]:
    """The commands that do something, in the order of the help."""
    group = context.command
    if not isinstance(group, click.Group):
        yield context
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            yield from _leaves(click.Context(command, parent=context, info_name=name))


def _section(context: click.Context, shared: list[click.Parameter]) -> str:
    command = context.command
    shown = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    own = [option for option in shown if not _is_in(option, shared)]
    takes_passwords = any(_is_in(parameter, shared) for parameter in command.params)
    parts = [
        f"## {_name(context)}",
        f"```text\n{' '.join((context.command_path, *command.collect_usage_pieces(context)))}\n```",
        "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")),
        table(("option", "meaning"), (_row(context, option) for option in own)),
        "Takes the [password options](#passwords)." if takes_passwords else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _row(context: click.Context, parameter: click.Parameter) -> tuple[str, str]:
    option, meaning = parameter.get_help_record(context) or ("", "")
    return code(option), meaning


def _name(context: click.Context) -> str:
    return context.command_path.removeprefix("clusterctl ")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _is_in(parameter: click.Parameter, some: list[click.Parameter]) -> bool:
    return any(parameter.opts == one.opts for one in some)


def _password_parameters() -> list[click.Parameter]:
    def nothing(**_: Any) -> None: ...

    bearer: Callable[..., Any] = password_options(nothing)
    parameters: list[click.Parameter] = getattr(bearer, "__click_params__", [])
    return parameters[::-1]
