"""The lock's signatures: one line each, nothing where there are none, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from clusterctl.cluster import bounded_yaml, lock
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.lock import Lock, LockedBlob, LockedImage, LockedSignature
from clusterctl.errors import ClusterctlError

DIGEST = f"sha256:{'a' * 64}"
BLOB = LockedBlob(digest=DIGEST, size=7)
IMAGE = LockedImage(
    name="app", source="docker.io/team/app:1", target="golden/app", tag="1", digest=DIGEST,
    platforms=("linux/amd64",), manifest=DIGEST, config=BLOB, layers=(BLOB,),
)  # fmt: skip
BY_COSIGN = LockedSignature(
    kind="cosign", key=DIGEST, signed=DIGEST, payload=DIGEST, at="2026-11-24T10:00:00Z"
)
BY_GPG = BY_COSIGN.model_copy(update={"kind": "gpg", "key": "A" * 40})


def test_without_signatures_the_lock_is_what_it_was() -> None:
    text = lock.text_of(Lock(driver="580", images=(IMAGE,)))
    assert list(yaml.safe_load(text)["images"][0]) == [
        "name", "source", "target", "tag", "digest", "platforms", "manifest", "config", "layers",
    ]  # fmt: skip
    assert lock.parse(text, Path("lock")).images == (IMAGE,)


def test_a_signature_is_one_line_and_is_read_again() -> None:
    signed = IMAGE.model_copy(update={"signatures": (BY_COSIGN, BY_GPG)})
    text = lock.text_of(Lock(images=(signed,)))
    assert len([line for line in text.splitlines() if "payload" in line]) == 2
    assert lock.parse(text, Path("lock")).images == (signed,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "keyless"),
        ("key", "a key"),
        ("signed", "latest"),
        ("payload", ""),
        ("at", "\x1b]0;x"),
        ("by", "x"),
    ],
)
def test_what_is_no_signature_is_refused(name: str, value: str) -> None:
    text = lock.text_of(Lock(images=(IMAGE.model_copy(update={"signatures": (BY_COSIGN,)}),)))
    document = yaml.safe_load(text)
    document["images"][0]["signatures"][0][name] = value
    with pytest.raises(ClusterctlError) as refused:
        lock.parse(yaml.safe_dump(document), Path("lock"))
    assert refused.value.code == "images.lock-unreadable"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("target", f"evil/x@{DIGEST}\nRUN id\n#"),
        ("target", "../x"),
        ("target", ""),
        ("tag", "1 AS x"),
        ("name", "a\x1b]0;x\x07"),
        ("source", "docker.io/a/b:1\nx"),
        ("platforms", ["linux/amd64\x9b2J"]),
        ("cuda", "12\u202e"),
        ("drivers", [["580\n", ""]]),
    ],
    ids=str,
)
def test_an_image_has_names_alone(name: str, value: object) -> None:
    document = yaml.safe_load(lock.text_of(Lock(images=(IMAGE,))))
    document["images"][0][name] = value
    with pytest.raises(ClusterctlError, match=rf"images\.0\.{name}") as refused:
        lock.parse(yaml.safe_dump(document), Path("lock"))
    assert refused.value.code == "images.lock-unreadable"
    assert "\x1b" not in str(refused.value)


def test_a_lock_that_would_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = ClusterDirectory(tmp_path)
    large = IMAGE.model_copy(update={"name": "large", "layers": (BLOB,) * 256})
    text = lock.text_of(Lock(images=(large,)))
    nodes = sum(isinstance(event, yaml.NodeEvent) for event in yaml.parse(text))
    assert nodes / len(text) * lock.MAX_WRITTEN_BYTES < bounded_yaml.MAX_NODES
    assert lock.MAX_WRITTEN_BYTES <= lock.MAX_BYTES
    monkeypatch.setattr(lock, "MAX_WRITTEN_BYTES", len(text))
    lock.write(directory, Lock(images=(large,)))
    with pytest.raises(ClusterctlError, match="most of them of large") as refused:
        lock.write(directory, Lock(images=(IMAGE, large)))
    assert refused.value.code == "images.lock-unreadable"
    assert lock.read(directory) == Lock(images=(large,))
