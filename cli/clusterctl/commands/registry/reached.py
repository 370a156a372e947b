"""The cluster's Harbor, reached: how each command of `clusterctl registry` starts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.opened import opened
from clusterctl.registry.harbor.change import Deferred
from clusterctl.registry.harbor.client import Client, Refused
from clusterctl.registry.harbor.reconcile import failed
from clusterctl.registry.harbor.settings import HarborSettings, harbor_settings
from clusterctl.registry.harbor.site import Site
from clusterctl.registry.harbor.vault import Vault

prove_option = click.option(
    "--prove-robots",
    "prove",
    is_flag=True,
    help="Log in as each robot; if its secret is refused, generate a new one.",
)
adopt_option = click.option(
    "--adopt",
    is_flag=True,
    help="Take over declared robots that were not created here: their new secret locks out present users.",
)
prune_option = click.option(
    "--prune", is_flag=True, help="Also delete undeclared objects of declared kinds and projects."
)


def settings(named: Path | None) -> HarborSettings:
    """What is declared, and where. Raises ClusterctlError (exit 2)."""
    return harbor_settings(opened(named))


def _wait(stop: threading.Event) -> Callable[[float], None]:
    """Wait until the next try, or until nobody wants one; say so once, for it may take a while."""
    lines: list[str] = []

    def wait(seconds: float) -> None:
        if not lines:
            lines.append("Harbor does not answer, or asks to wait; trying again")
            console.say(lines[0])
        stop.wait(seconds)

    return wait


@contextlib.contextmanager
def reached(
    found: HarborSettings, *, prune: bool = False, prove: bool = False, adopt: bool = False
) -> Iterator[Site]:
    """Harbor, for as long as the block lasts. Raises ClusterctlError (``registry.*``)."""
    stop = threading.Event()
    with Client(found.access, wait=_wait(stop), stop=stop) as client:
        site = Site(
            client,
            Vault(found.vault_file),
            found.cluster.root,
            secret_command=found.secret_command,
            prune=prune,
            prove=prove,
            adopt=adopt,
        )
        try:
            yield site
        except Refused as refused:
            raise failed(site, refused) from refused
        except Deferred as deferred:
            raise failed(site, Refused("a look", 404, str(deferred))) from deferred
