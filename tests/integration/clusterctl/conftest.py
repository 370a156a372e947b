"""Shared by the tests that start Ansible: hosts that need no SSH."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest


@pytest.fixture
def local_site(tmp_path: Path) -> Path:
    """A directory with an inventory of local hosts, one of them behind a closed port."""
    (tmp_path / "hosts.yml").write_text(
        textwrap.dedent(f"""\
            all:
              vars: {{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}
              hosts:
                gpu01: {{}}
                gpu02: {{}}
                gpu03: {{}}
                dead01: {{ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 9,
                         ansible_ssh_retries: 0}}
            """)
    )
    return tmp_path
