"""perftest's ib_write_bw: each port with itself, then pairs of nodes port by port; host memory.

One rank per node, no framework. Before each measurement the server listens at a port that it chose; the two
tell each other straight, as what passes through the first node it could change. Both ends have the same time
limit, after which both are killed. Each end runs on the CPUs of its adapter's NUMA node, and so has its
buffers there.
"""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import meeting, nccl_tests, numa
else:  # on a node they are single files, not a package
    meeting = importlib.import_module(f"{__package__}.meeting" if __package__ else "meeting")
    nccl_tests = importlib.import_module(f"{__package__}.nccl_tests" if __package__ else "nccl_tests")
    numa = importlib.import_module(f"{__package__}.numa" if __package__ else "numa")

PROGRAM = "ib_write_bw"
SIZE_BYTES = 8 << 20
LISTEN_S = 10.0
MEET_S = 30.0  # for the other end to be there, too; with both time limits it is within that of all ranks
MAX_OUTPUT = 16 * 1024
LISTENING = "0A"  # [Linux, include/net/tcp_states.h]

join = nccl_tests.join


class WriteEnd:
    """One end of a measurement: a process near its adapter, and its output."""

    def __init__(
        self, words: Sequence[str], file: Path, device: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._file = file
        cpus, _ = numa.find_near_cpus(device)
        with file.open("w", encoding="utf-8") as printed, numa.run_on(cpus):
            self._process = subprocess.Popen(
                list(words), stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})}, start_new_session=True,
            )  # fmt: skip

    def wait(self, limit_s: float) -> dict[str, Any]:
        """Wait for its end; its exit code (None after the time limit) and its output."""
        try:
            code: int | None = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            meeting.kill_group(self._process)
        with self._file.open(encoding="utf-8", errors="replace") as stream:
            return {"exit_code": code, "text": stream.read(MAX_OUTPUT)}

    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self._process.poll() is not None


def make_command(port: Mapping[str, Any], tcp_port: int, iterations: int, server: str = "") -> list[str]:
    """The command line of one end: the client's if a ``server`` is named.

    A port's ``memory`` are the options that name another memory than the host's.
    """
    words = [PROGRAM, "-d", str(port["device"]), "-i", str(port["port"]), "-p", str(tcp_port)]
    words += port.get("memory", [])
    words += ["-s", str(SIZE_BYTES), "-n", str(iterations), "-F", "--report_gbits"]
    for option, name in (("-x", "gid"), ("--tclass", "traffic_class"), ("-S", "service_level")):
        words += [option, str(port[name])] if port.get(name) is not None else []
    return [*words, server] if server else words


def free_port() -> int:
    """A TCP port at which nothing listens now."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def is_listening(tcp_port: int) -> bool:
    """Whether something listens there. A test connection would be mistaken for the client's."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        if any(row.split()[1].endswith(f":{tcp_port:04X}") and row.split()[3] == LISTENING for row in rows):
            return True
    return False


def start_server(
    port: Mapping[str, Any], iterations: int, file: Path, environment: Mapping[str, str] | None = None
) -> tuple[WriteEnd, int]:
    """A server that listens, and its port; or one that ended before it did."""
    tcp_port = free_port()
    end = WriteEnd(make_command(port, tcp_port, iterations), file, str(port["device"]), environment)
    until = time.monotonic() + LISTEN_S
    while not is_listening(tcp_port) and not end.has_ended() and time.monotonic() < until:
        time.sleep(0.02)  # no event shows when it listens
    return end, tcp_port


def write_to_itself(
    port: Mapping[str, Any], iterations: int, limit_s: float, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One port with itself: the client's end, and the server's as ``server``."""
    server, tcp_port = start_server(port, iterations, Path("server.out"), environment)
    words = make_command(port, tcp_port, iterations, "127.0.0.1")
    client = WriteEnd(words, Path("client.out"), str(port["device"]), environment)
    found = client.wait(limit_s)
    return {
        **_describe_port(port),
        **found,
        "server": server.wait(limit_s if found["exit_code"] == 0 else 1.0),
    }


def explain_missing() -> str:
    """Why this image cannot measure; empty if it can."""
    return "" if shutil.which(PROGRAM) else f"the image has no {PROGRAM} (package perftest)"


def run(world: nccl_tests.MeetingWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: ports (by rank: device, port, gid, traffic_class, service_level), rounds (of pairs of
    ranks: who writes, and to whom), iterations, limit_each_s.

    ``without`` is the reason why this rank measured nothing; with those that say so of themselves nobody
    measures. The client's output is in its rank's verdict, the server's in its own.
    """
    without = explain_missing()
    iterations, limit_s = int(arguments["iterations"]), float(arguments["limit_each_s"])
    ports = arguments["ports"]
    loopback = []
    for port in [] if without else ports[world.rank]:
        world.set_phase(f"{PROGRAM} of {port['device']} with itself")
        loopback.append(write_to_itself(port, iterations, limit_s))
    writes = []
    # Of the rank with most no other has a partner's port: however many it claims, nobody meets for them.
    rails = min(sorted(map(len, ports))[-2:])
    for number, pairs in enumerate(arguments["rounds"]):
        pair = next((tuple(pair) for pair in pairs if world.rank in pair), None)
        for rail in range(rails):
            world.wait(f"rail {rail} in round {number}")
            if pair is not None and all(rail < len(ports[rank]) for rank in pair):
                partner = pair[0] if world.rank == pair[1] else pair[1]
                measure = _serve if world.rank == pair[1] else _write
                port = ports[world.rank][rail]
                found = measure(world, port, partner, able=not without)
                more = {"peer": partner, "rail": rail, "round": number}
                writes += [{**_describe_port(port), **found, **more}] if found else []
            world.wait(f"rail {rail} in round {number}, measured")
    return {"ok": True, "because": "", "without": without, "loopback": loopback, "writes": writes}


def _serve(
    world: nccl_tests.MeetingWorld, port: Mapping[str, Any], client: int, *, able: bool
) -> dict[str, Any]:
    """What this end said as the server, told to the client; nothing where either has no program."""
    iterations, limit_s = int(world.arguments["iterations"]), float(world.arguments["limit_each_s"])
    server, tcp_port = start_server(port, iterations, Path("server.out")) if able else (None, None)
    is_coming: Any = False
    with suppress(meeting.MeetingError, OSError):
        listener = meeting.listen(world.address, world.port)
        keys = {str(client): world.keys[str(client)]}
        with closing(meeting.Door(listener, keys.get)) as door:
            if (came := door.next(MEET_S)) is not None:
                with closing(came[0]) as line:
                    line.send(tcp_port)
                    is_coming = line.receive(meeting.TICK_S)
    if server is None:
        return {}
    found = server.wait(limit_s + 1.0 if is_coming is True else 0.0)
    return {**found, "role": "server"} if is_coming is not None else {}


def _write(
    world: nccl_tests.MeetingWorld, port: Mapping[str, Any], server: int, *, able: bool
) -> dict[str, Any]:
    """What this end said as the client; nothing where either has no program.

    ``unmet`` is why the two did not meet: of nobody's port.
    """
    iterations, limit_s = int(world.arguments["iterations"]), float(world.arguments["limit_each_s"])
    (host, at), key = world.endpoints[server], world.keys[str(server)]
    try:
        with closing(meeting.connect(host, at, key, str(world.rank), MEET_S)) as line:
            said = line.receive(meeting.TICK_S)
            tcp_port = None if said is None else nccl_tests.read_count(said, 65535)
            line.send(True if able and tcp_port is not None else None)
    except (meeting.MeetingError, OSError, ValueError) as error:
        unmet = f"rank {world.rank} did not meet rank {server}: {error}"
        return {"exit_code": None, "text": "", "unmet": unmet, "role": "client"} if able else {}
    if not able or tcp_port is None:
        return {}
    words = make_command(port, tcp_port, iterations, host)
    return {**WriteEnd(words, Path("client.out"), str(port["device"])).wait(limit_s), "role": "client"}


def _describe_port(port: Mapping[str, Any]) -> dict[str, Any]:
    """Which port it was, and why its ends ran on any CPU: empty if they ran next to it."""
    _, unpinned = numa.find_near_cpus(str(port["device"]))
    return {"device": port["device"], "port": port["port"], "unpinned": unpinned}
