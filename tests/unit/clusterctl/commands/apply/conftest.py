"""A cluster directory and hosts without Ansible."""

from __future__ import annotations

import sys
import textwrap

import pytest
import yaml

from clusterctl import main
from clusterctl.cluster import inventory
from clusterctl.cluster.directory import ClusterDirectory

from .played import FakeAnsible


@pytest.fixture
def ansible():
    return FakeAnsible()


@pytest.fixture
def clusterctl(cluster, ansible):
    """The program on that cluster, from its arguments to its exit code; ``runner`` stands for Ansible."""

    def call(*arguments, runner=ansible):
        return main.run(["-C", str(cluster.root), *arguments], runner=runner)

    return call


@pytest.fixture
def no_terminal(monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster directory that no subprocess has to read."""
    (tmp_path / "hosts.yml").write_text(
        textwrap.dedent("""\
            gpu_nodes:
              hosts:
                gpu01: {ansible_host: 192.0.2.1}
                gpu02: {ansible_host: 192.0.2.2}
                gpu03: {ansible_host: 192.0.2.3}
            registry:
              hosts:
                registry01: {ansible_host: 192.0.2.4}
            """)
    )
    groups = yaml.safe_load((tmp_path / "hosts.yml").read_text())
    listing = {name: {"hosts": list(group["hosts"])} for name, group in groups.items()}
    variables = {host: values for group in groups.values() for host, values in group["hosts"].items()}
    listing |= {"all": {"children": list(groups)}, "_meta": {"hostvars": variables}}
    monkeypatch.setattr("clusterctl.cluster.inventory._listing", lambda _directory: listing)
    return ClusterDirectory(tmp_path)


@pytest.fixture
def listing(cluster):
    """What Ansible says of that inventory, to be changed by a test."""
    return inventory._listing(cluster)
