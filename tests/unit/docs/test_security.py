"""docs/security.md: each attacker has what it can try, what stops it and what remains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ATTACKERS = {
    "hostile node": ("address", "forwarded"),
    "hostile registry": ("redirects", "digest"),
    "hostile bundle": ("signature", "--allow-unsigned"),
    "hostile package source": ("fingerprints",),
    "another local user": ("0600",),
    "network": ("TLS", "SSH"),
    "second operator": ("lock", "leases"),
    "lost laptop": ("Ansible Vault",),
}


@pytest.fixture
def rows(repository: Path) -> dict[str, list[str]]:
    """The cells of the table of attackers, by the first."""
    text = (repository / "docs/security.md").read_text(encoding="utf-8")
    _, _, section = text.partition("\n## Attackers\n")
    lines = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("| **")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return {first.strip(" *"): [cell.strip() for cell in others] for first, *others in cells}


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_each_attacker_has_what_stops_it_and_what_remains(rows: dict[str, list[str]], attacker: str) -> None:
    found = [cells for first, cells in rows.items() if attacker in first]
    assert len(found) == 1
    (cells,) = found
    assert len(cells) == 3
    assert all(cells), "a cell is empty"
    for word in ATTACKERS[attacker]:
        assert word in f"{cells[1]} {cells[2]}"


def test_it_is_said_that_nodes_attest_themselves_and_what_the_chain_proves(repository: Path) -> None:
    text = " ".join((repository / "docs/security.md").read_text(encoding="utf-8").split())
    assert "a root that lies about its own GPUs passes" in text
    assert "the chain proves something only against a head that is kept elsewhere" in text
