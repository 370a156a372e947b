"""Secrets in memory: no repr, message or traceback shows one, and what must be sent is whole."""

from __future__ import annotations

import io
import json
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from clusterctl.cluster.access import LONGEST_BYTES, Passwords, read_password
from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor.client import Access
from clusterctl.registry.harbor.secret_text import new_secret, read_secret_file
from clusterctl.registry.harbor.vault import Vault
from clusterctl.registry.oci.credentials import Credentials, credentials_for
from clusterctl.registry.oci.tokens import Tokens

WORD = "hunter2-Hunter2"


def passwords(path: Path) -> Passwords:
    path.write_text(f"{WORD}\n")
    return Passwords(ssh=read_password(str(path)), become=read_password(str(path)))


def harbor_access(path: Path) -> Access:
    path.write_text(f"{WORD}\n")
    path.chmod(0o600)
    return Access("https://harbor", "admin", read_secret_file(path, "the password"))


def credentials(path: Path) -> Credentials | None:
    path.write_text(json.dumps({"auths": {"registry:5000": {"username": "pull", "password": WORD}}}))
    return credentials_for(path, "registry:5000")


def robot(path: Path) -> dict[str, Any]:
    vault = Vault(path)
    vault.begin("push", SecretStr(WORD), now=datetime.now(UTC))
    vault.save()
    return dict(Vault(path).robot("push"))


def token_headers(_path: Path) -> dict[str, Any]:
    tokens = Tokens("registry:5000", Credentials("pull", SecretStr(WORD)), plain=True)
    asked = httpx.Response(401, headers={"www-authenticate": "Basic"})
    assert tokens.renew(httpx.Client(), asked, "scope", "")
    assert tokens.header("scope") == Credentials("pull", SecretStr(WORD)).basic
    return vars(tokens)


def traced(held: Any) -> list[str]:
    """A traceback with the locals of its frames."""
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / (held is None)
    return list(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())


@pytest.mark.parametrize("holder", [passwords, harbor_access, credentials, robot, token_headers])
def test_no_text_of_what_holds_a_secret_has_it(tmp_path: Path, holder: Callable[[Path], Any]) -> None:
    held = holder(tmp_path / "file")
    shown = "".join([repr(held), str(held), f"{held}", *traced(held)])
    assert "**********" in shown
    assert WORD not in shown
    assert Credentials("pull", SecretStr(WORD)).basic not in shown


def test_what_is_written_and_sent_is_the_secret_itself(tmp_path: Path) -> None:
    made = new_secret()
    vault = Vault(tmp_path / "robots.json")
    vault.begin("push", made, now=datetime.now(UTC))
    vault.done("push", "robot$push", 7)
    vault.save()
    assert json.loads(vault.path.read_text())["robots"]["push"]["secret"] == made.get_secret_value()
    kept = Vault(vault.path)
    assert kept.robot("push")["secret"] == made
    assert kept.has_password_file("push")
    assert not kept.has_password_file("another")


def test_a_line_without_end_on_standard_input_is_read_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 100_000))
    assert len(read_password("-").get_secret_value()) == LONGEST_BYTES


@pytest.mark.parametrize("source", ["²", "٣", "1" * 30, "a\0b"])
def test_a_source_of_a_password_that_is_none_is_said(source: str) -> None:
    with pytest.raises(ClusterctlError) as found:
        read_password(source)
    assert found.value.code == "access.password-file"
