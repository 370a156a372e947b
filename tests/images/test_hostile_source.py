"""A source says of its own images what it likes: images of other sources are none the worse for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.memory_registry import MemoryRegistry, memory_registry
from tests.support.registries import Made, Running, bytes_of, cluster_directory, put_image

from clusterctl.registry.images import spool
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.answers import MAX_LAYER_BYTES
from clusterctl.registry.oci.manifest import Manifest

from .driving import MB, call, good, mirror, records

CONFIG = b'{"os":"linux","architecture":"amd64"}'


def put_lie(source: MemoryRegistry, layer: str, size: int, content: bytes = b"") -> Manifest:
    """An image with this layer, said to be of this size; ``content`` is what the source gives of it."""
    source.put_blob("t/bad", CONFIG)
    source.put_blob("t/bad", content, layer)
    said = {
        "schemaVersion": 2, "mediaType": manifest.OCI_MANIFEST,
        "config": {"mediaType": "c", "digest": manifest.digest_of(CONFIG), "size": len(CONFIG)},
        "layers": [{"mediaType": "l", "digest": layer, "size": size}],
    }  # fmt: skip
    top = manifest.read(json.dumps(said).encode(), manifest.OCI_MANIFEST, "test")
    source.put_manifest("t/bad", top, "1")
    return top


def locked_site(root: Path, hostile: MemoryRegistry, honest: Running) -> Path:
    sources = {"bad": hostile.host, "good": honest.host}
    cluster_directory(
        root, [{"source": f"http://{host}/t/{n}:1", "target": f"m/{n}"} for n, host in sources.items()]
    )
    good(call(root, "lock"))
    return root


def made_at(source: Running) -> tuple[Made, bytes]:
    layer = bytes_of("shared", MB)
    return put_image(source.host, "t/good", "1", [layer]), layer


def states(lines: list[dict]) -> dict[str, tuple[str, str | None]]:
    return {one["name"]: (one["state"], one.get("code")) for one in lines if one["type"] == "image"}


def test_a_wrong_size_of_a_layer_fails_only_the_image_whose_source_says_it(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    made, layer = made_at(source)
    with memory_registry() as hostile:
        put_lie(hostile, made.layers[0].digest, 5, layer)
        root = locked_site(tmp_path / "site", hostile, source)
        done = mirror(root, destination)
        assert done.return_value == 1
        assert states(records(done)) == {"bad": ("failed", "images.corrupt"), "good": ("copied", None)}
        (failed,) = [one for one in records(done) if one.get("code")]
        assert hostile.host in failed["where"]
        bundle = call(root, "images", "bundle", "create", str(tmp_path / "usb"), "--json")
        assert states(records(bundle)) == {"bad": ("failed", "images.corrupt"), "good": ("copied", None)}


def test_an_image_that_does_not_fit_keeps_no_other_away(
    tmp_path: Path, source: Running, destination: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "free_on", lambda _: MAX_LAYER_BYTES // 2)
    made, layer = made_at(source)
    with memory_registry() as hostile:
        put_lie(hostile, made.layers[0].digest, MAX_LAYER_BYTES, layer)
        root = locked_site(tmp_path / "site", hostile, source)
        done = mirror(root, destination)
    assert done.return_value == 1
    assert states(records(done)) == {"bad": ("failed", "images.no-space"), "good": ("copied", None)}


def test_a_layer_larger_than_any_is_not_locked(tmp_path: Path, source: Running) -> None:
    made, _ = made_at(source)
    with memory_registry() as hostile:
        put_lie(hostile, made.layers[0].digest, MAX_LAYER_BYTES)
        raw = hostile.answers["t/bad/manifests/1"][1]
        larger = raw.replace(str(MAX_LAYER_BYTES).encode(), str(MAX_LAYER_BYTES + 1).encode())
        hostile.answers["t/bad/manifests/1"] = (manifest.OCI_MANIFEST, larger)
        root = tmp_path / "site"
        cluster_directory(root, [{"source": f"http://{hostile.host}/t/bad:1", "target": "m/bad"}])
        assert "images.manifest" in f"{call(root, 'lock', '--json').output}"


def test_a_wrong_size_of_a_layer_makes_no_other_image_damaged(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    made, layer = made_at(source)
    with memory_registry() as hostile:
        lie = put_lie(hostile, made.layers[0].digest, 5, layer)
        root = locked_site(tmp_path / "site", hostile, source)
        mirror(root, destination)
        with destination.client() as client:  # as it stands where it was written before the layer was missing
            for blob, content in zip(lie.blobs, (CONFIG, layer), strict=True):
                true = manifest.Blob(blob.digest, len(content))
                client.put_blob("m/bad", true, lambda content=content: iter([content]))
            client.put_manifest("m/bad", lie, "1")
        for command in ("verify", "mirror"):
            done = call(root, "images", command, "--deep", "--to", f"http://{destination.host}", "--json")
            assert states(records(done)) == {"bad": ("failed", "images.corrupt"), "good": ("there", None)}
            (failed,) = [one for one in records(done) if one.get("code")]
            assert "more than 5 bytes" in failed["what"]
            assert "this manifest is wrong, and nothing is damaged" in failed["hint"]
