"""`images bundle load --check` finds what `load` would stop at."""

from __future__ import annotations

import hashlib
import json

import pytest

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.lock import Lock, LockedBlob, LockedImage
from clusterctl.registry.oci.manifest import OCI_INDEX, OCI_MANIFEST

SETTINGS = {
    "training_image_source": "docker.io/x/paddle", "training_image_tag": "1", "nvidia_driver_branch": "580",
}  # fmt: skip
CONFIG, LAYER = b"{}", b"a layer"
OTHER = f"sha256:{'b' * 64}"


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def manifest(config=CONFIG, layer=LAYER):
    described = [{"digest": digest(one), "size": len(one)} for one in (config, layer)]
    return json.dumps({"mediaType": OCI_MANIFEST, "config": described[0], "layers": described[1:]}).encode()


def listing_of(*digests):
    entries = [{"digest": one, "size": 1} for one in digests]
    return json.dumps({"mediaType": OCI_INDEX, "manifests": entries}).encode()


def image(top, inner, **other):
    blobs = [LockedBlob(digest=digest(one), size=len(one)) for one in (CONFIG, LAYER)]
    return LockedImage(
        **{"name": "training", "source": "docker.io/x/paddle:1", "target": "library/paddle", "tag": "1",
           "digest": digest(top), "manifest": digest(inner), "platforms": ("linux/amd64",),
           "config": blobs[0], "layers": tuple(blobs[1:]), **other}
    )  # fmt: skip


def bundle(place, lock, manifests, blobs, name="training"):
    (place / "parts").mkdir(parents=True)

    def item(content):
        name = hashlib.sha256(content).hexdigest()
        (place / "parts" / name).write_bytes(content)
        return {"sha256": name, "size": len(content), "parts": [{"sha256": name, "size": len(content)}]}

    entries = [{"media_type": OCI_MANIFEST, "item": item(one)} for one in manifests]
    index = {
        "schema_version": 1, "made": "today", "cluster": "lab", "lock": lock,
        "images": [{"name": name, "manifests": entries}] if entries else [],
        "blobs": [item(one) for one in blobs],
    }  # fmt: skip
    (place / "bundle.json").write_text(json.dumps(index))
    return place


def made(place, kind):
    one, blobs, name = manifest(), (CONFIG, LAYER), "training"
    locked, carried = image(one, one), (one,)
    if kind == "no manifest":
        carried = ()
    elif kind == "of another image":
        name = "other"
    elif kind == "another manifest":
        carried = (manifest(layer=b"other"),)
    elif kind == "no layer":
        blobs = (CONFIG,)
    elif kind == "a layer of the lock alone":
        locked = image(one, one, layers=(LockedBlob(digest=OTHER, size=7),))
    elif kind == "another size of the lock":
        locked = image(one, one, layers=(LockedBlob(digest=digest(LAYER), size=1),))
    elif kind == "a list without its images":
        top = listing_of(digest(one), OTHER)
        locked, carried = image(top, one), (one, top)
    elif kind == "another manifest of the lock":
        locked = image(one, b"")
    elif kind == "no image":
        one = b"no manifest at all"
        locked, carried = image(one, one), (one,)
    lock = (
        "this: is: no: lock" if kind == "no lock" else lock_file.text_of(Lock(driver="580", images=(locked,)))
    )
    return bundle(place, lock, carried, blobs, name)


@pytest.fixture
def check(clusterctl, listing, tmp_path, capsys):
    for variables in listing["_meta"]["hostvars"].values():
        variables.update(SETTINGS)

    def run(place):
        code = clusterctl("images", "bundle", "load", str(place), "--check", "--allow-unsigned", "--json")
        answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert answers[-1]["exit"] == code
        return code, [one["code"] for one in answers[:-1]]

    return run


def test_a_whole_bundle_is_good_and_writes_no_lock(check, cluster, tmp_path):
    assert check(made(tmp_path / "medium", "whole")) == (0, [])
    assert lock_file.read(cluster) is None


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("no lock", "images.lock-unreadable"),
        ("no manifest", "images.bundle"),
        ("of another image", "images.bundle"),
        ("another manifest", "images.bundle"),
        ("no layer", "images.bundle"),
        ("a layer of the lock alone", "images.bundle"),
        ("another size of the lock", "images.bundle"),
        ("a list without its images", "images.bundle"),
        ("another manifest of the lock", "images.bundle"),
        ("no image", "images.manifest"),
    ],
)
def test_an_image_that_cannot_be_loaded_is_named(check, tmp_path, kind, code):
    exit_code, codes = check(made(tmp_path / "medium", kind))
    assert exit_code in (1, 2)
    assert codes == [code]


def test_a_lock_that_load_refuses_is_refused(check, cluster, listing, tmp_path):
    place = made(tmp_path / "medium", "whole")
    lock_file.write(cluster, Lock(images=(image(b"other", b"other"),)))
    assert check(place) == (2, ["images.bundle-lock"])
    lock_file.path(cluster).unlink()
    for variables in listing["_meta"]["hostvars"].values():
        variables["training_image_tag"] = "2"
    assert check(place) == (2, ["images.stale-lock"])


def test_a_damaged_part_is_said_once(check, tmp_path):
    place = made(tmp_path / "medium", "whole")
    part = place / "parts" / hashlib.sha256(manifest()).hexdigest()
    part.write_bytes(part.read_bytes().replace(b"mediaType", b"MEDIAtype"))
    assert check(place) == (1, ["images.bundle-damaged"])
