"""fio on two nodes: with a program that only pretends to measure, and with the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import require_program
from tests.support.two_ranks import ASKED, ranks

# It writes its files and its result, as fio does; O_DIRECT is refused where the file says so.
FIO = """case "$*" in *--direct=1*) [ -e "$SEEN" ] && { echo "fio: looks like your file system does not \
support direct=1/buffered=0"; exit 1; };; esac
for word in "$@"; do
  case $word in --output=*) out=${word#--output=};; --filename=*) echo written > "${word#--filename=}";; esac
done; echo "{}" > "$out\""""


def storage(tmp_path: Path, size: int = 1 << 20, fio: str = FIO) -> Any:
    """Two ranks that measure one directory each; the first's is of an earlier run, too."""
    shared = tmp_path / "shared"
    left = shared / ".clusterctl-storage-gpu01-0123456789abcdef"
    left.mkdir(mode=0o700, parents=True)
    (left / "clusterctl.0").write_text("left", encoding="ascii")
    (shared / "theirs").write_text("kept", encoding="ascii")
    places = [[node, {"/data": str(shared)}] for node in ("gpu01", "gpu02")]
    return ranks(tmp_path, {"fio": fio}, {**ASKED, "places": places, "size_bytes": size}, job="storage_io")


def test_fio_writes_in_a_directory_of_the_nodes_own_and_nothing_is_left(tmp_path: Path) -> None:
    first, second = storage(tmp_path)
    assert (first["places"]["/data"]["json"], first["places"]["/data"]["direct"]) == ("{}\n", True)
    assert second["places"]["/data"]["exit_code"] == 0
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["theirs"]


def test_a_file_system_without_o_direct_is_measured_without(tmp_path: Path) -> None:
    (tmp_path / "seen").touch()
    first, _ = storage(tmp_path)
    assert (first["places"]["/data"]["exit_code"], first["places"]["/data"]["direct"]) == (0, False)


def test_a_file_system_without_room_is_not_written_to(tmp_path: Path) -> None:
    first, _ = storage(tmp_path, size=1 << 60)
    assert "bytes are free" in first["places"]["/data"]["unable"]
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["theirs"]


def test_what_a_killed_fio_wrote_is_removed(tmp_path: Path) -> None:
    first, _ = storage(tmp_path, fio="kill -9 $$")
    assert first["places"]["/data"]["exit_code"] == -9
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["theirs"]


def test_fio_writes_to_its_files_also_where_another_puts_links_in_their_place(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept", encoding="ascii")
    exchange = f"""for own in {tmp_path}/shared/.clusterctl-storage-*; do
  mv "$own" "$own.away" && mkdir "$own" && ln -sf {precious} "$own/clusterctl.0"
done 2>/dev/null
"""
    first, second = storage(tmp_path, fio=exchange + FIO)
    assert first["places"]["/data"]["exit_code"] == second["places"]["/data"]["exit_code"] == 0
    assert precious.read_text(encoding="ascii") == "kept"


@pytest.mark.needs("fio")
def test_the_real_fio_writes_and_verifies_open_files(tmp_path: Path) -> None:
    first, second = storage(tmp_path, size=1 << 24, fio=f'exec {require_program("fio")} "$@"')
    for said in (first["places"]["/data"], second["places"]["/data"]):
        assert said["exit_code"] == 0, said["text"]
        (job,) = json.loads(said["json"])["jobs"]
        assert (job["error"], job["write"]["io_bytes"], job["read"]["io_bytes"]) == (0, 1 << 24, 1 << 24)
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["theirs"]


def test_an_image_without_fio_is_reported(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path / "bin")}
    asked = {**ASKED, "places": [], "size_bytes": 1}
    for verdict in ranks(tmp_path, {"true": "true"}, asked, job="storage_io", variables=(nothing, nothing)):
        assert (verdict["without"], verdict["places"]) == ("the image has no fio", {})
