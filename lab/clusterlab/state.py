"""What this lab consists of, in `.lab/state.json`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable
from clusterctl.cluster.state_files import replace_file
from clusterctl.cluster.state_reading import read_json
from clusterctl.cluster.trust import require_trusted, require_trusted_place
from clusterctl.errors import EXIT_INCOMPLETE, ClusterctlError
from clusterlab.names import LABEL_LAB, Names

VERSION = 1
Role = Literal["gpu", "registry", "depot"]
Registry = Literal["embedded", "harbor"]


class StateRecord(BaseModel):
    """A part of the state file: unknown keys are refused, so that a file of another version is noticed."""

    model_config = ConfigDict(extra="forbid")


class LabNode(StateRecord):
    """One host of the lab."""

    name: str
    role: Role
    address: str
    image: str


class InjectedFault(StateRecord):
    """A fault that is in place, or whose injection was started. ``undo`` is what its ``clear`` needs."""

    node: str
    kind: str
    gpu: int | None = None
    peer: str | None = None
    since: str
    state: Literal["being injected", "in place"] = "in place"
    undo: dict[str, str] = Field(default_factory=dict)


class LabState(StateRecord):
    """The whole lab.

    ``root`` is the directory that ``suffix`` was made of; ``written`` maps files of the cluster directory
    to the SHA-256 that we gave them.
    """

    version: int = VERSION
    suffix: str
    root: str = ""
    system: str
    hardware: str
    registry: Registry = "embedded"
    subnet: str = ""
    nodes: list[LabNode] = Field(default_factory=list)
    faults: list[InjectedFault] = Field(default_factory=list)
    written: dict[str, str] = Field(default_factory=dict)

    def node(self, name: str) -> LabNode | None:
        """The host of that name, or None."""
        return next((node for node in self.nodes if node.name == name), None)

    def require_host(self, name: str) -> LabNode:
        """The host of that name, the depot left out. Raises ClusterctlError (``lab.unknown-node``)."""
        node = self.node(name)
        if node is None or node.role == "depot":
            raise ClusterctlError(
                f"the lab has no host {name!r}",
                code="lab.unknown-node",
                hint=f"It has: {', '.join(host.name for host in self.hosts)}.",
            )
        return node

    @property
    def hosts(self) -> list[LabNode]:
        """The hosts that an operator sees: all but the depot."""
        return [node for node in self.nodes if node.role != "depot"]

    @property
    def gpu_nodes(self) -> list[LabNode]:
        """The hosts with GPUs."""
        return [node for node in self.nodes if node.role == "gpu"]


class LabDirectory:
    """Paths of one lab, normally `.lab` in the repository. Making one touches nothing on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.names = Names.of(self.root)

    @property
    def state_file(self) -> Path:
        """What the lab consists of."""
        return self.root / "state.json"

    @property
    def cluster(self) -> Path:
        """The cluster directory."""
        return self.root / "cluster"

    @property
    def ssh_key(self) -> Path:
        """The operator's private key."""
        return self.cluster / "ssh" / "id_ed25519"

    @property
    def authority(self) -> Path:
        """The certificate authority of the depot's registry, with its key."""
        return self.root / "authority"

    @property
    def depot(self) -> Path:
        """The depot's certificate and key, as the depot sees them."""
        return self.root / "depot"

    def node(self, name: str) -> Path:
        """What the node sees at /opt/clusterlab/node."""
        return self.root / "nodes" / name

    def hardware(self, name: str) -> Path:
        """The node's simulated hardware."""
        return self.node(name) / "hardware.json"

    def load(self) -> LabState | None:
        """The state, or None if there is no lab.

        Raises ClusterctlError: ``lab.state-unreadable``, or ``lab.moved`` where the directory was moved or
        copied since, so that the lab's containers have another name than this path gives.
        """
        state = self._recorded()
        if state is not None and state.suffix != self.names.suffix:
            was = f"in {state.root}" if state.root else "elsewhere"
            raise ClusterctlError(
                f"this directory was moved or copied: its lab, {state.suffix}, was brought up {was}",
                code="lab.moved",
                where=str(self.state_file),
                hint="Move it back, or take the lab down (clusterctl lab down) and bring it up again.",
            )
        return state

    def suffix_to_remove(self) -> str:
        """What the things of this lab are called, for taking them down; this path's name without a state.

        Raises ClusterctlError (``lab.copied``) where they may be another directory's.
        """
        try:
            state = self._recorded()
        except ClusterctlError:
            state = None
        if state is None or state.suffix == self.names.suffix:
            return self.names.suffix
        origin = LabDirectory(Path(state.root)) if state.root else None
        # Moved: the name was made of a directory that has no lab any more. A copy leaves the first one there.
        if origin is not None and origin.names.suffix == state.suffix and not origin.state_file.exists():
            return state.suffix
        raise ClusterctlError(
            f"the lab {state.suffix} is not known to be this directory's: it was brought up"
            f" in {state.root or 'another place'}",
            code="lab.copied",
            where=str(self.state_file),
            hint=(
                f"Take it down there (clusterctl lab down --dir {state.root}), then remove this copy by hand."
                if state.root
                else f"See what has its name (docker ps -a --filter label={LABEL_LAB}={state.suffix}),"
                " or move the directory back."
            ),
            exit_code=EXIT_INCOMPLETE,
        )

    def _recorded(self) -> LabState | None:
        """What the state file says, wherever it was written."""
        try:
            return read_json(self.state_file, TypeAdapter(LabState))
        except FileNotFoundError:
            return None
        except (OSError, UnusableFileError) as error:
            raise ClusterctlError(
                f"the lab's state cannot be read: {describe_unusable(error)}",
                code="lab.state-unreadable",
                where=str(self.state_file),
                hint="Take the lab down (clusterctl lab down), remove the directory, and bring it up again.",
            ) from error

    def is_recorded(self) -> bool:
        """Whether this directory holds a lab's state, wherever that was brought up."""
        try:
            return self._recorded() is not None
        except ClusterctlError:
            return False

    def require(self) -> LabState:
        """The state of a lab that is there. Raises ClusterctlError (``lab.none``)."""
        state = self.load()
        if state is None:
            raise ClusterctlError(
                "there is no lab here",
                code="lab.none",
                where=str(self.root),
                hint="Bring one up with: clusterctl lab up --nodes 2",
            )
        return state

    def save(self, state: LabState) -> None:
        """Write the state by rename: a reader never sees half of it."""
        self.root.mkdir(parents=True, exist_ok=True)
        replace_file(self.state_file, state.model_dump_json(indent=2) + "\n", 0o644)


def find_lab(named: Path | None, start: Path | None = None, *, make: bool = False) -> LabDirectory:
    """The directory that was named, else `.lab` of the nearest parent that has a lab or is a repository.

    ``make``: it is made where it is missing, so that nobody else can.
    Raises ClusterctlError (``cluster.not-trusted``) where others could have written that, or another user's
    link leads there.
    """
    instead = "Name the lab's directory with --dir DIR"
    if named is not None:
        return _at(named, instead, make=make)
    here = (start or Path.cwd()).resolve()
    parents = (here, *here.parents)
    for marker in (".lab/state.json", ".git"):
        found = next((parent for parent in parents if (parent / marker).exists()), None)
        if found is not None:
            parts = (found, found / ".lab", found / ".lab" / "state.json")
            require_trusted(parts, found, instead)
            return LabDirectory(found / ".lab")
    return _at(here / ".lab", instead, make=make)


def _at(place: Path, instead: str, *, make: bool) -> LabDirectory:
    """That directory, which may not be there yet: without links where it is. Raises ClusterctlError."""
    with contextlib.suppress(FileNotFoundError):
        place = require_trusted_place(place, instead, make=make)
        require_trusted([place / "state.json"], place, instead)
    return LabDirectory(place)
