"""`clusterctl report RUN`: the report of a run again, in any of its forms."""

from __future__ import annotations

import errno
import os
import stat
from functools import partial
from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.bounded_file import directory_without_links
from clusterctl.cluster.directory import find_cluster_directory
from clusterctl.cluster.state_files import write_replacement
from clusterctl.cluster.trust import MAX_LINKS, follow_own_links, trusted_users
from clusterctl.errors import ClusterctlError
from clusterctl.report import files, terminal
from clusterctl.runs.store import RunStore

FORMATS = ("table", *files.REPORTS, "json")


@click.command("report")
@click.argument("run", default="last")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="Its form."
)
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to FILE instead of the terminal."
)
@click.pass_obj
def command(named: Path | None, run: str, form: str, output: Path | None) -> None:
    """Render the report of RUN: an id, a unique prefix of one, or `last` (the last with a result)."""
    directory = find_cluster_directory(named)
    store = RunStore(directory)
    if run == "last":
        judged = files.judged(store.list())
        chosen = judged[-1] if judged else store.get(run)
    else:
        chosen = store.get(run)
    if form == "json":
        text = "".join(files.pieces(files.load_json(chosen)))
    elif form == "table":
        colour = output is None and console.has_colours()
        text = files.render(chosen, partial(terminal.render, colour=colour))
    else:
        text = files.render(chosen, lambda document: "".join(files.REPORTS[form][1](document)))
    if output is None:
        (console.write_rendered if form == "table" else console.write)(text)
        return
    try:
        _write(output, text)
    except OSError as error:
        raise ClusterctlError(
            f"the report cannot be written: {error.strerror}", code="report.not-written", where=str(output)
        ) from error
    console.say(f"written: {output}")


def _write(output: Path, text: str) -> None:
    """Whole or not at all, for who reads along; what is there and no file (a pipe, a device), and what is
    open already (/dev/stdout, /dev/fd/N), is written to as it is.

    A link is followed if it is the operator's own: one of another user, as in /tmp, names a file of the
    operator's that is to be overwritten. A pipe of another user is one that nobody may ever read.
    """
    target = output
    for _ in range(MAX_LINKS):
        parent = follow_own_links(target.parent)
        with directory_without_links(parent) as here:
            leads_to = _write_in(here, parent / target.name, text)
        if leads_to is None:
            return
        target = parent / leads_to
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _write_in(directory: int, target: Path, text: str) -> Path | None:
    """Write to what is there, which is opened once, or tell where a link of the operator's leads.

    By descriptors: others may exchange what lies in a directory that they can write. Raises OSError.
    """
    try:
        found = os.open(target.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        write_replacement(_by_descriptor(directory) / target.name, text, mode=None)
        return None
    try:
        state = os.fstat(found)
        is_link, is_pipe = stat.S_ISLNK(state.st_mode), stat.S_ISFIFO(state.st_mode)
        if (is_link or is_pipe) and state.st_uid not in trusted_users():
            kind = "link" if is_link else "pipe"
            raise OSError(errno.EACCES, f"{target} is a {kind} that another user made")
        is_kernels = is_link and target.is_relative_to("/proc")  # to what is open, whatever its text says
        if is_link and not is_kernels:
            return Path(os.readlink("", dir_fd=found))
        if stat.S_ISREG(state.st_mode):
            write_replacement(_by_descriptor(directory) / target.name, text, mode=None)
            return None
        way = target if is_kernels else _by_descriptor(found)
        with os.fdopen(os.open(way, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8") as stream:
            stream.write(text)
        return None
    finally:
        os.close(found)


def _by_descriptor(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")
