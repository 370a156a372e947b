"""References, manifests, credentials, needs and the lock's text: decided without any registry."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.compatibility import Drivers, Needs, needs
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.lock import Lock, LockedBlob, LockedImage
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.gate import unserved
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.credentials import credentials_for
from clusterctl.registry.oci.reference import parse
from clusterctl.registry.oci.retry import retry_after
from clusterctl.registry.oci.tokens import Challenge, challenge

A = f"sha256:{'a' * 64}"
B = f"sha256:{'b' * 64}"


@pytest.mark.parametrize("path", ["x" * 256, "x" * 70_000, "a/" * 200 + "a"])
def test_a_path_that_no_registry_takes_is_no_name(path: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        parse(f"ghcr.io/{path}:1")
    assert refused.value.code == "images.reference"
    assert len(str(refused.value)) < 1000
    assert parse(f"ghcr.io/{'x' * 255}:1").repository == "x" * 255


@pytest.mark.parametrize("host", ["xn--a.example.com", "[1:2]", "1.2.3.999", "r.example.com:0", "a..b:1"])
def test_a_host_that_nobody_can_look_up_is_no_name(host: str) -> None:
    for text in (f"{host}/x:1", f"http://{host}/x:1"):
        with pytest.raises(ClusterctlError) as refused:
            parse(text)
        assert refused.value.code == "images.reference"


@pytest.mark.parametrize(
    ("text", "registry", "repository", "wanted"),
    [
        ("busybox", "docker.io", "library/busybox", "latest"),
        ("paddlepaddle/paddle:3.3.1", "docker.io", "paddlepaddle/paddle", "3.3.1"),
        ("index.docker.io/a/b:1", "docker.io", "a/b", "1"),
        ("ghcr.io/a/b/c:1", "ghcr.io", "a/b/c", "1"),
        ("registry01:5000/x/y", "registry01:5000", "x/y", "latest"),
        ("localhost/x:1", "localhost", "x", "1"),
        (f"nvcr.io/nvidia/pytorch:25.01@{A}", "nvcr.io", "nvidia/pytorch", A),
        ("[::1]:5000/x:1", "[::1]:5000", "x", "1"),
        ("http://127.0.0.1:5000/x:1", "127.0.0.1:5000", "x", "1"),
    ],
)
def test_names_are_read_as_docker_reads_them(text, registry, repository, wanted):
    found = parse(text)
    assert (found.registry, found.repository, found.wanted) == (registry, repository, wanted)
    assert parse(str(found)) == found


def test_docker_hub_is_asked_where_it_answers():
    assert parse("busybox").host == "registry-1.docker.io"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A/b",
        "x/../y",
        "ghcr.io/x:",
        "x@sha256:12",
        "x@",
        "ghcr.io/-x",
        "http://ghcr.io/x:1",
        "a b",
        "x:tag!",
        "a..b:5000/x",
        f"{'a' * 64}.example/x",
        "ghcr.io:65536/x",
    ],
)
def test_what_is_no_name_is_refused(text):
    with pytest.raises(ClusterctlError) as error:
        parse(text)
    assert error.value.code == "images.reference"


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_is_refused(text):
    try:
        assert parse(str(parse(text))) == parse(text)
    except ClusterctlError as error:
        assert error.code == "images.reference"


def raw(**more: object) -> bytes:
    said = {
        "schemaVersion": 2,
        "mediaType": manifest.OCI_MANIFEST,
        "config": {"digest": A, "size": 3},
        "layers": [{"digest": B, "size": 5}, {"digest": B, "size": 5}],
    }
    return json.dumps({**said, **more}).encode()


def test_a_blob_that_an_image_holds_twice_is_one():
    found = manifest.read(raw(), "", "here")
    assert [blob.digest for blob in found.blobs] == [A, B]
    assert not found.is_index


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b"[]", b"null", b"{}", raw(mediaType="text/html"), raw(config=None),
        raw(layers=[{"digest": "sha256:../../etc/passwd", "size": 1}]),
        raw(layers=[{"digest": f"sha512:{'a' * 128}", "size": 1}]),
        raw(layers=[{"digest": A, "size": -1}]), raw(layers=[{"digest": A, "size": True}]),
        raw(layers=[{"digest": A, "size": "7"}]), raw(layers="abc"),
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(wrong):
    with pytest.raises(ClusterctlError) as error:
        manifest.read(wrong, "", "here")
    assert error.value.code == "images.manifest"


def test_credentials_are_found_for_their_registry_alone(tmp_path: Path):
    token = base64.b64encode(b"robot$push:s3:cret").decode()
    file = tmp_path / "auth.json"
    file.write_text(json.dumps({"auths": {"harbor.lan": {"auth": token}, "https://index.docker.io/v1/": {
        "username": "u", "password": "p"}}}))  # fmt: skip
    found = credentials_for(file, "harbor.lan")
    assert found is not None
    assert (found.user, found.password.get_secret_value()) == ("robot$push", "s3:cret")
    assert "s3:cret" not in repr(found)
    hub = credentials_for(file, "docker.io")
    assert hub is not None
    assert hub.user == "u"
    assert credentials_for(file, "harbor.lan:443") is None
    assert credentials_for(None, "harbor.lan") is None


@pytest.mark.parametrize("text", ["", "[]", '{"auths": {"x": {"auth": "%%%"}}}', '{"auths": {"x": {}}}'])
def test_credentials_that_cannot_be_read_are_refused_and_not_shown(tmp_path: Path, text: str):
    file = tmp_path / "auth.json"
    file.write_text(text)
    with pytest.raises(ClusterctlError) as error:
        credentials_for(file, "x")
    assert error.value.code == "images.auth-file"
    assert "%%%" not in error.value.what


def test_a_challenge_is_read():
    header = 'Bearer realm="https://auth.example/token",service="reg, istry",scope="repository:a/b:pull"'
    assert challenge(header) == Challenge("bearer", "https://auth.example/token", "reg, istry")
    assert challenge('Basic realm="x"').scheme == "basic"


def test_when_to_come_back_is_a_number_or_a_date():
    assert retry_after("7") == 7
    assert retry_after("-7") == 0
    assert retry_after("Thu, 01 Jan 1970 00:01:40 GMT", now=lambda: 40.0) == 60
    assert retry_after("soon") is None


NVIDIA = (
    "cuda>=12.9 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=535,driver<536 "
    "brand=tesla,driver>=550,driver<551 brand=tesla,driver>=570,driver<571"
)


@pytest.mark.parametrize(
    ("driver", "served"),
    [
        ("580", True), ("580.95.05", True), ("575.51.03", True), ("575.51.02", False), ("570.86.10", True),
        ("560.35.03", False), ("550", True), ("545", False), ("535.247.01", True), ("525.60.13", False),
    ],
)  # fmt: skip
def test_what_nvidia_s_images_require_is_heeded_to_the_letter(driver: str, served: bool):
    found = needs({}, [f"NVIDIA_REQUIRE_CUDA={NVIDIA}", "CUDA_VERSION=12.9.1", "NCCL_VERSION=2.26.5-1"])
    assert found.served_by(driver) is served
    assert (found.cuda, found.nccl, found.minimum_driver) == ("12.9.1", "2.26.5", "535")
    assert "NVIDIA_REQUIRE_CUDA" in found.source


@pytest.mark.parametrize(
    ("labels", "environment", "tag", "minimum", "source"),
    [
        ({"org.clusterctl.minimum-driver": "570.1"}, [f"NVIDIA_REQUIRE_CUDA={NVIDIA}"], "", "570.1", "label"),
        ({}, ["CUDA_VERSION=13.0.2"], "", "580", "its CUDA"),
        ({"org.clusterctl.cuda": "12.6"}, [], "", "525.60.13", "its CUDA"),
        ({}, [], "3.3.1-gpu-cuda11.8-cudnn8.9", "450.80.02", "tag"),
        ({}, ["CUDA_VERSION=99.1"], "", "", ""),
        ({}, ["NVIDIA_REQUIRE_CUDA=nonsense"], "latest", "", ""),
    ],
)
def test_the_image_s_own_word_comes_before_our_data(labels, environment, tag, minimum, source):
    found = needs(labels, environment, tag)
    assert found.minimum_driver == minimum
    assert source in found.source


def test_a_tag_says_cuda_and_cudnn_where_nothing_else_does():
    found = needs({}, [], "3.3.1-gpu-cuda12.9-cudnn9.9")
    assert (found.cuda, found.cudnn) == ("12.9", "9.9")


def test_an_image_that_needs_no_driver_is_served_by_any():
    assert Needs().served_by("1.0")
    assert Drivers("580.65.06").has("580")
    assert not Drivers("580.65.06").has("580.60")


def image(name: str = "one", **more: object) -> LockedImage:
    said = {
        "name": name, "source": "docker.io/x/y:1", "target": "x/y",
        "digest": A, "platforms": ("linux/amd64",),
        "manifest": A, "config": LockedBlob(digest=A, size=1),
        "layers": (LockedBlob(digest=A, size=5), LockedBlob(digest=B, size=7), LockedBlob(digest=B, size=7)),
    }  # fmt: skip
    return LockedImage.model_validate({**said, **more})


def test_a_lock_is_read_as_it_was_written_and_a_layer_is_a_line(tmp_path: Path):
    directory, ranges = ClusterDirectory(tmp_path), (("535", "536"), ("575.51.03", ""))
    lock = Lock(driver="580", images=(image(drivers=ranges), image("two", tag="1")))
    assert lock_file.read(directory) is None
    lock_file.write(directory, lock)
    text = lock_file.path(directory).read_text()
    assert lock_file.read(directory) == lock
    assert lock_file.text_of(lock) == text
    assert f"  - {{digest: '{B}', size: 7}}\n" in text
    assert lock.images[0].size == 12


@pytest.mark.parametrize(
    "text", ["", "[]", "schema: 2\n", "images: [", "schema: 1\nimages: [{name: x}]\n", "schema: 1\nmore: 1\n"]
)
def test_a_lock_that_is_none_is_refused(tmp_path: Path, text: str):
    (tmp_path / "clusterctl.lock").write_text(text)
    with pytest.raises(ClusterctlError) as error:
        lock_file.read(ClusterDirectory(tmp_path))
    assert error.value.code == "images.lock-unreadable"


def test_no_driver_that_is_declared_refuses_nothing():
    needy = image(drivers=(("580.65.06", ""),), minimum_driver="580.65.06", minimum_driver_from="x")
    assert unserved([needy], "") == {}
    assert unserved([needy], "580") == {}
    assert len(unserved([needy], "570.1")) == 1
