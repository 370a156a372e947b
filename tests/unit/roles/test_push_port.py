"""The listener that gets the password for pushes in clear: nobody but root can stand in its place."""

from __future__ import annotations

import pytest
import yaml
from tests.support.tree import ROOT

UNPRIVILEGED = 1024
UNIT = ROOT / "roles/registry/templates/registry.service.j2"


@pytest.mark.parametrize("role", ["registry", "training_image"])
def test_no_other_account_of_its_host_can_listen_on_the_port_for_pushes(role: str) -> None:
    defaults = yaml.safe_load((ROOT / "roles/registry/defaults/main.yml").read_text(encoding="utf-8"))
    port = defaults["registry_push_port"]
    assert 0 < port < UNPRIVILEGED
    specs = (ROOT / f"roles/{role}/meta/argument_specs.yml").read_text(encoding="utf-8")
    assert f"default: {port}\n" in specs or f"registry_push_port | default({port})" in specs


def test_its_unit_may_listen_there_and_nothing_more() -> None:
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    assert {one.partition("=")[2] for one in lines if one.startswith(("Ambient", "CapabilityB"))} == {
        "CAP_NET_BIND_SERVICE"
    }
