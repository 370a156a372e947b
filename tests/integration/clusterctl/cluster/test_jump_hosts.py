"""The nodes' SSH password goes to nodes alone, whichever other ssh a configuration starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from pydantic import SecretStr

from clustercheck.launch.transport import NodeUnreachableError
from clusterctl.cluster.access import Passwords, ansible_variables
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import load_anew
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.engine.ledger import HostState
from clusterctl.engine.playbook import PlaybookRequest, run_playbook

from .scan.ssh_servers import Served, ssh_server

pytestmark = pytest.mark.needs("ssh")

PASSWORDS = Passwords(ssh=SecretStr("of the nodes"))
WAYS = {
    "directly": "-o User=root",
    "ProxyJump": "-F {config} -J bastion",
    "ProxyCommand": "-F {config} -o ProxyCommand='ssh -F {config} -W [%h]:%p bastion'",
    "in a shell": "-F {config} -o ProxyCommand='sh -c \"ssh -F {config} -W [%h]:%p bastion; true\"'",
}


@pytest.fixture
def key(tmp_path: Path) -> paramiko.PKey:
    file = tmp_path / "host_key"
    forms = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    file.write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(*forms))
    return paramiko.PKey.from_path(file)


@pytest.fixture
def server(key: paramiko.PKey) -> Iterator[Served]:
    """A node, or a jump host: it takes no key, and another password."""
    with ssh_server([key], passwords={"me": "another", "root": "another"}) as served:
        yield served


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """How the node is reached."""
    return str(request.param)


@pytest.fixture
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: paramiko.PKey, server: Served, way: str
) -> ClusterDirectory:
    """One node: the server, or behind it."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("PATH", os.defpath)  # no program of Ansible's is there
    known = f"[127.0.0.1]:{server.port} {key.get_name()} {key.get_base64()}\n"
    config, directory = tmp_path / "config", ClusterDirectory(tmp_path / "cluster")
    (tmp_path / "known").write_text(known, encoding="utf-8")
    config.write_text(
        f"Host bastion\n HostName 127.0.0.1\n Port {server.port}\n User me\n"
        f" UserKnownHostsFile {tmp_path}/known\n StrictHostKeyChecking yes\n",
        encoding="utf-8",
    )
    directory.known_hosts.parent.mkdir(parents=True, mode=0o700)
    directory.known_hosts.write_text(known, encoding="utf-8")
    address = f"ansible_host: 127.0.0.1, ansible_port: {server.port}, ansible_user: root"
    words = WAYS[way].format(config=config).replace("'", "''")
    directory.hosts_file.write_text(
        "all:\n  children:\n    gpu_nodes:\n      hosts:\n"
        f"        gpu01: {{{address}, ansible_ssh_common_args: '{words}'}}\n",
        encoding="utf-8",
    )
    return directory


def assert_only_nodes_were_told(server: Served, way: str) -> None:
    # ssh whose question is not answered tries an empty one.
    assert set(server.passwords) == {"of the nodes" if way == "directly" else ""}


def test_no_jump_host_is_told_it_by_us(cluster: ClusterDirectory, server: Served, way: str) -> None:
    with (
        OpenSshTransport(cluster, load_anew(cluster).hosts, PASSWORDS) as transport,
        pytest.raises(NodeUnreachableError),
    ):
        transport.run("gpu01", ["true"], timeout_s=10)
    assert_only_nodes_were_told(server, way)


def test_no_jump_host_is_told_it_by_ansible(
    cluster: ClusterDirectory, server: Served, way: str, tmp_path: Path
) -> None:
    book = tmp_path / "book.yml"
    book.write_text("- hosts: all\n  gather_facts: false\n  tasks: [{ansible.builtin.ping: }]\n")
    runs = tmp_path / "run"
    runs.mkdir()
    request = PlaybookRequest(
        book, cluster.hosts_file, ("gpu01",), runs, secret_vars=ansible_variables(PASSWORDS)
    )
    outcome = run_playbook(request, lambda _event, _ledger: None)
    assert outcome.states == {"gpu01": HostState.UNREACHABLE}
    assert_only_nodes_were_told(server, way)
