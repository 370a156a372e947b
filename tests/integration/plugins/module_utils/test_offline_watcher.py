"""The watcher of an offline apply in a network of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.plugins.module_utils.test_offline_watcher import WATCHER

NETWORK = """set -e
ip link set lo up
ip link add v0 type veth peer name v1
ip link set v0 up
ip link set v1 up
ip addr add 10.9.0.1/24 dev v0
for last in 2 3 4; do ip neigh add 10.9.0.$last lladdr 02:00:00:00:00:0$last dev v0; done
ip route add default via 10.9.0.2
exec "$@"
"""


SPEAKER = """
import os, pathlib, select, socket, sys
kept = []
for address, port in (("10.9.0.3", 5000), ("151.101.2.132", 443), ("127.0.0.1", 1)):
    kept.append(socket.socket())
    kept[-1].settimeout(0.2)
    try:
        kept[-1].connect((address, port))
    except OSError:
        pass
datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
question = "000101000001000000000000036465620664656269616e036f72670000010001"
datagram.sendto(bytes.fromhex(question), ("10.9.0.4", 53))
datagram.sendto(b"x", ("9.9.9.9", 123))
# Who has gone already is looked for without success.
record = pathlib.Path(sys.argv[1])
bell = os.open(record.with_name("bell"), os.O_RDWR)
while "9.9.9.9" not in record.read_text() and select.select([bell], [], [], 60)[0]:
    os.read(bell, select.PIPE_BUF)
"""


@pytest.mark.needs("root", "unshare", "ip")
def test_every_beginning_is_heard_in_a_network_of_its_own(tmp_path: Path) -> None:
    config = {
        "run": "r1", "allowed": ["10.9.0.3/32"], "name_servers": ["10.9.0.4"], "until": time.time() + 120,
        "output": str(tmp_path / "record.json"),
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "speaker.py").write_text(SPEAKER, encoding="utf-8")
    driver = f"""
import os, select, signal, subprocess, sys
os.mkfifo({str(tmp_path / "bell")!r})
bell = os.open({str(tmp_path / "bell")!r}, os.O_RDWR)
watch = subprocess.Popen([sys.executable, {str(WATCHER)!r}, {str(tmp_path / "config.json")!r}])
select.select([bell], [], [], 20)
speaker = [sys.executable, {str(tmp_path / "speaker.py")!r}, {config["output"]!r}]
subprocess.run(speaker, check=True, timeout=80)
watch.send_signal(signal.SIGTERM)
sys.exit(watch.wait(20))
"""
    done = subprocess.run(
        ["unshare", "-n", "bash", "-c", NETWORK, "network", sys.executable, "-c", driver],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    if "Operation not" in done.stderr or "Unknown device type" in done.stderr:
        pytest.skip(f"no network of its own here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert set(record["inside"]) == {"10.9.0.3", "10.9.0.4"}
    assert [(one["address"], one["port"]) for one in record["outside"]] == [
        ("151.101.2.132", 443),
        ("9.9.9.9", 123),
    ]
    assert record["outside"][0]["by"].startswith("python")
    assert record["names"] == {"deb.debian.org": 1}
    assert (record["drained"], record["lost"], record["gaps"]) == (True, 0, 0)
    assert "ended" not in record
    assert (tmp_path / "record.json").stat().st_mode & 0o077 == 0
