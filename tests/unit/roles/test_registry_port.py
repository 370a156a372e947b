"""Who takes the embedded registry's port while it restarts is named, by its journal and by `apply`."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from tests.support.role_variables import trusted_templates
from tests.support.tree import ROOT

ROLE = ROOT / "roles/registry"
FATAL = 'level=fatal msg="listen tcp :5000: bind: address already in use"'
OTHERS = 'LISTEN 0 5 0.0.0.0:5000 0.0.0.0:* users:(("python3",pid=4242,fd=3)) uid:65534'


@pytest.mark.skipif(not Path("/usr/bin/ss").exists(), reason="no iproute2 on this machine")
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


def test_apply_says_what_the_journal_says_of_its_port() -> None:
    (block,) = yaml.safe_load((ROLE / "tasks/embedded/verify.yml").read_text(encoding="utf-8"))
    (message,) = [
        one["ansible.builtin.fail"]["msg"] for one in block["rescue"] if "ansible.builtin.fail" in one
    ]
    journal = [*["GET /v2/"] * 5, OTHERS, FATAL, "Failed with result 'exit-code'."]
    known = {
        "registry_address": "10.0.0.9", "registry_port": 5000, "__registry_public": {"msg": "certificate"},
        "__registry_journal": {"stdout_lines": journal},
    }  # fmt: skip
    said = Templar(DataLoader(), variables=known).template(trusted_templates(message))
    assert said.endswith(f"Its journal: {OTHERS} | {FATAL}")
