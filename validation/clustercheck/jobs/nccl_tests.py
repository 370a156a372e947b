"""NVIDIA's nccl-tests: within each node without MPI, then across all of them with the image's Open MPI.

One rank per node. The ranks start Open MPI's daemons (mpi_daemons.py), since containers have no sshd. Open
MPI believes whoever connects to its daemons, so it runs as a user who owns nothing (unprivileged.py). The
programs' output is returned unchanged; nothing is judged here.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from clustercheck.jobs import meeting, mpi_daemons, unprivileged
    from clustercheck.jobs.rank import Progress
else:  # on a node they are single files, not a package
    meeting, mpi_daemons, unprivileged = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("meeting", "mpi_daemons", "unprivileged")
    )

# Where the image's build left the reason for having none.
REASON_FILE = Path("/usr/local/share/clusterctl/nccl-tests.off")
MAX_OUTPUT = 512 * 1024  # bytes of what a program printed; characters of what it wrote
ASK_S = 30.0
MAX_REASON = 300  # characters of why another node cannot measure
MAX_GPUS = 64  # of one node, as far as others believe it
# mpirun prints what the processes of all nodes say. What the first one says goes to a file of its node, $0.
KEEP_FIRST = '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || exec >"$0"; exec "$@"'

T = TypeVar("T")


class Measuring(Protocol):
    """What runs a program: its arguments, and where it shows that it runs."""

    arguments: Mapping[str, Any]

    def beat(self) -> None:
        """Show that this rank still waits."""


class MeetingWorld:
    """The group as one rank per node sees it."""

    def __init__(self, progress: Progress, arguments: Mapping[str, Any]) -> None:
        self._progress = progress
        self.arguments = arguments
        self.rank, self.size = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
        self.interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        self.address, port = os.environ["PADDLE_CURRENT_ENDPOINT"].rsplit(":", 1)
        self.port = int(port)
        # Of all ranks, as the launcher assigned them: no node says where another one is to connect.
        ends = [each.rsplit(":", 1) for each in os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")]
        self.endpoints = [(host, int(each)) for host, each in ends]
        host, port = os.environ["PADDLE_MASTER"].rsplit(":", 1)
        progress.set_phase("meeting the other nodes", collective=True)
        self.keys = meeting.read_keys(Path())
        self.meeting = meeting.Meeting(self.rank, self.size, (host, int(port)), self.keys)

    def describe(self) -> dict[str, Any]:
        """What every verdict records about where it was measured."""
        return {
            "rank": self.rank, "world": self.size, "interface": self.interface,
        }  # fmt: skip

    def set_phase(self, phase: str, *, collective: bool = False) -> None:
        """Record the phase of this rank."""
        self._progress.set_phase(phase, collective=collective)

    def beat(self) -> None:
        """Show that this rank still waits."""
        self._progress.beat()

    def exchange(self, value: Any, phase: str, read: Callable[[Any], T]) -> list[T | None]:
        """What ``read`` makes of the values of all nodes; records that it still waits.

        None stands for a value that it raises TypeError or ValueError for.
        """
        self.set_phase(phase, collective=True)
        return self._exchange(value, read)

    def wait(self, phase: str) -> None:
        """Wait until every node is here."""
        self.exchange(None, phase, lambda _value: None)

    @contextmanager
    def together(self, phase: str) -> Iterator[None]:
        """One phase of all nodes, at the end of which each waits for the others, whatever it did in it."""
        self.set_phase(phase, collective=True)
        yield
        self._exchange(None, lambda _value: None)

    def barrier(self) -> None:
        """Wait until every node is here, at the end."""
        self.wait("done, waiting for the others")

    def _exchange(self, value: Any, read: Callable[[Any], T]) -> list[T | None]:
        return self.meeting.exchange(value, read, float(self.arguments["limit_s"]), self.beat)


def join(progress: Progress) -> MeetingWorld:
    """Connect to the other nodes' ranks; no framework is needed."""
    return MeetingWorld(progress, json.loads(Path("arguments.json").read_text(encoding="utf-8")))


def explain_missing() -> str:
    """Why this image has no nccl-tests; empty if it has them."""
    if shutil.which("all_reduce_perf"):
        return ""
    try:
        return f"the image has no nccl-tests: {REASON_FILE.read_text(encoding='utf-8').strip()[:300]}"
    except OSError:
        return "the image has no nccl-tests (no all_reduce_perf)"


def explain_missing_mpi() -> str:
    """Why they cannot run across nodes in this image; empty if they can."""
    programs = {program: shutil.which(program) for program in ("mpirun", "all_reduce_perf_mpi")}
    for program, path in programs.items():
        if not path:
            return f"the image has no {program}"
    return unprivileged.explain_unusable([path for path in programs.values() if path])


def count_gpus() -> int:
    """The number of GPUs that the driver shows."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def make_command(
    program: str,
    arguments: Mapping[str, Any],
    gpus_a_process: int,
    file: Path,
    wrap: Callable[[Sequence[str]], list[str]] = list,
) -> list[str]:
    """The command line: a sweep by factor 2, with checked values, and an output file if supported.

    ``wrap`` makes the command that asks the program what it supports.
    """
    sweep = {"-b": "least", "-e": "most", "-n": "iterations", "-w": "warmup"}
    words = [program, "-g", str(gpus_a_process), "-f", "2", "-c", "1"]
    for option, name in sweep.items():
        words += [option, str(int(arguments[name]))]
    try:
        asking = wrap([program, "-h"])
        helped = subprocess.run(asking, capture_output=True, text=True, timeout=ASK_S, check=False)
        known = "--output_file" in helped.stdout + helped.stderr
    except (OSError, subprocess.TimeoutExpired):
        known = False
    return [*words, "-J", str(file)] if known else words


def run_program(
    world: Measuring,
    words: Sequence[str],
    file: Path,
    *,
    environment: Mapping[str, str] | None = None,
    files: Sequence[int] = (),
    written: Path | None = None,
    start: Callable[..., subprocess.Popen[Any]] = subprocess.Popen,
) -> dict[str, Any]:
    """Run one program until it ends or its time limit; returns its output. ``files`` stay open for it.

    It writes to ``written``, or else to ``file``; what it prints is kept beside ``file``. ``start`` starts it
    as Popen does.
    """
    limit_s, started_at = float(world.arguments["limit_each_s"]), time.monotonic()
    printed = Path(f"{file}.out")
    with printed.open("wb", buffering=0) as kept:
        process = start(
            list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})}, pass_fds=files, start_new_session=True,
        )  # fmt: skip
        keeping = threading.Thread(target=_keep_start, args=(process.stdout, kept), daemon=True)
        keeping.start()
        try:
            while process.poll() is None and time.monotonic() - started_at < limit_s:
                world.beat()
                try:
                    process.wait(min(meeting.TICK_S, limit_s))
                except subprocess.TimeoutExpired:
                    continue
            code = process.poll()
        finally:
            meeting.kill_group(process)
            keeping.join(meeting.TICK_S)  # what it left behind may hold its output open
    return {
        "exit_code": code,  # None after the time limit
        "limit_s": limit_s,
        "text": printed.read_text(encoding="utf-8", errors="replace"),
        "json": remove_environment(read_output(written or file)),
        "command": shlex.join(words),
    }


def _keep_start(stream: IO[bytes], kept: IO[bytes]) -> None:
    """Keep the start of what is printed: mpirun prints what any other node says."""
    with suppress(ValueError):  # nobody waits for the rest any more
        meeting.copy_start(stream, kept, MAX_OUTPUT)


def read_output(file: Path) -> str:
    """The start of what a program wrote; empty if it wrote nothing.

    No link, and no file of others: who writes there may have put anything in its place.
    """
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stream:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_uid == file.parent.stat().st_uid:
                return stream.read(MAX_OUTPUT)
    return ""


def remove_environment(text: str) -> str:
    """The JSON of nccl-tests without the values of all variables, which it has from version 3 on.

    They may be secrets, as a proxy's password. Empty where it ends among them, or nests without end: across
    nodes strangers can write it (unprivileged.py).
    """
    before, key, rest = text.partition('"env":')
    if not key:
        return text
    rest = rest.lstrip()
    try:
        _, end = json.JSONDecoder().raw_decode(rest)
    except (ValueError, RecursionError):
        return ""
    return f"{before}{key}[]{rest[end:]}"


class Node(NamedTuple):
    """What a node says of itself: why it cannot measure, alone or by MPI, and with what it would."""

    lacks: str
    lacks_mpi: str
    gpus: int
    interface: str
    variables: Mapping[str, str]


def read_text(value: Any) -> str:
    """A reason of another node, shortened. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError("no text")
    return " ".join(value.split())[:MAX_REASON]


def read_count(value: Any, most: int) -> int:
    """A whole number from 0 to ``most``. Raises ValueError."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no number of this kind")
    return int(value)


def read_node(value: Any) -> Node:
    """What another node says of itself. Raises TypeError, ValueError."""
    lacks, lacks_mpi, gpus, interface, variables = value
    if not isinstance(variables, dict) or not all(isinstance(each, str) for each in variables.values()):
        raise TypeError("no variables")
    return Node(
        read_text(lacks), read_text(lacks_mpi), read_count(gpus, MAX_GPUS), read_text(interface), variables
    )


def run(world: MeetingWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: collectives, least and most (bytes), iterations, warmup, limit_each_s, limit_s, and
    variables (the names of those that the settings give the ranks).

    ``without`` is the reason why nothing ran here, ``without_mpi`` why no node can run anything across nodes:
    what only some of them lack, no other node says of itself.
    """
    variables = {name: os.environ[name] for name in arguments.get("variables", ()) if name in os.environ}
    own = Node(explain_missing(), explain_missing_mpi(), count_gpus(), world.interface, variables)
    said = world.exchange(list(own), "comparing the nodes' images", read_node)
    silent = Node("a node says nothing of its image", "", 0, "", {})
    nodes = [each or silent for each in said]
    nodes[world.rank] = own
    if own.lacks:
        return {"ok": True, "because": "", "without": own.lacks, "within": {}, "across": {}}
    within, across = {}, {}
    for name in arguments["collectives"] if own.gpus > 1 else ():
        file = Path(f"within-{name}.json").absolute()
        words = make_command(f"{name}_perf", arguments, own.gpus, file)
        world.set_phase(f"{name}_perf on {own.gpus} GPUs")
        within[name] = run_program(world, words, file)
    alone = "only one node takes part" if world.size == 1 else ""
    lacking = [node.lacks or node.lacks_mpi for node in nodes]
    without_mpi = "; ".join(sorted(set(lacking)))[: 4 * MAX_REASON] if all(lacking) else alone
    if not any(lacking) and not alone:
        across = _run_across(world, arguments, nodes)
    return {
        "ok": True, "because": "", "without": "", "without_mpi": without_mpi, "gpus": own.gpus,
        "world_gpus": sum(node.gpus for node in nodes), "within": within, "across": across,
    }  # fmt: skip


def _run_across(world: MeetingWorld, arguments: Mapping[str, Any], nodes: Sequence[Node]) -> dict[str, Any]:
    """Rank 0 runs mpirun, the others start what it requests."""
    found: dict[str, Any] = {}
    Path().chmod(0o700)  # the keys in it are no other user's
    with ExitStack() as stack:
        place = stack.enter_context(unprivileged.Workplace())
        agent = "" if world.rank else _open_first(world, place, stack)
        if world.rank:
            _open_other(world, place, stack)
        world.wait("getting ready for Open MPI")
        # Rank 0 is where the others wait for it: it has no more phases than they, and is not behind.
        with world.together("nccl-tests across nodes"):
            for name in arguments["collectives"] if not world.rank else ():
                written, printed = place.home / f"across-{name}.json", place.home / f"across-{name}.out"
                program = make_command(
                    f"{name}_perf_mpi", arguments, 1, written, wrap=unprivileged.make_command
                )
                total = sum(node.gpus for node in nodes)
                hosts = ",".join(f"{host}:{node.gpus}" for (host, _), node in zip(world.endpoints, nodes))
                words = ["mpirun", "--bind-to", "none", "-np", str(total), "--host", hosts]
                words += [word for name in find_shared_variables(nodes) for word in ("-x", name)]
                words += ["sh", "-c", KEEP_FIRST, str(printed)]
                run = run_program(
                    world, [*words, *program], Path(f"across-{name}").absolute(), written=written,
                    environment=make_mpi_environment(nodes, agent), start=place.start,
                )  # fmt: skip
                # What others say tells why a run failed, not what one that succeeded measured.
                others = run["text"] if run["exit_code"] else ""
                found[name] = run | {"text": f"{read_output(printed)}{others}"}
    return found


def _open_first(world: MeetingWorld, place: unprivileged.Workplace, stack: ExitStack) -> str:
    """Pass on mpirun's requests for daemons and let those in; returns what mpirun calls in place of ssh."""
    ranks = {address: rank for rank, (address, _) in enumerate(world.endpoints) if rank}
    tunnels = stack.enter_context(closing(mpi_daemons.TunnelServer(world.address, world.port, world.keys)))

    def pass_on(host: str, command: str) -> int:
        if host not in ranks:
            raise meeting.MeetingError("no rank of this job is there")
        tunnels.mpirun_port = mpi_daemons.read_mpirun_port(command)
        line = meeting.connect(*world.endpoints[ranks[host]], world.keys[str(ranks[host])], command)
        with closing(line):
            return int(line.receive(float(world.arguments["limit_s"])))

    return stack.enter_context(closing(mpi_daemons.AgentServer(place, pass_on, 2 * world.size))).command


def _open_other(world: MeetingWorld, place: unprivileged.Workplace, stack: ExitStack) -> None:
    """Start the daemons that the first rank asks for, and connect them with it."""
    key = world.keys["0"]
    starter = mpi_daemons.DaemonStarter(
        place, world.address, lambda: meeting.connect(*world.endpoints[0], key, str(world.rank))
    )
    stack.enter_context(closing(starter))
    stack.enter_context(closing(meeting.CommandServer(world.address, world.port, key, starter.start)))


def find_shared_variables(nodes: Sequence[Node]) -> list[str]:
    """Variables of the settings with one value on all nodes, for mpirun's -x, which exports this node's.

    What differs, each node's Open MPI daemon passes to its processes: it runs in the environment of its rank.
    """
    return sorted(
        name
        for name, value in nodes[0].variables.items()
        if all(node.variables.get(name) == value for node in nodes)
    )


def make_mpi_environment(nodes: Sequence[Node], agent: str) -> dict[str, str]:
    """For Open MPI 4 and 5: our agent in place of ssh, and TCP over the nodes' interface for MPI's processes.

    What the settings give all ranks comes before what is the choice of nobody else.
    """
    environment = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "^openib"}
    name = nodes[0].interface
    if name and all(node.interface == name for node in nodes):
        of = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include")
        environment |= dict.fromkeys(of, name)
    environment |= {name: nodes[0].variables[name] for name in find_shared_variables(nodes)}
    # Each daemon speaks with mpirun alone, by what carries its connection: not for settings to change.
    most = str(max(2, len(nodes)))
    return environment | {
        "OMPI_MCA_plm_rsh_agent": agent, "PRTE_MCA_plm_ssh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1", "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_MCA_oob_tcp_disable_ipv6_family": "1", "PRTE_MCA_oob_tcp_disable_ipv6_family": "1",
        "OMPI_MCA_routed": "radix", "OMPI_MCA_routed_radix": most, "PRTE_MCA_routed_radix": most,
    }  # fmt: skip
