"""nccl-tests in a site's own image: the pinned source, and the build with programs that only pretend."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.image_builds import BASE, NOTEBOOK, inventory_of

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import recipe
from clusterctl.registry.images.nccl_tests import FILE, SCRIPT, NcclTests

URL = "https://mirror.site/nccl-tests-2.17.8.tar.gz"


def archive() -> bytes:
    """An archive with one directory, as GitHub makes them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo("nccl-tests-2.17.8/Makefile")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"\n"))
    return buffer.getvalue()


ARCHIVE = archive()
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()


def context(tmp_path: Path, tests: dict[str, Any]) -> dict[str, str]:
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, {**NOTEBOOK, "nccl_tests": tests}))
    return recipe.context_of(one, BASE, "registry01:5000")


def program(place: Path, name: str, text: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    (place / name).chmod(0o755)


def build(tmp_path: Path, *, cuda: bool = True, mpi: bool = False, sha256: str = SHA256) -> Any:
    """Run the build as the image does, with a compiler and a make that only write what they should make."""
    place, programs = tmp_path / "context", tmp_path / "programs"
    for name, text in NcclTests(SHA256, content=ARCHIVE).context().items():
        place.mkdir(exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    if cuda:
        program(tmp_path / "cuda/bin", "nvcc", "exit 0\n")
    said = f'[ -f Makefile ] || exit 9\necho "$*" >> {tmp_path}/made\n'
    made = 'for w in "$@"; do case $w in BUILDDIR=*) b=${w#*=};; esac; done\nmkdir -p "$b"\n'
    program(programs, "make", said + made + 'echo "$*" > "$b/all_reduce_perf"\n')
    program(programs, "g++", "exit 0\n")
    if mpi:
        program(tmp_path / "openmpi/bin", "mpicxx", "exit 0\n")
        (tmp_path / "openmpi/include").mkdir()
        (tmp_path / "openmpi/include/mpi.h").write_text("", encoding="utf-8")
        (programs / "mpicxx").symlink_to(tmp_path / "openmpi/bin/mpicxx")
    paths = f"{programs}:/usr/bin:/bin"
    environment = {"PATH": paths, "CUDA_HOME": f"{tmp_path}/cuda", "NCCL_TESTS_PREFIX": f"{tmp_path}/usr"}
    return subprocess.run(
        ["sh", str(place / SCRIPT), FILE, sha256],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip


# --- what is declared


def test_a_source_by_url_is_fetched_in_the_build_and_named_with_its_checksum(tmp_path: Path) -> None:
    made = context(tmp_path, {"source": URL, "sha256": SHA256})
    assert SCRIPT in made and FILE not in made
    assert f"build-nccl-tests.sh {URL} \\\n      {SHA256}\n" in made["Dockerfile"]
    assert f'io.clusterctl.nccl-tests="{SHA256}"' in made["Dockerfile"]
    assert "nccl" not in context(tmp_path, {})["Dockerfile"]


def test_a_local_source_goes_into_the_build_where_it_is_the_one_that_was_pinned(tmp_path: Path) -> None:
    (tmp_path / "nccl-tests.tar.gz").write_bytes(ARCHIVE)
    made = context(tmp_path, {"source": "nccl-tests.tar.gz", "sha256": SHA256})
    assert f"COPY build-nccl-tests.sh {FILE} /usr/local" in made["Dockerfile"]
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(ClusterctlError, match="not the archive"):
        context(tmp_path, {"source": "nccl-tests.tar.gz", "sha256": other})


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": URL}, {"sha256": SHA256}, {"source": URL, "sha256": "0" * 63},
        {"source": f"{URL}; rm -rf /", "sha256": SHA256}, {"source": "https://me:word@x/y", "sha256": SHA256},
        {"source": "$(id)", "sha256": SHA256}, {"source": f"{URL}$(id)", "sha256": SHA256},
    ],
)  # fmt: skip
def test_what_is_not_pinned_or_more_than_a_source_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ClusterctlError) as refused:
        context(tmp_path, wrong)
    pinned = len(wrong.get("sha256", "")) == 64
    assert refused.value.code == ("images.build-declared" if pinned else "images.build-unpinned")


# --- the build


def test_without_mpi_the_programs_are_built_once(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "usr/bin").iterdir()] == ["all_reduce_perf"]
    assert "MPI=1" not in (tmp_path / "made").read_text(encoding="utf-8")


def test_with_mpi_there_are_both_and_each_has_its_name(tmp_path: Path) -> None:
    done = build(tmp_path, mpi=True)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "usr/bin").iterdir())
    assert names == ["all_reduce_perf", "all_reduce_perf_mpi"]
    second = (tmp_path / "usr/bin/all_reduce_perf_mpi").read_text(encoding="utf-8")
    assert f"MPI=1 MPI_HOME={tmp_path}/openmpi" in second


def test_a_base_without_a_compiler_for_cuda_gets_none_and_keeps_the_reason(tmp_path: Path) -> None:
    done = build(tmp_path, cuda=False)
    assert done.returncode == 0
    assert "off: the base has no CUDA toolchain" in done.stderr
    reason = (tmp_path / "usr/share/clusterctl/nccl-tests.off").read_text(encoding="utf-8")
    assert "no CUDA toolchain" in reason
    assert not list((tmp_path / "usr/bin").iterdir())


def test_another_archive_ends_the_build(tmp_path: Path) -> None:
    done = build(tmp_path, sha256="0" * 64)
    assert done.returncode == 1
    assert "not the archive that was declared" in done.stderr
    assert not (tmp_path / "made").exists()
