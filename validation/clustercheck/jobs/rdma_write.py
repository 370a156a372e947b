"""perftest's ib_write_bw: each port with itself, then pairs of nodes port by port; host memory, no framework.

One rank a node. Before each measurement the server's end listens at a port that it chose and told; both ends
have the same time limit, and both are ended with it.
"""

from __future__ import annotations

import importlib
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import meeting, nccl_tests
else:  # shipped to a node they lie side by side, and are no package
    meeting = importlib.import_module(f"{__package__}.meeting" if __package__ else "meeting")
    nccl_tests = importlib.import_module(f"{__package__}.nccl_tests" if __package__ else "nccl_tests")

PROGRAM = "ib_write_bw"
SIZE_BYTES = 8 << 20
LISTEN_S = 10.0
LARGEST = 16 * 1024
LISTENING = "0A"  # [Linux, include/net/tcp_states.h]

join = nccl_tests.join


class End:
    """One end of a measurement: a process, and what it printed."""

    def __init__(self, words: Sequence[str], file: Path) -> None:
        self._file = file
        with file.open("w", encoding="utf-8") as printed:
            self._process = subprocess.Popen(
                list(words), stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def ended(self, limit_s: float) -> dict[str, Any]:
        """Its exit code (None where its time was over) and its words; it has ended then."""
        try:
            code: int | None = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            meeting.end(self._process)
        with self._file.open(encoding="utf-8", errors="replace") as stream:
            return {"exit_code": code, "text": stream.read(LARGEST)}

    def has_ended(self) -> bool:
        """Whether it came to an end by itself."""
        return self._process.poll() is not None


def words_of(port: Mapping[str, Any], tcp_port: int, iterations: int, server: str = "") -> list[str]:
    """The command line of one end: the client's where a ``server`` is named."""
    words = [PROGRAM, "-d", str(port["device"]), "-i", str(port["port"]), "-p", str(tcp_port)]
    words += ["-s", str(SIZE_BYTES), "-n", str(iterations), "-F", "--report_gbits"]
    words += ["-x", str(port["gid"])] if port.get("gid") is not None else []
    return [*words, server] if server else words


def free_port() -> int:
    """A TCP port at which nothing listens now."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def listens(tcp_port: int) -> bool:
    """Whether somebody listens there. A connection would be taken for the client's."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        if any(row.split()[1].endswith(f":{tcp_port:04X}") and row.split()[3] == LISTENING for row in rows):
            return True
    return False


def serve(port: Mapping[str, Any], iterations: int, file: Path) -> tuple[End, int]:
    """A server that listens, and where; or one that has ended before it did."""
    tcp_port = free_port()
    end = End(words_of(port, tcp_port, iterations), file)
    until = time.monotonic() + LISTEN_S
    while not listens(tcp_port) and not end.has_ended() and time.monotonic() < until:
        time.sleep(0.02)  # no program tells when it begins to listen
    return end, tcp_port


def without() -> str:
    """Why this image cannot measure; empty where it can."""
    return "" if shutil.which(PROGRAM) else f"the image has no {PROGRAM} (package perftest)"


def run(world: nccl_tests.World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: ports (by rank: device, port, gid), rounds (of pairs of ranks), iterations, limit_each_s.

    ``without`` says why nothing was measured. What a client's end says is in its rank's verdict, and what a
    server's end said where the client did not end well, in the server's.
    """
    reasons = sorted({said for said in world.exchange(without(), "comparing the nodes' images") if said})
    if reasons:
        return {"ok": True, "because": "", "without": "; ".join(reasons), "loopback": [], "writes": []}
    iterations, limit_s = int(arguments["iterations"]), float(arguments["limit_each_s"])
    ports = arguments["ports"]
    loopback = []
    for port in ports[world.rank]:
        world.at(f"{PROGRAM} of {port['device']} with itself")
        server, tcp_port = serve(port, iterations, Path("server.out"))
        client = End(words_of(port, tcp_port, iterations, "127.0.0.1"), Path("client.out"))
        said = client.ended(limit_s)
        loopback.append({**_of(port), **said, "server": server.ended(1.0 if said["exit_code"] else limit_s)})
    writes = []
    for number, pairs in enumerate(arguments["rounds"]):
        partner = {one: other for a, b in pairs for one, other in ((a, b), (b, a))}.get(world.rank)
        for rail in range(max(map(len, ports))):
            writes += _round(world, arguments, (number, rail), partner)
    return {"ok": True, "because": "", "without": "", "loopback": loopback, "writes": writes}


def _round(
    world: nccl_tests.World, arguments: Mapping[str, Any], where: tuple[int, int], partner: int | None
) -> list[dict[str, Any]]:
    """One rail in one round: the greater of two ranks serves, the other writes; the rest wait."""
    (number, rail), ports = where, arguments["ports"]
    iterations, limit_s = int(arguments["iterations"]), float(arguments["limit_each_s"])
    both = partner is not None and all(rail < len(ports[rank]) for rank in (world.rank, partner))
    server = None
    told: list[Any] = ["", 0]
    if both and partner is not None and world.rank > partner:
        server, tcp_port = serve(ports[world.rank][rail], iterations, Path("server.out"))
        told = [world.address, tcp_port]
    heard = world.exchange(told, f"rail {rail} in round {number}")
    done: list[dict[str, Any]] = []
    if both and partner is not None:
        port = ports[world.rank][rail]
        if server is not None:
            said, role = server.ended(limit_s + 1.0), "server"
        else:
            address, tcp_port = heard[partner]
            client = End(words_of(port, int(tcp_port), iterations, str(address)), Path("client.out"))
            said, role = client.ended(limit_s), "client"
        done = [{**_of(port), **said, "role": role, "peer": partner, "rail": rail, "round": number}]
    world.exchange(None, f"rail {rail} in round {number}, measured")
    return done


def _of(port: Mapping[str, Any]) -> dict[str, Any]:
    return {"device": port["device"], "port": port["port"]}
