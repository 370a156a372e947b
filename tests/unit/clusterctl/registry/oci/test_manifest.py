"""What a manifest names is the same for us as for the engines and registries that read it by Go's rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusterctl.errors import ClusterctlError
from clusterctl.registry.oci.manifest import (
    DOCKER_MANIFEST,
    ELSEWHERE,
    OCI_INDEX,
    OCI_MANIFEST,
    Manifest,
    read,
    require_held,
)

OURS, THEIRS = ({"digest": f"sha256:{letter * 64}", "size": 1} for letter in "ab")
IMAGE = {"schemaVersion": 2, "config": OURS, "layers": [OURS]}
INDEX = {"schemaVersion": 2, "manifests": [{**OURS, "platform": {"os": "linux", "architecture": "amd64"}}]}


@pytest.mark.parametrize("document", [IMAGE, {**IMAGE, "annotations": {"Config": "x", "config": "y"}}])
def test_an_image_as_engines_write_it_is_read(document: dict[str, Any]) -> None:
    found = read(json.dumps(document).encode(), DOCKER_MANIFEST, "test")
    assert (found.config, [layer.size for layer in found.layers]) == (found.layers[0], [1])


def test_a_list_as_engines_write_it_is_read() -> None:
    (child,) = read(json.dumps(INDEX).encode(), OCI_INDEX, "test").children
    assert (child.digest, child.platform) == (OURS["digest"], "linux/amd64")


@pytest.mark.parametrize(
    "more",
    [
        {"Config": THEIRS},
        {"Layers": [THEIRS]},
        {"con\N{LATIN SMALL LETTER LONG S}ig": 1, "layer\N{LATIN SMALL LETTER LONG S}": [THEIRS]},
        {"config": {**OURS, "Digest": THEIRS["digest"]}},
        {"layers": [{**OURS, "MediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar"}]},
        {"MediaType": OCI_INDEX},
    ],
)
def test_an_image_with_a_name_in_another_spelling_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ClusterctlError, match="another spelling") as caught:
        read(json.dumps({**IMAGE, **more}).encode(), OCI_MANIFEST, "test")
    assert caught.value.code == "images.manifest"


@pytest.mark.parametrize(
    "one", [{"Digest": THEIRS["digest"]}, {"Platform": {"os": "linux"}}, {"platform": {"OS": "linux"}}]
)
def test_a_list_with_a_name_in_another_spelling_is_refused(one: dict[str, Any]) -> None:
    with pytest.raises(ClusterctlError, match="another spelling"):
        read(json.dumps({**INDEX, "manifests": [{**OURS, **one}]}).encode(), OCI_INDEX, "test")


@pytest.mark.parametrize("place", ['"config"', '"layers"', '"digest"', '"schemaVersion"'])
def test_a_name_that_stands_twice_in_an_object_is_refused(place: str) -> None:
    raw = json.dumps(IMAGE).replace(place, f"{place}: null, {place}", 1)
    with pytest.raises(ClusterctlError, match="one name stands twice in an object"):
        read(raw.encode(), OCI_MANIFEST, "test")


@pytest.mark.parametrize(("document", "kind"), [({**IMAGE, "manifests": []}, OCI_MANIFEST),
                                                ({**INDEX, "config": OURS}, OCI_INDEX),
                                                ({**INDEX, "layers": [OURS]}, OCI_INDEX)])  # fmt: skip
def test_what_could_be_taken_for_an_image_and_a_list_is_refused(document: dict[str, Any], kind: str) -> None:
    with pytest.raises(ClusterctlError, match="cannot be read") as caught:
        read(json.dumps(document).encode(), kind, "test")
    assert caught.value.code == "images.manifest"


def of_windows(kind: str) -> Manifest:
    document = {**IMAGE, "layers": [{**OURS, "mediaType": kind, "urls": ["https://example.com/layer"]}]}
    return read(json.dumps(document).encode(), OCI_MANIFEST, "test")


URLS = {"urls": ["http://192.0.2.1/admin?reboot=all"]}


def list_of(one: Manifest, *platforms: dict[str, str]) -> Manifest:
    entries = [{"digest": one.digest, "size": 1, "platform": each} for each in platforms]
    return read(json.dumps({"schemaVersion": 2, "manifests": entries}).encode(), OCI_INDEX, "test")


WINDOWS, LINUX = ({"os": os, "architecture": "amd64"} for os in ("windows", "linux"))


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_layers_that_no_registry_holds_are_those_of_windows_alone(kind: str) -> None:
    image = of_windows(kind)
    assert (image.layers, image.has_parts_elsewhere) == ((), True)
    require_held([image, list_of(image, WINDOWS)], "test")
    for manifests in (
        [image],
        [image, list_of(image, LINUX)],
        [image, list_of(image, WINDOWS, LINUX)],
        [image, list_of(image, WINDOWS), list_of(image, {})],
    ):
        with pytest.raises(ClusterctlError, match="only images for Windows") as caught:
            require_held(manifests, "test")
        assert caught.value.code == "images.manifest"


@pytest.mark.parametrize(
    "kind", ["application/vnd.docker.image.rootfs.not-foreign.diff.tar", f"{ELSEWHERE[0]}.lz4", "foreign"]
)
def test_a_layer_of_any_other_type_is_asked_of_its_source(kind: str) -> None:
    document = {**IMAGE, "layers": [{**OURS, "mediaType": kind, "urls": []}]}
    image = read(json.dumps(document).encode(), OCI_MANIFEST, "test")
    assert [layer.digest for layer in image.layers] == [OURS["digest"]]
    require_held([image], "test")


@pytest.mark.parametrize(
    "document", [{**IMAGE, "layers": [{**OURS, **URLS}]}, {**IMAGE, "config": {**OURS, **URLS}}]
)
def test_a_part_with_other_addresses_is_one_of_windows_whatever_its_type(document: dict[str, Any]) -> None:
    image = read(json.dumps(document).encode(), OCI_MANIFEST, "test")
    assert [layer.digest for layer in image.layers] == [OURS["digest"]]
    require_held([image, list_of(image, WINDOWS)], "test")
    for manifests in ([image], [image, list_of(image, LINUX)]):
        with pytest.raises(ClusterctlError, match="only images for Windows"):
            require_held(manifests, "test")


def test_a_list_names_no_addresses_for_its_images() -> None:
    document = {**INDEX, "manifests": [{**INDEX["manifests"][0], **URLS}]}
    with pytest.raises(ClusterctlError, match="only images for Windows"):
        require_held([read(json.dumps(document).encode(), OCI_INDEX, "test")], "test")
