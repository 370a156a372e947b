"""known_hosts as ssh-keygen writes and finds it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.unit.clusterctl.cluster.test_known_hosts import KEY

from clusterctl.cluster.known_hosts import parse


def test_hashed_names_and_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"[10.0.0.1]:2222 {KEY.type} {KEY.body}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
    (line,) = parse(path.read_text())
    assert line.names.startswith("|1|")
    assert line.concerns("[10.0.0.1]:2222")
    assert not line.concerns("10.0.0.1")
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(path)], check=True, capture_output=True, text=True
    ).stdout
    assert KEY.fingerprint in shown
