"""The role training_image as Ansible plays it: a real pull by Docker, and what a run hears of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault
from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate
from tests.support.loopback_registry import push_tiny, registry
from tests.support.tree import ROOT

from clusterctl.engine.event_reading import parse
from clusterctl.engine.ledger import Ledger


def played(tmp_path: Path, address: str, digest: str, *words: str) -> Ledger:
    """What clusterctl makes of one play of the role on this machine."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"all": {"children": {"gpu_nodes": {"hosts": {"localhost": here}}}}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    play = [{"hosts": "gpu_nodes", "gather_facts": False, "roles": ["training_image"]}]
    (tmp_path / "play.json").write_text(json.dumps(play), encoding="utf-8")
    variables: dict[str, Any] = {
        "training_image_registry": address, "training_image_repository": "library/tiny",
        "training_image_digest": digest, "training_image_poll_s": 1,
        "ansible_async_dir": str(tmp_path / "async"),
    }  # fmt: skip
    reader, writer = os.pipe()
    environment = {
        **os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
        "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "plugins/callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "clusterctl_events", "CLUSTERCTL_EVENTS_FD": str(writer),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.json"),
         "-e", json.dumps(variables), *words, str(tmp_path / "play.json")],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=environment,
        pass_fds=[writer],
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    ledger = Ledger(["localhost"])
    with os.fdopen(reader, "rb") as stream:
        for line in stream:
            if event := parse(line):
                ledger.record(event)
    return ledger


@pytest.mark.lab
@pytest.mark.usefixtures("engine")
def test_a_run_hears_how_the_pull_went(tmp_path: Path) -> None:
    authority = cluster_certificate.make_authority("test", datetime.now(tz=UTC))
    pair = cluster_certificate.make_server(authority, ["127.0.0.1"], datetime.now(tz=UTC), 2)
    certificate, key = tmp_path / "r.crt", tmp_path / "r.key"
    cluster_certificate.save(pair, certificate, key, Vault({}))
    with registry(tmp_path / "registry", tls=(certificate, key)) as running:
        digest = push_tiny(f"{running.address}/library/tiny:1", tmp_path, size=400_000)
        reference = f"{running.address}/library/tiny@{digest}"
        try:
            looked = played(tmp_path, running.address, digest, "--check").hosts["localhost"].facts["pull"]
            assert "seconds" not in looked
            record = played(tmp_path, running.address, digest).hosts["localhost"]
            pull = record.facts["pull"]
            assert (pull["digest"], pull["device"]) == (digest, "lo")
            assert 0 < pull["download_s"] <= pull["seconds"]
            # This Docker takes a registry on loopback without its CA; who asks for the size does not.
            assert "CERTIFICATE_VERIFY_FAILED" in pull["unknown"]
            assert record.jobs == {}
            again = played(tmp_path, running.address, digest).hosts["localhost"]
            assert (again.changed, again.facts) == (0, {})
        finally:
            subprocess.run(["docker", "rmi", "--force", reference], capture_output=True, check=False)
