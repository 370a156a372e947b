"""What the tests of the drift probe share: logged calls, hosts, a stand-in for SSH."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Bare

from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.rollout.drift.answers import fingerprint
from clusterctl.rollout.drift.calls import Call, select_calls
from clusterctl.rollout.drift.inputs import digest_inputs, digest_with_secrets
from clusterctl.rollout.drift.probe import DriftProbe
from clusterctl.rollout.drift.records import DriftRecord, save_record


def log_entry(module, *, host="gpu01", **fields):
    entry = {"host": host, "at": "", "task": f"r: {module}", "module": module,
             "job": False, "failed": False, "hidden": False, "args": {}, "file": {}}  # fmt: skip
    return {**entry, **fields}


PREFLIGHT = log_entry("node_preflight", args={"controller_time": 1.0})


def asked_of(host, *more):
    return select_calls(host, [{**PREFLIGHT, "host": host}, *more])


def call(module, kind="module", at=""):
    return Call(at, f"role: {module}", kind, module, {})


def recorded(host, *calls, result=None):
    answers = {f"{c.at}/{c.identity}": fingerprint(c, result or {"changed": False}) for c in calls}
    return DriftRecord(host, "run", "digest", calls, answers)


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


def probe_of(inventory, hosts):
    """The drift probe of an apply, with a record of one call for each of these hosts."""
    directory, digest = inventory.directory, digest_inputs(inventory, {})
    for host in hosts:
        record = recorded(host.name, call("debian_packages"))
        save_record(directory, replace(record, inputs=digest_with_secrets(digest, directory)))
    names = tuple(host.name for host in hosts)
    chosen = Bare(directory=directory, inventory=inventory, names=names, hosts=hosts)
    return DriftProbe(Bare(directory=directory, extra_vars={}), chosen, Passwords(), digest, True, False)


def answering(monkeypatch, run, *, is_password_taken=False):
    """SSH as the drift probe knows it, answered by ``run(node, stdin)``."""

    class Transport:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def run(self, node, _argv, *, stdin, timeout_s):
            return run(node, stdin)

        def is_password_taken(self):
            return is_password_taken

    monkeypatch.setattr("clusterctl.rollout.drift.probe.OpenSshTransport", Transport)
