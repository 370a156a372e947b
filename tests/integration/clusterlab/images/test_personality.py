"""A personality answers by the kernel's name as its system does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clusterlab.images import personality


@pytest.mark.needs(personality.COMPILER)
def test_a_program_hears_the_kernels_name_from_a_file_and_else_the_machines(tmp_path: Path) -> None:
    told = tmp_path / "kernel-name"
    source = personality.UNAME.read_text().replace("/run/clusterlab/kernel-name", str(told))
    (tmp_path / "uname.c").write_text(source)
    library = tmp_path / "libuname.so"
    personality.build_library(library, tmp_path / "uname.c")

    def uname(option: str) -> str:
        command = ["uname", option]
        environment = {"LD_PRELOAD": str(library), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    machines = subprocess.run(["uname", "-r"], capture_output=True, text=True, check=True).stdout.strip()
    assert uname("-r") == machines
    told.write_text("6.8.0-151-generic\n#151-Ubuntu SMP\n")
    assert (uname("-r"), uname("-v"), uname("-s")) == ("6.8.0-151-generic", "#151-Ubuntu SMP", "Linux")
    told.write_text("x" * 200)
    assert uname("-r") == "x" * 64
