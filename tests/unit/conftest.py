"""Shared by the unit tests: SSH is never what they test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

NO_SSH = "#!/bin/sh\necho 'this is a unit test, which reaches no host' >&2\nexit 255\n"


@pytest.fixture(autouse=True, scope="session")
def _ssh_that_reaches_no_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands look for OpenSSH's client before they play the rest; a unit test needs none."""
    program = tmp_path_factory.mktemp("bin") / "ssh"
    program.write_text(NO_SSH, encoding="utf-8")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        yield
