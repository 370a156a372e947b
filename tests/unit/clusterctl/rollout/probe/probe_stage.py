"""What the tests of the look before an apply share: calls as they are told, hosts, a stand-in for SSH."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Bare

from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.rollout.probe import records
from clusterctl.rollout.probe.calls import Call, of_host
from clusterctl.rollout.probe.decided import inputs, with_secrets
from clusterctl.rollout.probe.drift import DriftProbe
from clusterctl.rollout.probe.judge import decisive
from clusterctl.rollout.probe.records import Record


def told(module, *, host="gpu01", **fields):
    asked = {"host": host, "at": "", "task": f"r: {module}", "module": module, "looks": False, "job": False,
             "failed": False, "hidden": False, "args": {}, "file": {}}  # fmt: skip
    return {**asked, **fields}


PREFLIGHT = told("node_preflight", args={"controller_time": 1.0})


def asked_of(host, *more):
    return of_host(host, [{**PREFLIGHT, "host": host}, *more])


def call(module, kind="module", at=""):
    return Call(at, f"role: {module}", kind, module, {})


def remembered(host, *calls, result=None):
    answers = {f"{c.at}/{c.identity}": decisive(c, result or {"changed": False}) for c in calls}
    return Record(host, "run", "digest", calls, answers)


def two_hosts(path):
    """An inventory of two GPU nodes in an empty cluster directory."""
    (path / "hosts.yml").write_text("all: {}\n")
    directory = ClusterDirectory(path)
    directory.ensure_state()
    hosts = tuple(
        Host(name, name, 22, "ops", ("gpu_nodes",), {"nvidia_driver_branch": "580"})
        for name in ("gpu01", "gpu02")
    )
    return Inventory(directory, hosts)


def looks_at(inventory, hosts):
    """The looks of an apply that remembers each of these hosts by one call."""
    digest = inputs(inventory, {})
    for host in hosts:
        record = remembered(host.name, call("debian_packages"))
        records.save(inventory.directory, replace(record, inputs=with_secrets(digest, inventory.directory)))
    names = tuple(host.name for host in hosts)
    chosen = Bare(directory=inventory.directory, inventory=inventory, names=names, hosts=hosts)
    return DriftProbe(
        Bare(directory=inventory.directory, extra_vars={}), chosen, Passwords(), digest, True, False
    )


def answering(monkeypatch, run):
    """SSH as the look knows it, answered by ``run(node, stdin)``."""

    class Transport:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def run(self, node, _argv, *, stdin, timeout_s):
            return run(node, stdin)

    monkeypatch.setattr("clusterctl.rollout.probe.drift.OpenSshTransport", Transport)
