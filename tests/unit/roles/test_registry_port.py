"""Who takes the embedded registry's port while it restarts is named, by its journal and by `apply`."""

from __future__ import annotations

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from tests.support.role_variables import trusted_templates
from tests.support.tree import ROOT

ROLE = ROOT / "roles/registry"
FATAL = 'level=fatal msg="listen tcp :5000: bind: address already in use"'
OTHERS = 'LISTEN 0 5 0.0.0.0:5000 0.0.0.0:* users:(("python3",pid=4242,fd=3)) uid:65534'


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
