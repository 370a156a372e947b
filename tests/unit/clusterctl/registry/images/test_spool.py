"""A spool makes room for what comes now by what came of blobs that nobody gives whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import spool
from clusterctl.registry.images.spool import Spool
from clusterctl.registry.oci.manifest import Blob

DISK = 3000
OLD, NEW = (Blob(f"sha256:{letter * 64}", 2000) for letter in "ab")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    """On a disk of 3,000 bytes, with 1,500 of the 2,000 of another blob."""

    def free(path: Path) -> int:
        return DISK - sum(one.stat().st_size for one in path.iterdir() if one.name != spool.JOURNAL)

    monkeypatch.setattr(spool, "free_on", free)
    here = Spool(tmp_path)
    here.part(OLD, "h/old").write_bytes(b"x" * 1500)
    return here


@pytest.mark.timeout(60)
def test_a_part_of_a_blob_that_failed_makes_room_for_what_comes_now(place: Spool) -> None:
    with place._room_kept(NEW, "h/new"):
        assert not place.part(OLD, "h/old").exists()
    assert '"forgotten"' in (place.root / spool.JOURNAL).read_text()


def test_what_comes_at_the_same_time_and_what_is_whole_are_kept(place: Spool) -> None:
    whole = place.whole(Blob(f"sha256:{'c' * 64}", 100), "h/c")
    whole.write_bytes(b"x" * 100)
    with place._room_kept(OLD, "h/old"):
        with pytest.raises(ClusterctlError) as refused, place._room_kept(NEW, "h/new"):
            pass
        assert refused.value.code == "images.no-space"
    assert place.part(OLD, "h/old").exists()
    assert whole.exists()


def test_before_a_run_what_nobody_wants_goes_first_and_only_where_that_makes_room(place: Spool) -> None:
    place.room_for([OLD], 1)
    assert place.part(OLD, "h/old").exists()
    with pytest.raises(ClusterctlError):
        place.room_for([NEW, OLD], 2)  # 4,000 bytes on 3,000
    assert place.part(OLD, "h/old").exists()
    place.room_for([NEW], 1)
    assert not place.part(OLD, "h/old").exists()
