"""What an engine saves of an image: only new layers are kept, and traps are refused."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
from tests.support.image_builds import archive, digest, layer

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import saved


def numbers_of(base: list[bytes]) -> dict[str, int]:
    described = {"layers": [{"digest": digest(gzip.compress(one, mtime=0))} for one in base]}
    return saved.numbers_of([digest(one) for one in base], described)


@pytest.mark.parametrize("style", ["classic", "blobs", "packed"])
def test_of_a_saved_image_only_the_new_layers_are_kept(style: str, tmp_path: Path) -> None:
    base, added = [layer("a"), layer("b")], [layer("c"), layer("d")]
    known = numbers_of(base)
    image = saved.read(archive([*base, *added], style), tmp_path, known)
    assert image.diff_ids == tuple(digest(one) for one in [*base, *added])
    assert [gzip.decompress(b"".join(one.pieces())) for one in image.new] == added
    assert [one.blob.digest for one in image.new] == [digest(b"".join(one.pieces())) for one in image.new]
    again = saved.read(archive([*base, *added], style), tmp_path, known)
    assert [one.blob for one in again.new] == [one.blob for one in image.new]
    described = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": {"mediaType": "c"},
        "layers": [{"digest": "one"}, {"digest": "two"}],
    }  # fmt: skip
    layers = json.loads(saved.manifest_of(image, described))["layers"]
    assert [one["digest"] for one in layers[:2]] == ["one", "two"]
    assert [one["size"] for one in layers[2:]] == [one.blob.size for one in image.new]


@pytest.mark.parametrize("style", ["classic", "blobs", "packed"])
@pytest.mark.parametrize("order", ["bn", "nb", "bb", "bna"])
def test_a_step_whose_layer_the_base_has_is_in_the_image(style: str, order: str, tmp_path: Path) -> None:
    base, new = {"a": layer("a"), "b": layer("b")}, {"n": layer("n")}
    layers = [*base.values(), *((base | new)[name] for name in order)]
    image = saved.read(archive(layers, style), tmp_path, numbers_of(list(base.values())))
    described = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": {},
        "layers": [{"digest": "a"}, {"digest": "b"}],
    }  # fmt: skip
    of = {one.blob.digest: "n" for one in image.new}
    found = json.loads(saved.manifest_of(image, described))["layers"]
    assert [of.get(one["digest"], one["digest"]) for one in found] == ["a", "b", *order]


def test_one_layer_that_stands_twice_is_found_twice(tmp_path: Path) -> None:
    same = layer("same")
    image = saved.read(archive([layer("a"), same, same], "classic"), tmp_path, {})
    assert len(image.new) == 3
    assert image.new[1].blob == image.new[2].blob


@pytest.mark.parametrize("cut", [10, 5000])
def test_an_archive_that_was_cut_off_is_refused(cut: int, tmp_path: Path) -> None:
    whole = archive([layer("a"), layer("b")], "classic").getvalue()
    with pytest.raises(ClusterctlError) as refused:
        saved.read(io.BytesIO(whole[:cut]), tmp_path, {})
    assert refused.value.code == "images.build-archive"


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    """An archive whose members say of themselves what they want."""
    out = b""
    for member, content in members:
        member.size = member.size or len(content)
        out += member.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)
    return io.BytesIO(out + b"\0" * 1024)


def named(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member


DEEP = b"[" * 20_000


@pytest.mark.parametrize(
    "members",
    [
        # A name of 8 GB, which tarfile would read into memory; the other forms of the same.
        [(named("x", kind, 8 << 30), b"x" * 512) for kind in (tarfile.GNUTYPE_LONGNAME,)],
        [(named("x", tarfile.XHDTYPE, 8 << 30), b"x" * 512)],
        [(named("x", tarfile.GNUTYPE_SPARSE, 512), b"x" * 512)],
        [(named(str(number)), b"") for number in range(60)],
        [(named("large"), b"x" * 20_000)],
        [(named("manifest.json"), DEEP)],
        [(named("manifest.json"), b'[{"Config": "c", "Layers": [7]}]')],
        [(named("manifest.json"), b'[{"Config": "../../c", "Layers": []}]')],
        [(named("c"), DEEP), (named("manifest.json"), b'[{"Config": "c", "Layers": []}]')],
        [(named("c"), b'{"rootfs": {"diff_ids": []}}'), (named("manifest.json"), b"[]")],
        # tarfile reads what a long name stands for by itself: a chain of 3000 goes as deep.
        [(named("././@LongLink", tarfile.GNUTYPE_LONGNAME), b"x\0") for _ in range(3000)],
    ],
)
def test_an_archive_with_a_trap_is_refused_and_read_no_further(
    members: list[tuple[tarfile.TarInfo, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "MAX_MEMBERS", 50)
    monkeypatch.setattr(
        saved, "MAX_LAYER_BYTES", 30_000 if members[-1][0].name == "manifest.json" else 10_000
    )
    with pytest.raises(ClusterctlError) as refused:
        saved.read(tar_of(*members), tmp_path, {})
    assert refused.value.code == "images.build-archive"
    assert refused.value.what.isprintable()


def test_a_sparse_member_is_refused_whatever_size_it_says(tmp_path: Path) -> None:
    words = (
        b"22 GNU.sparse.major=0\n22 GNU.sparse.minor=0\n27 GNU.sparse.size=1000000\n"
        b"26 GNU.sparse.numblocks=0\n"
    )
    members = ((named("x", tarfile.XHDTYPE), words), (named("sparse"), b"x"))
    with pytest.raises(ClusterctlError, match="a member is sparse"):
        saved.read(tar_of(*members), tmp_path, {})


class Endless(io.RawIOBase):
    """A stream that goes on with the same bytes, and how many were read of it."""

    def __init__(self, start: bytes, more: bytes) -> None:
        self.left, self.more, self.count = start, more, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while len(self.left) < size:
            self.left += self.more * 1000
        piece, self.left = self.left[:size], self.left[size:]
        self.count += len(piece)
        assert self.count < 64 << 20
        return piece


def test_the_map_of_a_sparse_member_is_not_read(tmp_path: Path) -> None:
    """Which has no end here."""
    words = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
    head = tar_of((named("x", tarfile.XHDTYPE), words), (named("sparse"), b"")).read()[: 3 * 512]
    stream = Endless(head + b"99999999999\n", b"0\n" * 500)
    with pytest.raises(ClusterctlError, match="a member is sparse"):
        saved.read(stream, tmp_path, {})
    assert stream.count < 1 << 20


@pytest.mark.parametrize(
    ("member", "because"),
    [
        ((named("x", tarfile.XGLTYPE), b"9 a=bcde\n"), "of type b'g'"),
        ((named("x" * 5000), b""), "name has more than 4096"),
    ],
    ids=["global", "name"],
)
def test_what_the_archive_would_keep_of_its_members_is_bounded(
    member: tuple[tarfile.TarInfo, bytes], because: str, tmp_path: Path
) -> None:
    with pytest.raises(ClusterctlError, match=because):
        saved.read(tar_of(member, (named("y"), b"")), tmp_path, {})


def test_a_layer_that_unpacks_without_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = b"\0" * (4 << 20)
    monkeypatch.setattr(saved, "MAX_LAYER_BYTES", 1 << 20)
    with pytest.raises(ClusterctlError, match="unpacked") as refused:
        saved.read(archive([bomb], "packed"), tmp_path, {})
    assert refused.value.code == "images.build-archive"


def test_the_manifest_of_a_base_that_does_not_say_what_its_configuration_is_serves(tmp_path: Path) -> None:
    image = saved.read(archive([layer("a")], "classic"), tmp_path, {})
    kind = "application/vnd.oci.image.manifest.v1+json"
    raw = saved.manifest_of(image, {"mediaType": kind, "config": {}, "layers": []})
    assert json.loads(raw)["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
