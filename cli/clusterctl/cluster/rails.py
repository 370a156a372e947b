"""`hardware_rails`: the adapters that carry compute, by the names that the kernel gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from clustercheck.parse.hca_list import parse_hca_list

IB_HCA = "NCCL_IB_HCA"
MAX_RAILS = 32  # adapters that NCCL uses [NCCL, environment variables: NCCL_IB_HCA]
MAX_PORTS = 2  # of an adapter
_RAIL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}(:[1-9][0-9]{0,2})?")


def refuse_rail(text: str) -> tuple[str, str] | None:
    """Why this is no adapter's name, and a hint; None if it is one."""
    if _RAIL.fullmatch(text):
        return None
    hint = "Name adapters as /sys/class/infiniband does, a port of one after a colon: mlx5_0, mlx5_4:1."
    return f"{text[:80]!r} is not the name of an adapter", hint


def give_rails(rails: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of ranks with NCCL_IB_HCA of the rails, where it is not set.

    Raises ValueError where NCCL_IB_HCA leaves one of the rails out.
    """
    if not rails:
        return dict(environment)
    chosen = parse_hca_list(environment.get(IB_HCA, ""))
    if chosen is None:
        return {IB_HCA: f"={','.join(rails)}", **environment}
    for rail in rails:
        name, _, port = rail.partition(":")
        ports = [int(port)] if port else range(1, MAX_PORTS + 1)
        if not any(chosen.selects(name, number) for number in ports):
            raise ValueError(f"{IB_HCA}={environment[IB_HCA]} leaves out {rail} of hardware_rails")
    return dict(environment)
