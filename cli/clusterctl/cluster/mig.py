"""`hardware_mig`: what it declares of each GPU of a host, checked against the profiles of the GPU model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustercheck.expect.mig import mig_profiles
from clusterctl.content import shared_module
from clusterctl.errors import ClusterctlError

SETTING = "hardware_mig"


@dataclass(frozen=True)
class DeclaredMig:
    """The layouts of a host's GPUs, in the form of plugins/module_utils/mig_layout.py."""

    host: str
    model: str
    rules: Sequence[Any] = ()

    def layout_of(self, gpu: int) -> str:
        """The layout of one GPU; empty where none is declared."""
        return str(shared_module("mig_layout").layout_of(self.rules, gpu))

    @property
    def by_gpu(self) -> Mapping[int, str]:
        """The layouts of the GPUs that are named by index."""
        return {gpu: self.layout_of(gpu) for rule in self.rules for gpu in rule.gpus or ()}

    @property
    def of_others(self) -> str:
        """The layout of GPUs that are not named by index."""
        every = [str(rule.layout) for rule in self.rules if rule.gpus is None]
        return every[-1] if every else ""

    def instances_of(self, layout: str) -> tuple[str, ...] | None:
        """The instances that a layout means on these GPUs; None is no MIG.

        Raises ClusterctlError where the GPU is to be filled, and the table does not know its model.
        """
        shared = shared_module("mig_layout")
        known = profiles(self.model)
        if known:
            return shared.instances(layout, known)  # type: ignore[no-any-return]
        if layout.startswith(shared.FILL):
            raise refused(
                self.host,
                f"how many {layout.removeprefix(shared.FILL)} fit on a GPU is not known for the model "
                f"{self.model or '(hardware_gpu_model is not set)'}",
                "Declare the number, such as 7x1g.10gb, or set hardware_gpu_model.",
            )
        return shared.listed(layout)  # type: ignore[no-any-return]


def profiles(model: str) -> Mapping[str, Any]:
    """The profiles of a GPU model; empty where the table does not know it, or no model is declared."""
    shared = shared_module("mig_layout")
    return {
        name: shared.Profile(name, one.size, one.starts, one.limit)
        for name, one in mig_profiles(model).items()
    }


def declared_mig(host: str, value: Any, model: str) -> DeclaredMig:
    """What a host's `hardware_mig` declares. Raises ClusterctlError (``inventory.mig``, exit 2).

    Layouts are placed on the GPU model where the table knows it; the node checks against its GPU again.
    """
    shared = shared_module("mig_layout")
    try:
        found = DeclaredMig(host, model, shared.parse(value))
        if known := profiles(model):
            for rule in found.rules:
                shared.instances(rule.layout, known)
    except shared.LayoutError as error:
        raise refused(host, str(error)) from None
    return found


def refused(host: str, what: str, hint: str = "") -> ClusterctlError:
    """The error that a declaration of a host is."""
    return ClusterctlError(
        f"{SETTING} of {host}: {what}", code="inventory.mig", where=f"{host}: {SETTING}", hint=hint
    )
