"""What the commands of `clusterctl images` have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import click
from rich.table import Table
from rich.text import Text

from clusterctl import console
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.errors import ExplainedError
from clusterctl.registry.images.outcome import BAD, TransferOutcome, TransferState
from clusterctl.registry.images.registries import Destination
from clusterctl.registry.oci.errors import stopped
from clusterctl.registry.oci.retry import CancelEvent
from clusterctl.rollout import tables

JOBS = 4

names_argument = click.argument("names", nargs=-1, metavar="[IMAGE]...")
jobs_option = click.option(
    "--jobs", type=click.IntRange(1, 32), default=JOBS, show_default=True, metavar="N",
    help="Blobs to transfer in parallel.",
)  # fmt: skip
to_option = click.option(
    "--to", default="", metavar="HOST:PORT", help="Use this registry instead of the cluster's own."
)
deep_option = click.option(
    "--deep", is_flag=True,
    help="Read what the registry already has, and replace blobs that it has lost or damaged.",
)  # fmt: skip


@contextlib.contextmanager
def stoppable() -> Iterator[CancelEvent]:
    """What ends all that is on its way: Ctrl-C and SIGTERM end the block within seconds, and say what stays.

    Raises ClusterctlError (``images.stopped``).
    """
    stop = CancelEvent()
    try:
        with terminated_like_interrupted():
            yield stop
    except KeyboardInterrupt:
        raise stopped() from None


def outcome_table(outcomes: Sequence[TransferOutcome]) -> Table:
    """Every image, what it is, and what became of it."""
    table = tables.new_table("image", "in the registry", "size", "CUDA", "driver from", "state")
    for one in outcomes:
        image = one.image
        style = "red" if one.state in BAD else "yellow" if one.state is TransferState.UNKNOWN else ""
        table.add_row(
            image.name,
            f"{image.target}{f':{image.tag}' if image.tag else ''}\n{image.digest}",
            size(image.size),
            image.cuda,
            image.minimum_driver,
            Text(one.state.value, style=style),
        )
    return table


def tell_failures(outcomes: Sequence[TransferOutcome]) -> None:
    """Why, for each image that is not as it should be."""
    for one in outcomes:
        if one.error is not None:
            tell_failure(one.image.name, one.error)


def tell_failure(name: str, error: ExplainedError) -> None:
    """Why one image is not as it should be."""
    console.tell(
        f"{name}: {error.what}", ("where:", error.where), ("hint: ", error.hint), ("code: ", error.code),
        style="bold red",
    )  # fmt: skip


def tell_who(destination: Destination) -> None:
    """Say where the registry was asked as somebody that no node is: what he may read, nodes may not."""
    if destination.not_as_nodes:
        console.tell(
            f"{destination.name} was asked {destination.not_as_nodes}, and not as nodes pull",
            (
                "hint: ",
                "registry_client_auth: robot with registry_client_robot asks as they do.",
            ),
        )


def size(amount: int) -> str:
    """Bytes as people say them."""
    return f"{amount / 1e9:.2f} GB" if amount >= 1e8 else f"{amount / 1e6:.1f} MB"
