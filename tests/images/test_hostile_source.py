"""A source says of its own images what it likes: images of other sources are none the worse for it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from tests.support.memory_registry import MemoryRegistry, memory_registry
from tests.support.registries import Made, Proxy, Running, bytes_of, cluster_directory, put_image

from clusterctl.registry.images import offers, spool
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.answers import MAX_LAYER_BYTES
from clusterctl.registry.oci.manifest import Manifest

from .driving import MB, call, good, mirror, records

CONFIG = b'{"os":"linux","architecture":"amd64"}'


def put_lie(source: MemoryRegistry, layer: str, size: int, content: bytes | None = b"") -> Manifest:
    """An image with this layer, said to be of this size; ``content`` is what the source gives of it."""
    source.put_blob("t/bad", CONFIG)
    if content is not None:
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


@pytest.mark.parametrize("told", ["lacks it", "says it has it"])
@pytest.mark.parametrize("when", ["together", "later", "in one repository"])
def test_a_listed_layer_of_another_source_is_not_given_to_who_lacks_it(
    tmp_path: Path, source: Running, destination: Running, when: str, told: str
) -> None:
    (private,) = made_at(source)[0].layers
    other = bytes_of("other", private.size) if told == "says it has it" else None
    with memory_registry() as hostile:
        put_lie(hostile, private.digest, private.size, other)
        targets = ("m/both:bad", "m/both:good") if when == "in one repository" else ("m/bad", "m/good")
        images = [
            {"source": f"http://{host}/t/{name}:1", "target": target, "name": name}
            for name, host, target in zip(("bad", "good"), (hostile.host, source.host), targets, strict=True)
        ]
        root = cluster_directory(tmp_path / "site", images)
        good(call(root, "lock"))
        if when != "together":
            good(mirror(root, destination, "good"))
        done = mirror(root, destination)
        expected = "images.corrupt" if told == "says it has it" else "images.not-found"
        mirrored = "copied" if when == "together" else "there"
        assert states(records(done)) == {"bad": ("failed", expected), "good": (mirrored, None)}
        with destination.client() as client:
            assert client.has_blob("m/both" if when == "in one repository" else "m/good", private.digest)
            assert when == "in one repository" or not client.has_blob("m/bad", private.digest)
        for _ in range(2):  # as much is here already the second time
            bundle = call(root, "images", "bundle", "create", str(tmp_path / "usb"), "--json")
            assert states(records(bundle)) == {"bad": ("failed", expected), "good": ("copied", None)}
        assert hostile.host in next(one["where"] for one in records(bundle) if one.get("code"))


def test_a_layer_that_two_sources_have_is_asked_of_both(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    layer = bytes_of("shared", MB)
    for name in ("one", "two"):
        made = put_image(source.host, f"t/{name}", "1", [layer], labels={"name": name})
    images = [
        {"source": f"http://{host}/t/{name}:1", "target": f"m/{name}"}
        for name, host in (("one", source.host), ("two", before_source.host))
    ]
    root = cluster_directory(tmp_path / "site", images)
    good(call(root, "lock"))
    done = records(good(mirror(root, destination)))
    assert states(done) == {"one": ("copied", None), "two": ("copied", None)}
    asked = [path for method, path, _ in before_source.seen if method == "GET"]
    assert sum(made.layers[0].digest in path for path in asked) == 1
    for asked_for in (2, 2):  # what is here already is asked of none
        bundle = good(call(root, "images", "bundle", "create", str(tmp_path / "usb"), "--json"))
        assert states(records(bundle)) == {"one": ("copied", None), "two": ("copied", None)}
        asked = [path for method, path, _ in before_source.seen if method == "GET"]
        assert sum(made.layers[0].digest in path for path in asked) == asked_for


@pytest.mark.parametrize("finished", [True, False], ids=["of a finished bundle", "of one cut off"])
def test_a_layer_on_a_medium_is_not_given_to_who_lacks_it(
    tmp_path: Path, source: Running, finished: bool
) -> None:
    (private,) = made_at(source)[0].layers
    with memory_registry() as hostile:
        put_lie(hostile, private.digest, private.size, None)
        images = [
            {"source": f"http://{host}/t/{name}:1", "target": f"m/{name}"}
            for name, host in (("bad", hostile.host), ("good", source.host))
        ]
        for names in (("good",) if finished else ("good", "bad"), ("bad",)):
            chosen = [one for one in images if one["target"].removeprefix("m/") in names]
            root = cluster_directory(tmp_path / "site", chosen)
            good(call(root, "lock"))
            bundle = call(root, "images", "bundle", "create", str(tmp_path / "usb"), "--json")
            found = states(records(bundle))
            assert found.pop("bad", None) == (("failed", "images.not-found") if "bad" in names else None)
            assert set(found.values()) <= {("copied", None)}


def test_a_source_that_does_not_say_what_it_has_holds_no_bundle_up(
    tmp_path: Path, source: Running, before_source: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its answers together have a time limit; then each of its repositories gives the layer itself."""
    monkeypatch.setattr(offers, "SURVEY_S", 3.0)
    layer, over = bytes_of("shared", MB), threading.Event()
    for name in ("one", "two"):
        made = put_image(source.host, f"t/{name}", "1", [layer], labels={"name": name})
    host = before_source.host
    images = [{"source": f"http://{host}/t/{name}:1", "target": f"m/{name}"} for name in ("one", "two")]
    root = cluster_directory(tmp_path / "site", images)
    good(call(root, "lock"))

    def hold(method: str, path: str, _number: int) -> None:
        if method == "HEAD" and "/blobs/" in path:
            over.wait(60)

    before_source.fault = hold
    done = good(call(root, "images", "bundle", "create", str(tmp_path / "usb"), "--json"))
    over.set()
    assert states(records(done)) == {"one": ("copied", None), "two": ("copied", None)}
    asked = [path for method, path, _ in before_source.seen if method == "GET"]
    assert sum(made.layers[0].digest in path for path in asked) == 2


def test_what_one_source_gave_for_a_repository_is_mounted_in_another(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    layer = bytes_of("shared", MB)
    for name in ("one", "two", "three"):
        made = put_image(source.host, f"t/{name}", "1", [layer], labels={"name": name})
    root = cluster_directory(
        tmp_path / "site",
        [{"source": f"http://{before_source.host}/t/{n}:1", "target": f"m/{n}"} for n in ("one", "two")],
    )
    good(call(root, "lock"))
    good(mirror(root, destination))
    cluster_directory(
        root,
        [
            {"source": f"http://{before_source.host}/t/{name}:1", "target": f"m/{name}"}
            for name in ("one", "two", "three")
        ],
    )
    good(call(root, "lock"))
    assert states(records(good(mirror(root, destination))))["three"] == ("copied", None)
    asked = [path for method, path, _ in before_source.seen if method == "GET"]
    assert sum(made.layers[0].digest in path for path in asked) == 1
    good(call(root, "images", "bundle", "create", str(tmp_path / "usb"), "--json"))
    asked = [path for method, path, _ in before_source.seen if method == "GET"]
    assert sum(made.layers[0].digest in path for path in asked) == 2


def test_a_repository_that_lists_a_layer_of_another_one_does_not_get_it(
    tmp_path: Path, destination: Running
) -> None:
    """Both are of one registry, which says what each has."""
    layer = b"of somebody else"
    digest = manifest.digest_of(layer)
    with memory_registry() as shared:
        put_lie(shared, digest, len(layer), None)
        bad = shared.answers["t/bad/manifests/1"][1]
        found = manifest.read(bad.replace(b'"l"', b'"x"'), manifest.OCI_MANIFEST, "test")
        shared.put_manifest("t/good", found, "1")
        for content in (CONFIG, layer):
            shared.put_blob("t/good", content)
        images = [
            {"source": f"http://{shared.host}/t/{name}:1", "target": f"m/{name}"} for name in ("bad", "good")
        ]
        root = cluster_directory(tmp_path / "site", images)
        good(call(root, "lock"))
        expected = {"bad": ("failed", "images.not-found"), "good": ("copied", None)}
        assert states(records(mirror(root, destination))) == expected
        bundle = call(root, "images", "bundle", "create", str(tmp_path / "usb"), "--json")
        assert states(records(bundle)) == expected
