"""Whatever is done to one file of a cluster directory, each command ends, and with a sentence."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.corrupted import DAMAGE, restore

from clustercheck.expect.baseline import SCHEMA
from clustercheck.model import Coverage
from clustercheck.result.document import Document
from clusterctl.cluster import acknowledged, known_hosts, lock, quarantine
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.known_hosts import HostKey
from clusterctl.engine import lease_book
from clusterctl.engine.lease import lease_of
from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor.vault import Vault
from clusterctl.registry.images import mirrored
from clusterctl.report import files
from clusterctl.rollout.drift.calls import Call
from clusterctl.rollout.drift.records import DriftRecord, save_record
from clusterctl.runs.chain import chain_file
from clusterctl.runs.events import EventLog
from clusterctl.runs.store import RunStore

# A command that waits, or reads without end, would do so for ever.
pytestmark = pytest.mark.timeout(600)
READING = (
    ("runs", "list"),
    ("runs", "list", "--json"),
    ("runs", "show"),
    ("runs", "show", "last", "--json"),
    ("report",),
    ("report", "--format", "junit"),
)
VALIDATE = ("validate", "--since-ack", "--force-busy")  # ends where it asks, before it contacts a host
APPLY = ("apply", "--yes")
SIZE = ("size", "--parameters", "6.5B", "--gpu", "hgx-a100-80gb")
COMMANDS = {
    "run.json": (*READING, VALIDATE, APPLY, ("plan",)),
    "journal.jsonl": (*READING, VALIDATE, APPLY),
    "result.json": (*READING, VALIDATE, SIZE),
    "evidence.json": (*READING, ("runs", "verify")),
    "chain.jsonl": (*READING, ("runs", "verify"), ("runs", "verify", "--json"), APPLY),
    "baseline.json": (VALIDATE,),
    "acknowledged.yml": (VALIDATE, ("validate", "--acknowledge", "gpu01")),
    "quarantine.yml": (("hosts", "list"), VALIDATE, APPLY, ("hosts", "release", "gpu02")),
    "known_hosts": (("hosts", "list"), ("hosts", "list", "--json")),
    "leases.json": (APPLY, ("leases", "release", "none", "--yes")),
    "mutex": (APPLY, ("runs", "list")),
    "probe record": (APPLY,),
    "clusterctl.lock": (("plan",), APPLY, VALIDATE, ("images", "list")),
    "hosts.yml": (("hosts", "list"), APPLY, VALIDATE, *READING[:1]),
    "group_vars": (("hosts", "list"), APPLY),
    "host_vars": (("hosts", "list"), APPLY),
}


@pytest.fixture
def state(cluster: ClusterDirectory, no_terminal: None) -> dict[str, Path]:
    """A cluster directory with one of each file, by its name here."""
    store = RunStore(cluster)
    run = store.create("validate", [])
    EventLog(run.journal).close()
    with run.journal.open("a") as stream:
        stream.write('{"at": "x", "type": "job_started", "job": "a", "node": "gpu01", "container": "c"}\n')
    document = Document(
        run=run.id, started="2026-11-20T19:57:00Z", finished="2026-11-20T19:58:12Z", cluster="c",
        suite="quick", coverage=Coverage(1, 1, 0, 0, 0), culprits=(), results=(), environment={},
    )  # fmt: skip
    files.write_result(run, document)
    assert files.write_reports(run, document) == []
    run.path("evidence.json").write_text('{"nodes": {}}\n')
    store.finish(run, 0, {"verdict": "pass"})
    cluster.baseline_file.write_text(
        json.dumps({"schema": SCHEMA, "run": "r", "finished": "2026-11-20T19:58:12Z", "simulated": True,
                    "nodes": {"gpu01": {"driver": "1", "gpus": {}}}, "figures": []})
    )  # fmt: skip
    acknowledged.acknowledge(cluster, ["gpu01"])
    quarantine.put(cluster, "gpu02", "broken", until="2999-01-01")
    known_hosts.pin(cluster, "192.0.2.1", [HostKey("ssh-ed25519", "AAAA")], "ours")
    lease_book.note(cluster, lease_of(run, cluster), ["gpu01"])
    cluster.mutex.write_text("{}\n")
    save_record(
        cluster, DriftRecord("gpu01", run.id, "i", (Call("", "t", "module", "file", {}),), {"a": "b"})
    )
    lock.write(cluster, lock.Lock(driver="580"))
    for name in ("group_vars/all.yml", "host_vars/gpu01.yml"):
        (cluster.root / name).parent.mkdir()
        (cluster.root / name).write_text("site_own: {a: [1, text]}\n")
    return {
        "run.json": run.path("run.json"),
        "journal.jsonl": run.journal,
        "result.json": run.path("result.json"),
        "evidence.json": run.path("evidence.json"),
        "chain.jsonl": chain_file(cluster),
        "baseline.json": cluster.baseline_file,
        "acknowledged.yml": cluster.acknowledged_file,
        "quarantine.yml": cluster.quarantine_file,
        "known_hosts": cluster.known_hosts,
        "leases.json": cluster.state / "leases.json",
        "mutex": cluster.mutex,
        "probe record": next((cluster.state / "probe").glob("*.json")),
        "clusterctl.lock": cluster.root / "clusterctl.lock",
        "hosts.yml": cluster.hosts_file,
        "group_vars": cluster.root / "group_vars" / "all.yml",
        "host_vars": cluster.root / "host_vars" / "gpu01.yml",
    }


def ends_well(
    clusterctl: Callable[..., int], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The exit code, and what was said."""
    code = clusterctl(*words)
    said = capsys.readouterr().err
    assert code in (0, 1, 2, 3), (words, code, said)
    assert "internal.bug" not in said, (words, said)
    return code, said


def test_all_commands_work_without_damage(state, clusterctl, capsys) -> None:
    for words in dict.fromkeys(words for some in COMMANDS.values() for words in some):
        code, said = ends_well(clusterctl, words, capsys)
        assert code == 0 or "not-confirmed" in said or "no run 'none'" in said or "none" in words, said


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_file_is_explained_or_omitted(state, clusterctl, capsys, name: str) -> None:
    path = state[name]
    if name == "result.json":  # else it is refused before it is read
        state["chain.jsonl"].unlink()
    content, mode = path.read_bytes(), path.stat().st_mode & 0o777
    for damage in DAMAGE.values():
        for words in COMMANDS[name]:
            restore(path, content, mode)
            damage(path)
            ends_well(clusterctl, words, capsys)


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Path]]:
    """Paths that may not be opened; the tests may run as root, whom no mode stops."""
    paths: set[Path] = set()
    real = os.open

    def opened(path: object, *arguments: object, **options: object) -> int:
        if isinstance(path, (str, Path)) and Path(path) in paths:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opened)
    yield paths


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_may_not_be_read_is_explained_or_omitted(
    state, clusterctl, capsys, denied: set[Path], name: str
) -> None:
    denied.add(state[name])
    for words in COMMANDS[name]:
        ends_well(clusterctl, words, capsys)


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_record_of_secrets_or_images_is_an_explained_error(
    cluster: ClusterDirectory, how: str
) -> None:
    cluster.ensure_state()
    vault, path = cluster.secrets / "registry-robots.json", mirrored.path(cluster)
    Vault(vault).save()
    image = mirrored.Brought("r", "a/b", "sha256:" + "0" * 64, "n", "t", "now", ("m",))
    mirrored.remember(cluster, image, ["m"])
    for file, read, code in (
        (vault, lambda: Vault(vault), "registry.vault"),
        (path, lambda: mirrored.brought(cluster), "images.record-unreadable"),
    ):
        assert read() is not None
        DAMAGE[how](file)
        if how == "a list" and file == path:
            assert mirrored.brought(cluster) == []
        elif how == "a link to nothing":
            assert read() is not None
        else:
            with pytest.raises(ClusterctlError) as caught:
                read()
            assert (caught.value.code, caught.value.exit_code) == (code, 2)
            assert caught.value.hint
