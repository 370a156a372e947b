"""Registries that answer without end, too slowly, with traps: read to a bound, and said what is wrong."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.hostile_server import WHO, A, asking, endless, hostile, whole
from tests.support.memory_registry import memory_registry

from clusterctl.cluster.lock import LockedBlob, LockedImage
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import resolve as resolving
from clusterctl.registry.images import verify as verifying
from clusterctl.registry.images.declared import DeclaredImage
from clusterctl.registry.images.resolve import closure, resolve
from clusterctl.registry.images.spool import LEAST_PROGRESS, Spool
from clusterctl.registry.images.verify import damage
from clusterctl.registry.oci import client as client_module
from clusterctl.registry.oci import deadline, manifest, rate
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob
from clusterctl.registry.oci.reference import parse
from clusterctl.registry.oci.retry import RetryPolicy, retry_after
from clusterctl.registry.oci.tokens import LONGEST_CHALLENGE, Challenge, challenge

DEEP = b'{"a":' * 50_000
# What the sockets of both sides hold, and what was on its way when the reader left.
ON_THE_WAY = 16 << 20


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "503 Slow", "401 Unauthorized"])
def test_a_manifest_without_end_is_read_to_its_bound(status: str):
    with (
        hostile(lambda _: endless(b" " * 65536, status=status)) as server,
        asking(server.host) as registry,
        pytest.raises(RegistryError) as refused,
    ):
        registry.manifest("a/b", "1")
    assert server.sent < manifest.LARGEST + ON_THE_WAY
    assert (refused.value.code == "images.manifest") is status.startswith("200")


def test_a_configuration_larger_than_it_says_is_not_read_on():
    with hostile(lambda _: endless(b"x" * 65536)) as server, asking(server.host) as registry:
        with pytest.raises(RegistryError) as refused:
            registry.small_blob("a/b", Blob(A, 10))
        assert refused.value.code == "images.corrupt"
        assert server.sent < ON_THE_WAY
        with pytest.raises(RegistryError) as refused:
            registry.small_blob("a/b", Blob(A, manifest.LARGEST + 1))
        assert refused.value.code == "images.manifest"
        assert len(server.asked) == 1


def test_a_blob_is_hashed_up_to_its_size_and_no_further():
    with hostile(lambda _: endless(b"x" * 65536)) as server, asking(server.host) as registry:
        found = damage(registry, "a/b", Blob(A, 1))
    assert found is not None
    assert found.code == "images.corrupt"
    assert "more than 1 bytes" in found.what
    assert server.sent < ON_THE_WAY


def one_byte_bodies() -> Iterator[bytes]:
    return endless(b" ")


def one_byte_headers() -> Iterator[bytes]:
    return itertools.chain([b"HTTP/1.1 200 OK\r\nX: "], itertools.repeat(b"x"))


def one_continue_after_another() -> Iterator[bytes]:
    return itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The clock of deadlines: a second passes with each look at it, one a read or write."""
    seconds = itertools.count()
    monkeypatch.setattr(deadline, "now", lambda: float(next(seconds)))
    return seconds


@pytest.mark.parametrize("trickle", [one_byte_bodies, one_byte_headers, one_continue_after_another])
def test_an_answer_that_trickles_ends_at_the_deadline(
    trickle: Callable[[], Iterator[bytes]], ticks: Iterator[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(deadline, "ANSWER_S", 10.0)
    with hostile(lambda _: trickle(), pause_s=0.02) as server, asking(server.host) as registry:
        with pytest.raises(RegistryError) as refused:
            registry.manifest("a/b", "1")
        assert refused.value.code == "images.unreachable"
        assert 10 <= next(ticks) <= 13
        assert len(server.asked) == 1


def test_who_takes_an_upload_too_slowly_is_left_at_the_deadline(
    ticks: Iterator[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(client_module, "COMMIT_S", 40.0)
    monkeypatch.setattr(rate, "MAX_BEHIND_S", 0.0)
    monkeypatch.setattr(rate, "WHOLE_RATE", 1e9)
    blob = Blob(A, 1 << 20)

    def answer(head: str) -> Iterator[bytes]:
        if head.startswith("POST"):
            return whole(b"", "Location: /v2/a/b/blobs/uploads/1", status="202 Accepted")
        return itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")

    with hostile(answer, pause_s=0.02) as server, asking(server.host) as registry:
        before = next(ticks)
        with pytest.raises(RegistryError) as refused:
            registry.put_blob("a/b", blob, lambda: iter([b"x" * blob.size]))
        assert refused.value.code == "images.unreachable"
        # The POST before it looks at the clock a few times of its own.
        assert 40 <= next(ticks) - before < 60


def test_a_blob_that_trickles_is_left_and_one_at_the_least_rate_is_not(monkeypatch: pytest.MonkeyPatch):
    clock = itertools.count(0.0, 2.0)
    monkeypatch.setattr(rate, "now", lambda: next(clock))
    with pytest.raises(RegistryError, match="gives 0 bytes a second") as refused:
        list(rate.fast_enough(itertools.repeat(b"x"), "host", "blob"))
    assert refused.value.lasting is False
    # Read in one call of two seconds each.
    enough = int(2 * rate.LEAST_RATE)
    assert len(list(rate.fast_enough(iter([b"x" * enough] * 100), "host", "blob"))) == 100


def test_a_registry_is_left_once_its_blobs_are_an_hour_behind(monkeypatch: pytest.MonkeyPatch):
    clock = itertools.count(0.0)
    monkeypatch.setattr(rate, "now", lambda: next(clock))  # a second passes with each piece
    pace, enough = rate.Pace(), int(2 * rate.WHOLE_RATE)

    def read(size: int, pieces: int) -> int:
        return len(list(pace.kept(iter([b"x" * size] * pieces), "host", "blob")))

    assert read(enough, 10_000) == 10_000
    blobs = iter(range(10))
    with pytest.raises(RegistryError, match="less than 100 kB a second") as refused:
        for _ in blobs:
            assert read(1100, 1000) == 1000
    assert (refused.value.code, refused.value.lasting) == ("images.unreachable", True)
    # Not more for having been fast before; nor is it asked for another.
    assert next(blobs) == 4
    with pytest.raises(RegistryError, match="less than"):
        pace.kept(iter([]), "host", "blob").__next__()


@pytest.mark.parametrize("is_kept", [False, True], ids=["hashed", "spooled"])
def test_a_blob_that_comes_bit_by_bit_is_left(is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = itertools.count(0.0, 2.0)
    monkeypatch.setattr(rate, "now", lambda: next(clock))
    monkeypatch.setattr(rate, "MAX_BEHIND_S", 100.0)
    monkeypatch.setattr(rate, "WHOLE_RATE", 1e9)
    piece, blob = b"x" * LEAST_PROGRESS, Blob(A, 1 << 30)

    def answer(_: str) -> Iterator[bytes]:
        # What came counts as progress, and another connection begins; or all comes, and no faster.
        yield b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n\r\n" % (
            len(piece) if is_kept else blob.size
        )
        yield from itertools.repeat(piece, 1 if is_kept else blob.size // len(piece))

    with hostile(answer) as server, asking(server.host) as registry:
        with pytest.raises(RegistryError, match="kB a second for each blob"):
            if is_kept:
                list(Spool(tmp_path).stream(registry, "a/b", blob))
            else:
                registry.hash_blob("a/b", blob)
        assert server.sent < blob.size / 2


@pytest.mark.parametrize("start", [b"1;x=", b"1\r\nx\r\n0\r\nX: "], ids=["chunk header", "trailer"])
def test_a_blob_whose_bytes_do_not_become_a_piece_is_left(start: bytes, ticks: Iterator[int]):
    def answer(_: str) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + start
        yield from itertools.repeat(b"a")

    with hostile(answer, pause_s=0.02) as server, asking(server.host) as registry:
        with pytest.raises(RegistryError) as refused:
            registry.hash_blob("a/b", Blob(A, 100))
        assert (refused.value.code, refused.value.lasting) == ("images.unreachable", False)
        assert len(server.asked) == 1
    assert next(ticks) < 5 * rate.RATE_SEEN_S


def documents_of_a_list(many: int) -> tuple[str, dict[str, bytes]]:
    """The digest of a list of so many images, and all manifests by their digests."""
    images = [
        json.dumps(
            {"mediaType": manifest.OCI_MANIFEST, "config": {"digest": A, "size": n}, "layers": []}
        ).encode()
        for n in range(many)
    ]
    entries = [{"digest": manifest.digest_of(one), "size": len(one)} for one in images]
    top = json.dumps({"mediaType": manifest.OCI_INDEX, "manifests": entries}).encode()
    return manifest.digest_of(top), {manifest.digest_of(one): one for one in (top, *images)}


def test_all_manifests_of_an_image_have_one_time_limit(ticks: Iterator[int], monkeypatch: pytest.MonkeyPatch):
    digest, documents = documents_of_a_list(50)
    media_type = f"Content-Type: {manifest.OCI_INDEX}"
    with (
        hostile(lambda head: whole(documents[head.split()[1].rpartition("/")[2]], media_type)) as server,
        asking(server.host) as registry,
    ):
        assert len(closure(registry, "a/b", digest)) == 51
        server.asked.clear()
        monkeypatch.setattr(resolving, "DESCRIBE_S", 60.0)
        with pytest.raises(RegistryError) as refused:
            closure(registry, "a/b", digest)
        assert refused.value.code == "images.unreachable"
        assert 1 < len(server.asked) < 40


def test_all_blobs_that_are_looked_for_have_one_time_limit(
    ticks: Iterator[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verifying, "SURVEY_S", 60.0)
    layers = tuple(LockedBlob(digest=f"sha256:{n:064x}", size=1) for n in range(50))
    described = json.dumps(
        {"mediaType": manifest.OCI_MANIFEST, "config": {"digest": layers[0].digest, "size": 1},
         "layers": [{"digest": one.digest, "size": 1} for one in layers]}
    ).encode()  # fmt: skip
    image = LockedImage(
        name="one", source="docker.io/a/b:1", target="a/b", digest=manifest.digest_of(described),
        manifest=manifest.digest_of(described), platforms=("linux/amd64",), config=layers[0], layers=layers,
    )  # fmt: skip

    def answer(head: str) -> Iterator[bytes]:
        is_manifest = "/manifests/" in head.split()[1]
        return whole(described if is_manifest else b"", f"Content-Type: {manifest.OCI_MANIFEST}")

    with hostile(answer) as server, asking(server.host) as registry:
        (outcome,) = verifying.verify([image], registry, jobs=1, deep=False)
        assert outcome.error is not None
        assert outcome.error.code == "images.unreachable"
        assert 1 < len(server.asked) < 40


def test_an_image_whose_layers_nodes_ask_elsewhere_is_not_whole() -> None:
    part = {"digest": manifest.digest_of(b""), "size": 0}
    said = {
        "mediaType": manifest.OCI_MANIFEST,
        "config": part,
        "layers": [{**part, "urls": ["http://192.0.2.1/"]}],
    }
    top = manifest.read(json.dumps(said).encode(), manifest.OCI_MANIFEST, "test")
    image = LockedImage(
        name="one", source="docker.io/a/b:1", target="a/b", digest=top.digest, manifest=top.digest,
        platforms=(), config=LockedBlob(**part), layers=(),
    )  # fmt: skip
    with memory_registry() as running, running.client() as registry:
        running.put_manifest("a/b", top)
        running.put_blob("a/b", b"")
        (outcome,) = verifying.verify([image], registry, jobs=1, deep=False)
    assert outcome.error is not None
    assert outcome.error.code == "images.manifest"


def test_a_list_that_lists_the_same_again_is_asked_for_once():
    leaf = json.dumps({"mediaType": manifest.OCI_MANIFEST, "config": {"digest": A, "size": 1}, "layers": []})
    documents = {manifest.digest_of(leaf.encode()): leaf.encode()}
    top = next(iter(documents))
    for _ in range(3):
        entry = {"digest": top, "size": 1}
        raw = json.dumps({"mediaType": manifest.OCI_INDEX, "manifests": [entry] * 900}).encode()
        top = manifest.digest_of(raw)
        documents[top] = raw

    def answer(head: str) -> Iterator[bytes]:
        return whole(documents[head.split()[1].rpartition("/")[2]])

    with hostile(answer) as server, asking(server.host) as registry:
        found = closure(registry, "a/b", top)
        assert [one.digest for one in found] == list(documents)
        assert len(server.asked) == 4


def test_lists_within_lists_and_images_of_too_many_manifests_are_refused(monkeypatch: pytest.MonkeyPatch):
    def chain(length: int) -> dict[str, bytes]:
        documents, below = {}, []
        for _ in range(length):
            raw = json.dumps({"mediaType": manifest.OCI_INDEX, "manifests": below}).encode()
            documents[manifest.digest_of(raw)] = raw
            below = [{"digest": manifest.digest_of(raw), "size": 1}]
        return documents

    for length, many in ((resolving.MAX_DEPTH + 1, None), (3, 2)):
        documents = chain(length)
        if many is not None:
            monkeypatch.setattr(resolving, "MAX_MANIFESTS", many)

        def answer(head: str, documents: dict[str, bytes] = documents) -> Iterator[bytes]:
            return whole(documents[head.split()[1].rpartition("/")[2]])

        with hostile(answer) as server, asking(server.host) as registry:
            with pytest.raises(RegistryError) as refused:
                closure(registry, "a/b", list(documents)[-1])
            assert refused.value.code == "images.manifest"
            assert len(server.asked) == (resolving.MAX_DEPTH if many is None else many)


def test_manifests_that_are_large_together_are_refused(monkeypatch: pytest.MonkeyPatch):
    leaf = json.dumps({"mediaType": manifest.OCI_INDEX, "manifests": [], "padding": "x" * 1000}).encode()
    top = json.dumps(
        {"mediaType": manifest.OCI_INDEX, "manifests": [{"digest": manifest.digest_of(leaf), "size": 1}]}
    ).encode()
    documents = {manifest.digest_of(raw): raw for raw in (leaf, top)}

    def answer(head: str) -> Iterator[bytes]:
        return whole(documents[head.split()[1].rpartition("/")[2]])

    monkeypatch.setattr(resolving, "MAX_TOTAL_BYTES", len(leaf) + len(top))
    with hostile(answer) as server, asking(server.host) as registry:
        assert len(closure(registry, "a/b", manifest.digest_of(top))) == 2
        monkeypatch.setattr(resolving, "MAX_TOTAL_BYTES", len(leaf) + len(top) - 1)
        with pytest.raises(RegistryError, match="of manifests") as refused:
            closure(registry, "a/b", manifest.digest_of(top))
        assert refused.value.code == "images.manifest"


def test_a_blob_that_is_whole_and_shorter_than_its_manifest_says_is_not_called_damaged():
    content = b"whole"
    with hostile(lambda _: whole(content)) as server, asking(server.host) as registry:
        found = damage(registry, "a/b", Blob(manifest.digest_of(content), 9))
    assert found is not None
    assert found.code == "images.manifest"
    assert "said to have 9 bytes, and has 5" in found.what


def test_an_image_of_too_many_blobs_is_refused(monkeypatch: pytest.MonkeyPatch):
    blobs = [{"digest": f"sha256:{number:064x}", "size": 1} for number in range(4)]
    raw = json.dumps({"mediaType": manifest.OCI_MANIFEST, "config": blobs[0], "layers": blobs[1:]}).encode()
    monkeypatch.setattr(resolving, "MAX_BLOBS", 4)
    with hostile(lambda _: whole(raw)) as server, asking(server.host) as registry:
        assert len(closure(registry, "a/b", manifest.digest_of(raw))) == 1
        monkeypatch.setattr(resolving, "MAX_BLOBS", 3)
        with pytest.raises(RegistryError, match="more than 3 blobs") as refused:
            closure(registry, "a/b", manifest.digest_of(raw))
        assert refused.value.code == "images.manifest"


def test_a_challenge_takes_time_in_proportion_to_its_length():
    # Run with `_PARAMETER` as it was, 60,000 letters took 14 seconds.
    hostile_ones = ["a" * 60_000, 'a="' * 20_000, 'a="\\' * 15_000, "a=" * 30_000, '\\"' * 30_000]
    honest = 'a="b",' * LONGEST_CHALLENGE
    for text in hostile_ones:
        assert challenge(f"Bearer {text}") == Challenge("")
        # In proportion to the square it is more than 500 times as long.
        assert seconds_to_read(text) < 50 * seconds_to_read(honest)


def seconds_to_read(text: str) -> float:
    """Of the longest challenge that starts so; the least of a few times."""
    header, found = f"Bearer {text[: LONGEST_CHALLENGE - 7]}", []
    for _ in range(5):
        began = time.process_time()
        assert challenge(header).scheme == "bearer"
        found.append(time.process_time() - began)
    return min(found)


@pytest.mark.parametrize("raw", [DEEP, b"[" * 50_000, b'{"manifests": [' + DEEP, b"\xff", b'"\\ud800"'])
def test_deep_documents_are_said_wherever_they_stand(raw: bytes):
    config = {"digest": manifest.digest_of(raw), "size": len(raw)}
    good = json.dumps({"mediaType": manifest.OCI_MANIFEST, "config": config, "layers": []}).encode()
    for bad in ("manifest", "config", "error", "token"):

        def answer(head: str, bad: str = bad) -> Iterator[bytes]:
            if bad == "error":
                return whole(raw, status="400 Bad Request")
            if head.startswith("GET /token"):
                return whole(raw)
            if bad == "token":
                realm = f'Bearer realm="http://{head.partition("Host: ")[2].split()[0]}/token"'
                return whole(b"", f"WWW-Authenticate: {realm}", status="401 Unauthorized")
            if "/blobs/" in head.split()[1]:
                return whole(raw)
            return whole(raw if bad == "manifest" else good, f"Content-Type: {manifest.OCI_INDEX}")

        with (
            hostile(answer) as server,
            asking(server.host, credentials=WHO) as registry,
            pytest.raises(ClusterctlError) as refused,
        ):
            resolve(DeclaredImage("one", parse(f"http://{server.host}/a/b:1"), "a/b", "1"), registry)
        codes = {"error": "images.refused", "token": "images.login-refused"}
        assert refused.value.code == codes.get(bad, "images.manifest")


@pytest.mark.parametrize("inside", [{"Env": [5]}, {"Env": {}}, {"Labels": {"a": 7}}, {"Labels": [1]}])
def test_a_configuration_of_other_kinds_is_said(inside: dict[str, object]):
    raw = json.dumps({"os": "linux", "architecture": "amd64", "config": inside}).encode()
    config = {"digest": manifest.digest_of(raw), "size": len(raw)}
    good = json.dumps({"mediaType": manifest.OCI_MANIFEST, "config": config, "layers": []}).encode()
    with (
        hostile(lambda head: whole(raw if "/blobs/" in head else good)) as server,
        asking(server.host) as registry,
        pytest.raises(ClusterctlError) as refused,
    ):
        resolve(DeclaredImage("one", parse(f"http://{server.host}/a/b:1"), "a/b", "1"), registry)
    assert refused.value.code == "images.manifest"


def test_texts_of_a_registry_are_cleaned_before_they_are_kept():
    raw = json.dumps(
        {"os": "linux\x1b]0;x\x07", "architecture": "amd64\u202e", "config": {
            "Env": [f"NCCL_VERSION=\x1b[31m2.2{'9' * 9000}", f"NVIDIA_REQUIRE_CUDA=driver>={'1' * 5000}"],
            "Labels": {"org.clusterctl.cuda": "12.9\x1b[0m"}}}
    ).encode()  # fmt: skip
    config = {"digest": manifest.digest_of(raw), "size": len(raw)}
    good = json.dumps({"mediaType": manifest.OCI_MANIFEST, "config": config, "layers": []}).encode()
    with (
        hostile(lambda head: whole(raw if "/blobs/" in head else good)) as server,
        asking(server.host) as registry,
    ):
        found = resolve(DeclaredImage("one", parse(f"http://{server.host}/a/b:1"), "a/b", "1"), registry)
    assert (found.platforms, found.cuda) == (("linux/amd64",), "12.9")
    assert found.nccl.isprintable()
    assert len(found.nccl) <= resolving.LONGEST_VERSION


@pytest.mark.parametrize(
    "header", ["nan", "-nan", "Thu, 01 Jan 0001 00:00:00 +2300", "Z" * 60_000, "9" * 60_000]
)
def test_when_to_come_back_is_said_in_a_way_that_cannot_be_waited_for(header: str):
    found = retry_after(header)
    assert found is None or found >= 0
    RetryPolicy(first_s=0, most_s=0).pause(1, found)


def test_a_digest_of_another_kind_becomes_no_name_of_a_file():
    layer = {"digest": f"sha256:{'a' * 64}\n", "size": 1}
    raw = json.dumps({"mediaType": manifest.OCI_MANIFEST, "config": layer, "layers": []}).encode()
    with pytest.raises(ClusterctlError) as refused:
        manifest.read(raw, "", "here")
    assert refused.value.code == "images.manifest"
    assert hashlib.sha256(raw).hexdigest() not in refused.value.what
