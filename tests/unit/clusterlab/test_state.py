"""The lab's state on disk, and finding the lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.errors import ClusterctlError
from clusterlab.keys import ensure_authority, ensure_depot_certificate, ensure_ssh_key
from clusterlab.state import LabDirectory, LabNode, LabState, find_lab


def a_state(lab: LabDirectory) -> LabState:
    nodes = [
        LabNode(name="gpu01", role="gpu", address="10.87.1.11", image="i"),
        LabNode(name="depot", role="depot", address="10.87.1.2", image="d"),
    ]
    return LabState(suffix=lab.names.suffix, system="debian12", hardware="hgx-a100-80gb", nodes=nodes)


def test_a_state_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    lab = LabDirectory(tmp_path / ".lab")
    assert lab.load() is None
    lab.save(a_state(lab))
    assert lab.load() == a_state(lab)
    assert [path.name for path in lab.root.iterdir()] == ["state.json"], "no temporary file stays"


@pytest.mark.parametrize("text", ["", "{", '{"version": 1, "surprise": true}', "[]"])
def test_a_state_that_cannot_be_read_is_explained(tmp_path: Path, text: str) -> None:
    lab = LabDirectory(tmp_path)
    lab.state_file.write_text(text)
    with pytest.raises(ClusterctlError) as caught:
        lab.load()
    assert caught.value.code == "lab.state-unreadable"
    assert caught.value.where == str(lab.state_file)


def test_the_depot_is_no_host_of_the_operators(tmp_path: Path) -> None:
    state = a_state(LabDirectory(tmp_path))
    assert state.require_host("gpu01").address == "10.87.1.11"
    for name in ("depot", "gpu02"):
        with pytest.raises(ClusterctlError) as caught:
            state.require_host(name)
        assert caught.value.hint == "It has: gpu01."


def test_the_lab_is_found_from_below_and_belongs_to_the_repository(tmp_path: Path) -> None:
    repository = tmp_path / "clone"
    below = repository / "docs" / "deep"
    below.mkdir(parents=True)
    (repository / ".git").mkdir()
    assert find_lab(None, below).root == repository / ".lab"
    assert find_lab(tmp_path / "other", below).root == tmp_path / "other"
    lab = LabDirectory(below / ".lab")
    lab.save(a_state(lab))
    assert find_lab(None, below).root == lab.root


def test_keys_are_made_once_and_secrets_are_their_owners_alone(tmp_path: Path) -> None:
    key = tmp_path / "ssh" / "id_ed25519"
    line = ensure_ssh_key(key)
    assert line.startswith("ssh-ed25519 ")
    assert ensure_ssh_key(key) == line
    ensure_depot_certificate(tmp_path / "authority", tmp_path / "depot", "10.87.1.2")
    before = (tmp_path / "depot" / "depot.crt").read_bytes()
    ensure_depot_certificate(tmp_path / "authority", tmp_path / "depot", "10.87.1.2")
    assert (tmp_path / "depot" / "depot.crt").read_bytes() == before
    for secret in (key, tmp_path / "authority" / "ca.key", tmp_path / "depot" / "depot.key"):
        assert secret.stat().st_mode & 0o777 == 0o600


def test_the_depots_certificate_stands_on_the_labs_authority(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.x509.verification import PolicyBuilder, Store

    authority, _ = ensure_authority(tmp_path / "authority")
    ensure_depot_certificate(tmp_path / "authority", tmp_path / "depot", "10.87.1.2")
    trusted = Store([x509.load_pem_x509_certificate(authority.read_bytes())])
    certificate = x509.load_pem_x509_certificate((tmp_path / "depot" / "depot.crt").read_bytes())
    verifier = PolicyBuilder().store(trusted).build_server_verifier(x509.DNSName("depot"))
    assert len(verifier.verify(certificate, [])) == 2
