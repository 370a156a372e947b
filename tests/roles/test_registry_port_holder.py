"""Whose program has the embedded registry's port is told before the registry starts."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess

import jinja2
import pytest
from tests.support.tree import ROOT

ROLE = ROOT / "roles/registry"


@pytest.mark.needs("ss")
@pytest.mark.parametrize("address", ["", "127.0.0.1"], ids=["public", "push"])
def test_the_unit_names_the_program_that_has_its_port(address: str) -> None:
    template = jinja2.Template((ROLE / "templates/registry.service.j2").read_text(encoding="utf-8"))

    def said(port: int) -> str:
        unit = template.render(item={"address": f"{address}:{port}", "name": "one"})
        (line,) = [one for one in unit.splitlines() if "/usr/bin/ss" in one]
        command = shlex.split(line.removeprefix("ExecStartPre=-+"))
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with socket.create_server((address, 0)) as other:
        port = other.getsockname()[1]
        (line,) = said(port).splitlines()
        assert line.startswith("LISTEN ")
        assert f",pid={os.getpid()}," in line
    assert said(port) == ""
