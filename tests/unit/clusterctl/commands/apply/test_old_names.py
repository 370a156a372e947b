"""A renamed command or option keeps working, and says its new name on standard error."""

from __future__ import annotations

import contextlib

import click
import pytest
from tests.support.image_builds import BASE, NOTEBOOK

from clusterctl.cluster import scan
from clusterctl.commands.images import build
from clusterctl.errors import ClusterctlError
from clusterctl.main import cli

from .played import lease_of_another

RUN = lease_of_another()["run"]
# What the example builds from a file beside the settings, which no cluster here has.
FROM_FILE = ("requirements_file", "jupyterlab")
# By the old name: how it is called, its exit code and what it says as under the new name, the new name.
OLD = {
    "clusterctl unlock": (("unlock", RUN, "--yes"), 0, f"freed of {RUN}: gpu01", "clusterctl leases release"),
    "clusterctl hosts forget": (
        ("hosts", "forget", "gpu02", "--yes"),
        0,
        "gpu02 is removed",
        "clusterctl hosts remove",
    ),
    "clusterctl validate --check": (("validate", "--list", "--check", "xid"), 0, "xid", "--checks"),
    "clusterctl images build --anew": (("images", "build", "--anew"), 1, "rebuild: True", "--rebuild"),
}  # fmt: skip


@pytest.fixture
def built(listing, monkeypatch):
    """One image to build, whose build says how it was asked and fails."""

    def refuse(*_, rebuild):
        raise ClusterctlError(f"rebuild: {rebuild}", code="images.build")

    for variables in listing["_meta"]["hostvars"].values():
        variables["image_builds"] = [{k: v for k, v in NOTEBOOK.items() if k not in FROM_FILE}]
    monkeypatch.setattr(scan, "forget_keys", lambda *_: False)  # asks ssh
    monkeypatch.setattr(build, "_made", refuse)
    monkeypatch.setattr(build, "_base", lambda *_: BASE)
    monkeypatch.setattr(build, "writable", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(build.Engine, "require", lambda _: None)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("old", OLD)
def test_an_old_name_works_and_says_the_new_one(old, clusterctl, ansible, capsys):
    arguments, exit_code, says, new = OLD[old]
    ansible.holds = {"gpu01": lease_of_another()}
    assert clusterctl(*arguments) == exit_code
    told = capsys.readouterr()
    assert says in told.out + told.err
    assert "deprecated" in told.err
    assert old.rpartition(" ")[2].strip("-") in told.err
    assert f"Use {new}." in told.err
    assert "deprecated" not in told.out


def test_every_old_name_is_tried():
    assert set(deprecated(click.Context(cli, info_name="clusterctl"))) == set(OLD)


def deprecated(context):
    """Commands and options that say that they are deprecated, as they are typed."""
    command = context.command
    if command.deprecated:
        yield context.command_path
    for option in command.params:
        if getattr(option, "deprecated", False):
            yield f"{context.command_path} {option.opts[0]}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from deprecated(click.Context(command.get_command(context, name), context, name))
