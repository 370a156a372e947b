"""Who `clusterctl registry` logs in as, where, and what it refuses to send there."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.commands.registry import reached

from .declared_site import DECLARED, call, declare, refusal


def test_a_wrong_password_is_said_with_harbors_words_and_no_secret(site: Path) -> None:
    (site / ".clusterctl/secrets/harbor-admin.password").write_text("not-it\n")
    error = refusal(call(site, "plan"))
    assert (error.code, error.exit_code) == ("registry.api-denied", 2)
    assert error.what == "Harbor refuses admin (configuration): unauthorized (HTTP 401)"
    assert "not-it" not in error.what + error.hint


@pytest.mark.parametrize(("mode", "text"), [(0o644, "Harbor12345\n"), (0o600, ""), (None, "")])
def test_a_password_file_that_cannot_serve_is_refused(site: Path, mode: int | None, text: str) -> None:
    path = site / ".clusterctl/secrets/harbor-admin.password"
    path.unlink()
    if mode is not None:
        path.write_text(text)
        path.chmod(mode)
    error = refusal(call(site, "plan"))
    assert (error.code, error.where) == ("registry.secret-file", str(path))


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("http://harbor.example", True),
        ("http://192.0.2.7:8080", True),
        ("http://localhost.example", True),
        ("http://127.0.0.1.example", True),
        ("harbor.example", True),
        ("https://harbor.example", False),
        ("http://localhost:1", False),
        ("http://[::1]:1", False),
        ("http://[::1]", False),
        ("http://127.3.2.1:1", False),
    ],
)
def test_no_password_goes_out_in_clear(site: Path, url: str, is_refused: bool) -> None:
    declare(site, {**DECLARED, "registry_api_url": url})
    if is_refused:
        assert refusal(call(site, "plan")).code == "registry.api-in-clear"
    else:
        assert reached.settings(site).access.url == url


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_password_in_the_address_is_refused_and_not_repeated(site: Path, scheme: str) -> None:
    declare(site, {**DECLARED, "registry_api_url": f"{scheme}://bob:correct-horse@127.0.0.1:1"})
    error = refusal(call(site, "plan"))
    assert error.code == "settings.value"
    assert "correct-horse" not in f"{error.what} {error.where} {error.hint}"


def test_the_embedded_registry_has_nothing_to_declare(site: Path) -> None:
    declare(site, DECLARED)
    assert refusal(call(site, "plan")).code == "registry.no-harbor"
