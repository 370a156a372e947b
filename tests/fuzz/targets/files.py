"""Files of a cluster directory that anything may have been done to, read by the commands that need them."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import SecretStr
from tests.fuzz.target import Target
from tests.support.hostile import require_plain

from clustercheck.model import Coverage, Figure, Judged, Result, Scope, Subject, Verdict
from clustercheck.result.document import Document
from clusterctl import console, main
from clusterctl.cluster import acknowledged, bounded_yaml, inventory, known_hosts, lock, quarantine
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.known_hosts import HostKey
from clusterctl.cluster.settings.hosts import expand
from clusterctl.engine import lease_book, mutex
from clusterctl.engine.events import JobFinished, JobStarted
from clusterctl.engine.journal import Journal
from clusterctl.engine.lease import lease_of
from clusterctl.engine.recovery import left_behind
from clusterctl.errors import ClusterctlError, ExplainedError
from clusterctl.registry.harbor.vault import Vault
from clusterctl.registry.images import mirrored
from clusterctl.registry.oci.credentials import credentials_for
from clusterctl.report import baselines, files
from clusterctl.rollout.drift.calls import Call
from clusterctl.rollout.drift.records import DriftRecord, load_record, save_record
from clusterctl.runs import chain
from clusterctl.runs.events import EventLog
from clusterctl.runs.store import RunStore

NO_PID = 2**22 + 1  # of a controller that has died
GOOD_CODES = (0, 1, 2, 3)
REGISTRIES = ("registry.example", "docker.io")
# Ends where it asks whether to disturb jobs, with all that it reads here read.
VALIDATE = ("validate", "--since-ack", "--force-busy")
HOSTS = """\
all:
  vars:
    ansible_user: root
  children:
    gpu_nodes:
      vars: &shared {hardware_gpu_count: 8, hardware_gpu_model: "H100 {{ site_name | default('x') }}"}
      hosts:
        gpu[01:02]: {ansible_host: "10.0.0.{{ 1 + 1 }}"}
        gpu03:
          ansible_host: 10.0.0.3
          ansible_port: "{{ 22 }}"
    registry:
      hosts:
        registry01: {ansible_host: 10.0.0.9}
"""
SETTINGS = """\
cluster_name: site
site_own: {a: [1, text, 2.5, null, true], b: "{{ inventory_hostname }} of {{ groups['gpu_nodes'] | first }}"}
training_image_source: docker.io/a/b
training_image_tag: "1"
training_image_repository: "a/{{ cluster_name }}"
nvidia_driver_branch: "580"
validation_mounts: [{path: /data, type: nfs4}]
validation_exclusions:
  - {check: xid, node: gpu01, who: me, why: known, until: "2026-12-01"}
"""

# What `size` reads of a result.
SPEED = Figure(
    "bert_base_bf16_per_rank",
    1000.0,
    "sequences/s",
    "m",
    conditions={"nodes": ["gpu01"], "ranks": 1, "nccl": True},
)
TRAINED = Result("training-throughput", Scope.GROUP, Subject(), Verdict.PASS, figures=(Judged(SPEED, ()),))
SIZE = ("size", "--parameters", "6.5B", "--gpu", "hgx-a100-80gb")


@dataclass(frozen=True)
class Site:
    """A cluster directory with one of each file: a run that was cut off, and one that ended with a result."""

    directory: ClusterDirectory
    run: Path
    ended: Path

    @property
    def store(self) -> RunStore:
        """Its runs."""
        return RunStore(self.directory)


@cache
def site() -> Site:
    """Made once a process, in a place of its own, which ends with it."""
    keep = tempfile.TemporaryDirectory(prefix="clusterctl-fuzz-")
    _KEPT.append(keep)
    directory = ClusterDirectory(Path(keep.name).resolve())
    directory.hosts_file.write_text(HOSTS)
    for name in ("group_vars", "host_vars"):
        (directory.root / name).mkdir()
    (directory.group_vars / "all.yml").write_text(SETTINGS)
    store = RunStore(directory)
    ended = store.create("validate", [])
    files.write_result(ended, _document(ended.id))
    store.finish(ended, 1, {"verdict": "fail"})
    run = replace(RunStore(directory).create("apply", ["--limit", "gpu01"]), pid=NO_PID)
    RunStore(directory).annotate(run, {"verdict": "fail", "culprits": ["gpu01"]})
    document = _document(run.id)
    files.write_result(run, document)
    assert files.write_reports(run, document) == []
    baselines.save(directory, replace(document, coverage=Coverage(1, 1, 0, 0, 0)))
    with Journal(run.journal) as journal:
        journal.write(JobStarted(1.0, "gpu01", "j1.2", limit_s=5))
        journal.write(JobStarted(1.0, "gpu02", "j3.4"))
        journal.write(JobFinished(2.0, "gpu01", "j1.2", rc=0))
    log = EventLog(run.journal)
    log.write({"type": "job_started", "job": "a", "node": "gpu01", "container": "c" * 64})
    log.close()
    acknowledged.acknowledge(directory, ["gpu01", "gpu02"])
    quarantine.put(directory, "gpu02", "broken", until="2999-01-01")
    quarantine.put(directory, "gpu03", "strange")
    known_hosts.pin(directory, "10.0.0.2", [HostKey("ssh-ed25519", "AAAA"), HostKey("x", "y")], "ours")
    lease_book.note(directory, lease_of(run, directory), ["gpu01"])
    save_record(directory, DriftRecord("gpu01", "r", "i", (Call("", "t", "module", "file", {}),), {"a": "b"}))
    lock.write(directory, _lock())
    image = mirrored.Brought("r", "a/b", "sha256:" + "0" * 64, "n", "t", "now", ("m",))
    mirrored.remember(directory, image, ["m"])
    auths = {
        REGISTRIES[0]: {"auth": base64.b64encode(b"robot:x").decode()},
        REGISTRIES[1]: {"username": "u", "password": "p"},
    }
    (directory.secrets / "registry-pull.auth.json").write_text(json.dumps({"auths": auths}))
    (directory.secrets / "registry-pull.auth.json").chmod(0o600)
    directory.mutex.write_text('{"what": "apply", "who": "me", "where": "here", "pid": 7, "since": "now"}\n')
    chain.append(directory, run.id)
    vault = Vault(directory.secrets / "registry-robots.json")
    vault.begin("nodes", SecretStr("Secret12345"), now=datetime(2026, 1, 1, tzinfo=UTC))
    vault.done("nodes", "robot$nodes", 7)
    vault.given("endpoint", SecretStr("x"), "stamp")
    vault.save()
    made = Site(directory, run.directory, ended.directory)
    good = dict.fromkeys((("hosts", "list"), ("runs", "show"), ("report",), SIZE), 0)
    for of_a_command, expected in {**good, VALIDATE: 2}.items():
        said = io.StringIO()
        with played(said, io.StringIO()):
            code = main.run(["-C", str(directory.root), *of_a_command])
        assert code == expected, said.getvalue()
    assert "validate.not-confirmed" in said.getvalue(), said.getvalue()
    return made


_KEPT: list[object] = []


# Everything that a report reads of it.
ENVIRONMENT = {
    "nodes": {"gpu01": {"driver": "580.105.08", "gpus": [{"model": "NVIDIA A100-SXM4-80GB"}]}},
    "notes": ["a note"],
    "lock": {"images": [{"name": "training", "digest": "sha256:1"}], "drift": [{"what": "driver"}]},
    "baseline": {
        "run": "earlier", "finished": "2026-11-19T19:58:12Z",
        "not_compared": ["gpu02"], "differs": ["driver"],
        "changed": [{"what": "driver", "before": "1", "now": "2", "nodes": ["gpu01"], "everywhere": False}],
    },
}  # fmt: skip


def _document(run: str) -> Document:
    return Document(
        run=run, started="2026-11-20T19:57:00Z", finished="2026-11-20T19:58:12Z", cluster="c",
        suite="quick", coverage=Coverage(1, 1, 0, 0, 0), culprits=(), results=(TRAINED,),
        environment=ENVIRONMENT,
    )  # fmt: skip


def _lock() -> lock.Lock:
    digest = "sha256:" + "0" * 64
    blob = lock.LockedBlob(digest=digest, size=7)
    image = lock.LockedImage(
        name="training", source="docker.io/a/b:1", target="a/site", tag="1", digest=digest,
        platforms=("linux/amd64",), manifest=digest, config=blob, layers=(blob,),
        drivers=(("580", "581"),),
    )  # fmt: skip
    return lock.Lock(driver="580", images=(image,))


def _listing(directory: ClusterDirectory) -> dict[str, Any]:
    """As Ansible would list the inventory, of groups and their variables alone."""
    hostvars: dict[str, dict[str, Any]] = {}
    listing: dict[str, Any] = {"_meta": {"hostvars": hostvars}}
    everywhere: dict[str, Any] = {}
    for file in (directory.group_vars / "all.yml",):
        everywhere |= bounded_yaml.load(file.read_text()) or {}

    def add(name: str, group: Any, inherited: Mapping[str, Any]) -> None:
        group = group or {}
        variables = {**inherited, **(group.get("vars") or {})}
        hosts = [(one, own or {}) for key, own in (group.get("hosts") or {}).items() for one in expand(key)]
        listing[name] = {"hosts": [one for one, _ in hosts], "children": list(group.get("children") or {})}
        for one, own in hosts:
            hostvars[one] = {**hostvars.get(one, {}), **variables, **own}
        for child, content in (group.get("children") or {}).items():
            add(child, content, variables)

    try:
        for name, group in (bounded_yaml.load(directory.hosts_file.read_text()) or {}).items():
            add(name, group, everywhere)
    except (TypeError, AttributeError, ValueError) as error:
        raise ClusterctlError("Ansible cannot read the inventory", code="inventory.unreadable") from error
    listing.setdefault("all", {"children": [name for name in listing if name not in ("_meta", "all")]})
    return listing


@contextlib.contextmanager
def played(said: io.StringIO, shown: io.StringIO) -> Iterator[None]:
    """No Ansible, no terminal, and what is printed in memory."""
    inventory.forget_cached()
    with (
        mock.patch("clusterctl.cluster.inventory._listing", _listing),
        mock.patch.object(sys, "stdin", io.StringIO()),
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(said),
    ):
        yield


def command(*words: str) -> None:
    """One command: it ends with one of four codes, it is no bug, and nothing of it acts on a terminal."""
    said, shown = io.StringIO(), io.StringIO()
    with played(said, shown):
        code = main.run(["-C", str(site().directory.root), *words])
    assert code in GOOD_CODES, f"{words}: exit {code}\n{said.getvalue()}"
    assert "internal.bug" not in said.getvalue(), f"{words}: {said.getvalue()}"
    require_plain(said.getvalue())
    require_plain(shown.getvalue())


def function(call: Callable[[], object]) -> None:
    """One function: it returns, or raises an error that is explained."""
    said = io.StringIO()
    with played(said, io.StringIO()), contextlib.suppress(ExplainedError):
        call()
    require_plain(said.getvalue())


def _of(path: Callable[[], Path], *reads: Callable[[], object]) -> Target:
    """A target of one file; it is as it was after each run. YAML is also a seed as JSON, which it may be."""

    def seeds() -> list[bytes]:
        good = path().read_bytes()
        if path().suffix not in (".yml", ".lock"):
            return [good]
        return [good, json.dumps(bounded_yaml.load(good.decode()), default=str).encode()]

    def run(data: bytes) -> None:
        file = path()
        good, mode = file.read_bytes(), file.stat().st_mode & 0o777
        try:
            for read in reads:
                file.write_bytes(data)
                read()
        finally:
            file.unlink(missing_ok=True)
            file.write_bytes(good)
            file.chmod(mode)

    return Target(path.__name__, seeds, run)


def without_chain(read: Callable[[], object]) -> Callable[[], None]:
    """The same of a site that has no chain: a result that differs from it is refused before it is read."""

    def run() -> None:
        file = chain.chain_file(site().directory)
        kept = file.rename(file.with_name("kept"))
        try:
            read()
        finally:
            kept.rename(file)

    return run


def words(*of_a_command: str) -> Callable[[], None]:
    """The command, to be called."""
    return lambda: command(*of_a_command)


def run_json() -> Path:
    return site().run / "run.json"


def journal() -> Path:
    return site().run / "journal.jsonl"


def result_json() -> Path:
    return site().ended / "result.json"


def baseline() -> Path:
    return site().directory.baseline_file


def lock_file() -> Path:
    return lock.path(site().directory)


def quarantined() -> Path:
    return site().directory.quarantine_file


def acknowledgements() -> Path:
    return site().directory.acknowledged_file


def host_keys() -> Path:
    return site().directory.known_hosts


def leases() -> Path:
    return site().directory.state / "leases.json"


def drift_record() -> Path:
    return next((site().directory.state / "probe").glob("*.json"))


def mirrored_images() -> Path:
    return mirrored.path(site().directory)


def run_chain() -> Path:
    return chain.chain_file(site().directory)


def mutex_file() -> Path:
    return site().directory.mutex


def credentials() -> Path:
    return site().directory.secrets / "registry-pull.auth.json"


def robots() -> Path:
    return site().directory.secrets / "registry-robots.json"


def hosts_yml() -> Path:
    return site().directory.hosts_file


def group_vars() -> Path:
    return site().directory.group_vars / "all.yml"


def _read_robots() -> None:
    vault = Vault(robots())
    for key in ("nodes", "none"):
        vault.robot(key), vault.is_set(key, 7), vault.made(key), vault.has_password_file(key)
    vault.knows("endpoint", SecretStr("x"), "stamp")
    vault.save()


def _change_host_keys() -> None:
    known_hosts.pinned(site().directory, "10.0.0.2")
    known_hosts.forget(site().directory, "10.0.0.2")


def _verify_chain() -> None:
    """Beside the command, as the end of a run adds a link to what is there."""
    function(lambda: chain.append(site().directory, site().run.name))
    command("runs", "verify", "--json")


def _held_by_another() -> None:
    """What the mutex says is told to who comes second."""
    with mutex_file().open("r+b") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        try:
            with mutex.held(site().directory, "apply"):
                raise AssertionError("two hold it")
        except ExplainedError as error:
            assert error.code == "engine.held"
            console.explain(error)


def _left_behind() -> None:
    store = site().store
    ours = replace(store.create("plan", []))
    try:
        left_behind(store, ours, ("gpu01",))
    finally:
        ours.path("run.json").unlink()
        ours.directory.rmdir()


READING = (words("runs", "list"), words("runs", "list", "--json"), words("runs", "show"), words("report"))
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _of(run_json, *READING, lambda: function(_left_behind)),
        _of(journal, words("runs", "show"), lambda: function(_left_behind)),
        _of(
            result_json,
            without_chain(words("report")),
            without_chain(words("report", "--format", "junit")),
            without_chain(lambda: command("runs", "show", site().ended.name, "--json")),
            without_chain(words(*SIZE)),
        ),
        _of(run_chain, words("runs", "verify"), words("report"), _verify_chain),
        _of(mutex_file, lambda: function(_held_by_another)),
        _of(
            credentials,
            *(partial(function, partial(credentials_for, credentials(), one)) for one in REGISTRIES),
        ),
        _of(baseline, words(*VALIDATE)),
        _of(lock_file, words(*VALIDATE)),
        _of(quarantined, words("hosts", "list"), words("hosts", "release", "gpu02")),
        _of(acknowledgements, words(*VALIDATE), words("validate", "--acknowledge", "gpu01")),
        _of(host_keys, words("hosts", "list"), lambda: function(_change_host_keys)),
        _of(leases, lambda: function(lambda: lease_book.entries(site().directory))),
        _of(drift_record, lambda: function(lambda: load_record(site().directory, "gpu01"))),
        _of(mirrored_images, lambda: function(lambda: mirrored.brought(site().directory))),
        _of(robots, lambda: function(_read_robots)),
        _of(hosts_yml, words("hosts", "list"), words(*VALIDATE)),
        _of(group_vars, words("hosts", "list"), words(*VALIDATE)),
    )
}
