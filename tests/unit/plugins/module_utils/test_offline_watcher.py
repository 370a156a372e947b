"""The watcher of an offline apply: what it takes for a contact, and what it hears of real packets."""

from __future__ import annotations

import ipaddress
import socket
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_host
from ansible_collections.clusterctl.cluster.plugins.module_utils import offline_watcher as watcher
from ansible_collections.clusterctl.cluster.plugins.modules import offline_watch

from clusterctl.rollout import offline

WATCHER = Path(watcher.__file__)
HERE, INSIDE, RESOLVER, OUT = "10.9.0.1", "10.9.0.3", "10.9.0.4", "151.101.2.132"


def packet(
    goal: str, protocol: int, ports: tuple[int, int] = (40000, 443), rest: bytes = b"", flags: int = 2
) -> bytes:
    """An IPv4 packet as the watch gets it."""
    head = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 64, protocol, 0)
    head += socket.inet_aton(HERE) + socket.inet_aton(goal)
    if protocol == watcher.TCP:
        return head + struct.pack("!HHIIBB", *ports, 0, 0, 0x50, flags) + bytes(6)
    if protocol == watcher.UDP:
        return head + struct.pack("!HHHH", *ports, 8 + len(rest), 0) + rest
    return head + rest


def question(name: str) -> bytes:
    words = b"".join(bytes([len(word)]) + word.encode() for word in name.split("."))
    return struct.pack("!HHHHHH", 1, 0x0100, 1, 0, 0, 0) + words + b"\0" + struct.pack("!HH", 1, 1)


def new_watch(**earlier: Any) -> watcher.Watch:
    config = {"run": "r1", "allowed": [f"{INSIDE}/32"], "name_servers": [RESOLVER, "8.8.8.8"]}
    return watcher.Watch(config, earlier, 1.0)


def hear(watch: watcher.Watch, data: bytes, kind: int = watcher.PACKET_OUTGOING) -> bool:
    return watch.hear(data, watcher.ETH_P_IP, kind, "no-such-interface")


def outside(watch: watcher.Watch) -> list[tuple[str, str, int, int]]:
    return [(one["address"], one["protocol"], one["port"], one["times"]) for one in watch.record["outside"]]


def test_a_connection_to_anybody_but_the_allowed_is_written_down_once_with_its_number() -> None:
    watch = new_watch()
    assert hear(watch, packet(INSIDE, watcher.TCP))
    for _ in range(2):
        hear(watch, packet(OUT, watcher.TCP))
    hear(watch, packet("9.9.9.9", watcher.UDP, (123, 123)))
    hear(watch, packet("1.1.1.1", 47))
    hear(watch, packet("1.0.0.1", watcher.ICMP, rest=bytes([watcher.ECHO, 0])))
    assert watch.record["inside"] == {INSIDE: 1}
    assert outside(watch) == [
        (OUT, "tcp", 443, 2), ("9.9.9.9", "udp", 123, 1),
        ("1.1.1.1", "protocol 47", 0, 1), ("1.0.0.1", "icmp", 0, 1),
    ]  # fmt: skip


def test_who_had_gone_before_he_was_looked_for_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([("", ""), ("", ""), ("bash", "chatty.service")])
    monkeypatch.setattr(watcher, "process_of", lambda *_: next(found))
    watch = new_watch()
    heard = [hear(watch, packet(OUT, watcher.TCP)) for _ in range(4)]
    (one,) = watch.record["outside"]
    assert (one["times"], one["by"], one["unit"]) == (4, "bash", "chatty.service")
    assert heard == [True, False, True, False]


def test_answers_and_what_leaves_no_host_are_no_contacts() -> None:
    watch = new_watch()
    hear(watch, packet(OUT, watcher.TCP, flags=watcher.SYN | watcher.ACK))
    hear(watch, packet(OUT, watcher.TCP, flags=watcher.ACK))
    hear(watch, packet(OUT, watcher.ICMP, rest=bytes([0, 0])))
    for nobody in ("127.0.0.1", "224.0.0.251", "255.255.255.255"):
        hear(watch, packet(nobody, watcher.UDP, (5353, 5353)))
    question_in = bytearray(packet(HERE, watcher.UDP, (9000, 123)))
    question_in[12:16] = socket.inet_aton("9.9.9.9")
    hear(watch, bytes(question_in), watcher.PACKET_HOST)
    hear(watch, packet("9.9.9.9", watcher.UDP, (123, 9000)))
    assert outside(watch) == []
    hear(watch, packet("9.9.9.9", watcher.UDP, (124, 9000)))
    assert len(outside(watch)) == 1


def test_the_sites_name_server_may_be_asked_and_the_names_are_kept_and_one_in_the_world_is_outside() -> None:
    watch = new_watch()
    hear(watch, packet(RESOLVER, watcher.UDP, (5000, 53), question("deb.Debian.org")))
    hear(watch, packet("10.9.0.254", watcher.UDP, (68, 67)))
    assert watch.record["names"] == {"deb.debian.org": 1}
    assert outside(watch) == []
    hear(watch, packet("8.8.8.8", watcher.UDP, (5000, 53), question("x.org")))
    hear(watch, packet(RESOLVER, watcher.UDP, (5000, 54), b""))
    assert [one[:3] for one in outside(watch)] == [("8.8.8.8", "udp", 53), (RESOLVER, "udp", 54)]


def test_what_a_user_asks_for_without_end_is_counted_in_a_record_that_ends() -> None:
    watch = new_watch()
    watch.allowed = [ipaddress.ip_network("10.0.0.0/8")]
    for number in range(watcher.MOST_NAMED + 20):
        label = f"{number}".ljust(63, "x")
        goal = str(ipaddress.IPv4Address("10.9.0.0") + number)
        hear(watch, packet(goal, watcher.UDP, (5000, 53), question(".".join([label] * 20))))
    for counts in (watch.record["names"], watch.record["inside"]):
        assert len(counts) == watcher.MOST_NAMED + 1
        assert (counts[watcher.OTHERS], sum(counts.values())) == (20, watcher.MOST_NAMED + 20)
    assert max(map(len, watch.record["names"])) == watcher.MOST_NAME


def test_many_others_are_neither_kept_nor_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(watcher, "process_of", lambda *_: (looks.append(1), ("", ""))[1])
    watch = new_watch()
    strangers = [ipaddress.IPv4Address("9.0.0.0") + number for number in range(watcher.MOST_OUTSIDE + 20)]
    watch.find_open([(one, 443, 40000) for one in strangers])
    assert len(watch.record["open"]) == len(looks) == watcher.MOST_OUTSIDE
    for one in strangers:
        hear(watch, packet(str(one), watcher.TCP))
    assert len(watch.record["outside"]) == watcher.MOST_OUTSIDE
    assert len(looks) == 2 * watcher.MOST_OUTSIDE


def test_a_process_whose_name_is_no_text_is_found(tmp_path: Path) -> None:
    program = """
import ctypes, socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("127.0.0.1", 0))
ctypes.CDLL(None).prctl(15, b"\\xff\\xfe", 0, 0, 0)
print(one.getsockname()[1], one.fileno(), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        port, descriptor = process.stdout.readline().split()
        socket_of_it = Path(f"/proc/{process.pid}/fd/{descriptor}").readlink()
        assert watcher.process_of(watcher.UDP, int(port), 4)[0] == "\ufffd\ufffd"
        inode = str(socket_of_it)[len("socket:[") : -1]
        assert harbor_host.holders([inode]) == {inode: "\ufffd\ufffd"}
        process.stdin.close()


@pytest.mark.parametrize("junk", [b"", b"\x45", packet(OUT, watcher.TCP)[:25], packet(OUT, watcher.UDP)[:21]])
def test_a_packet_that_is_cut_short_is_passed_over(junk: bytes) -> None:
    assert watcher.parse(junk, watcher.ETH_P_IP) is None
    assert watcher.parse(junk, watcher.ETH_P_IPV6) is None
    assert not hear(new_watch(), junk)
    assert watcher.asked_name(junk) == ""


def test_version_6_is_heard_as_well() -> None:
    goal = ipaddress.ip_address("2606:4700::1111")
    head = struct.pack("!IHBB", 6 << 28, 20, watcher.TCP, 64) + bytes(16) + goal.packed
    syn = head + struct.pack("!HHIIBB", 40000, 443, 0, 0, 0x50, 2) + bytes(6)
    watch = new_watch()
    watch.hear(syn, watcher.ETH_P_IPV6, watcher.PACKET_OUTGOING, "eth0")
    assert outside(watch) == [(str(goal), "tcp", 443, 1)]


def test_a_reboot_is_no_gap_and_an_end_within_one_boot_is() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    rebooted = new_watch(run="r1", boots=["another"], gaps=0, outside=[], inside={INSIDE: 2}, began=0.5)
    assert (rebooted.record["gaps"], rebooted.record["boots"]) == (0, ["another", boot])
    assert (rebooted.record["inside"], rebooted.record["began"]) == ({INSIDE: 2}, 0.5)
    assert new_watch(run="r1", boots=[boot], gaps=0).record["gaps"] == 1


def test_bridges_and_containers_of_this_host_are_inside_and_its_own_link_is_not(tmp_path: Path) -> None:
    for name in ("docker0/bridge", "veth1/brport", "eth0", "eth1/brport", "eth1/device"):
        (tmp_path / name).mkdir(parents=True)
    inside = [
        name for name in ("lo", "docker0", "veth1", "eth0", "eth1") if watcher.is_inside(name, tmp_path)
    ]
    assert inside == ["lo", "docker0", "veth1"]


SESSIONS = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0109090A:0016 00000000:0000 0A 0 0 0 0 0 1
   1: 0109090A:0016 02020202:D431 01 0 0 0 0 0 2
   2: 0109090A:C001 84026597:01BB 01 0 0 0 0 0 3
   3: 0109090A:C002 0300090A:1388 01 0 0 0 0 0 4
   4: 0109090A:C003 84026597:01BB 06 0 0 0 0 0 5
   5: 0100007F:C004 0100007F:0050 01 0 0 0 0 0 6
"""
TABLE_HEAD = "  sl  local_address remote_address\n"
LISTENS = "   0: 0100007F:2328 00000000:0000 0A 00000000:00000000 00:00000000 00000000 4711 0 9\n"
SESSIONS_6 = """  sl  local_address remote_address
   0: 0000000000000000FFFF00000109090A:C005 0000000000000000FFFF000008080808:01BB 08 0 0 0 0 0 7
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is one of a little-endian machine")
def test_sessions_with_others_that_were_open_before_are_written_down_and_are_no_proof(tmp_path: Path) -> None:
    (tmp_path / "tcp").write_text(SESSIONS, encoding="ascii")
    (tmp_path / "tcp6").write_text(SESSIONS_6, encoding="ascii")
    watch = new_watch()
    watch.find_open(watcher.open_sessions(tmp_path))
    found = [(one["address"], one["port"]) for one in watch.record["open"]]
    assert found == [(OUT, 443), ("8.8.8.8", 443)]
    record = {**watch.record, "ended": True}
    assert offline.why_not(record, "r1").startswith(
        f"sessions were open before its watch started: {OUT}:443 (tcp, 1 time)"
    )
    assert offline.why_not({**record, "open": []}, "r1") == ""


def test_sockets_without_number_take_neither_the_memory_of_a_watch_nor_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(watcher.time, "monotonic", lambda: next(clock))
    looks: list[int] = []
    monkeypatch.setattr(watcher, "process_of", lambda *_: (looks.append(1), ("", ""))[1])
    (tmp_path / "tcp").write_text(TABLE_HEAD + LISTENS * 20_000 + SESSIONS.partition("\n")[2])
    tracemalloc.start()
    try:
        watch = new_watch()
        watch.find_open(watcher.open_sessions(tmp_path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [one["address"] for one in watch.record["open"]] == [OUT]
    assert peak < 20 * 20_000  # bytes; their lines have 60
    found = [(ipaddress.IPv4Address("9.0.0.0") + number, 443, 40000) for number in range(100)]
    looks.clear()
    watch.find_open(found)
    assert len(looks) <= watcher.LOOK_S


def test_who_sends_without_end_does_not_keep_the_watch_from_ending() -> None:
    class Flooded:
        """A socket that always has one more."""

        read = 0

        def settimeout(self, seconds: float) -> None:
            assert seconds == 0

        def getsockopt(self, *_: int) -> int:
            return 2 * watcher.BUFFER

        def recvfrom(self, _: int) -> tuple[bytes, tuple[Any, ...]]:
            self.read += 1
            assert self.read < 100_000
            return packet(OUT, watcher.TCP), ("v0", 0x0800, 4)

    heard, watch = Flooded(), new_watch()
    watcher.drain(heard, watch)  # type: ignore[arg-type]
    assert heard.read > watcher.BUFFER // 1024, "all that may have been in the buffer"


def test_the_program_that_goes_to_the_node_is_this_one_and_needs_nothing_of_ours() -> None:
    assert offline_watch.program() == WATCHER.read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import runpy; runpy.run_path({str(WATCHER)!r})"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
