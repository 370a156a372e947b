"""What a registry says again of the credentials that it was told does not leave the node."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import image_pull, masking
from ansible_collections.clusterctl.cluster.plugins.modules import container_image, registry_image
from tests.support.called_module import called

from clustercheck.parse import plain_text

SECRET = "S3cr3t/\"of' the robot"
SENT = base64.b64encode(f"robot:{SECRET}".encode()).decode()
DIGEST = "sha256:" + "ab" * 32
# As a reason phrase, in JSON, in Go's and Python's quotes, in an address, and as the header has it.
WORDS = f"denied: {SECRET} {json.dumps(SECRET)} {SECRET!r} S3cr3t%2F%22of%27%20the%20robot {SENT} end"


@pytest.fixture
def auth(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"auths": {"registry01": {"auth": SENT}, "x": 3}}), encoding="utf-8")
    return file


def program(directory: Path, name: str, text: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (directory / name).chmod(0o755)


def is_told(found: object) -> bool:
    return any(form in json.dumps(found) for form in ("S3cr3t", SENT, "of the robot"))


def test_a_secret_is_masked_in_each_form_in_which_it_may_come_back(auth: Path) -> None:
    told = masking.mask_forms(WORDS, masking.forms_in_auth_file(str(auth)))
    assert told.split() == ["denied:", "***", '"***"', "'***'", "***", "***", "end"]


@pytest.mark.parametrize("glue", ["\0", "\x08", "\x1b[0m", "\u200b", "\x7f", "\u202e", "\x1b]0;x\x07", "\r"])
def test_what_the_controller_removes_puts_no_secret_together(glue: str) -> None:
    said = masking.mask_forms(f"denied: S3c{glue}ret-pw", masking.secret_forms("S3cret-pw", "u"))
    assert plain_text.plain_text(said) == "denied: ***"
    assert masking.mask_forms(f"a{glue}b", frozenset()) == f"a{glue}b"


def test_the_controller_removes_the_same() -> None:
    for name in ("_SEQUENCES", "_CONTROLS"):
        assert getattr(masking, name).pattern == getattr(plain_text, name).pattern


@pytest.mark.parametrize("text", ["", "[]", '{"auths": 3}', '{"auths": {"x": {"auth": "\\u00e9"}}}'])
def test_a_file_without_credentials_hides_nothing_or_what_it_has(text: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text, encoding="utf-8")
    masking.forms_in_auth_file(str(tmp_path / "x"))
    assert masking.forms_in_auth_file(str(tmp_path / "absent")) == frozenset()
    assert masking.mask_forms("words", frozenset()) == "words"


def test_what_the_registry_says_of_a_manifest_has_no_secret(
    auth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(WORDS)

    monkeypatch.setattr(image_pull, "fetcher", refuse)
    found = image_pull.look("127.0.0.1:1/x", DIGEST, str(auth.parent), tmp_path, "x86_64")
    assert "denied" in found["unknown"] and not is_told(found)


@pytest.mark.parametrize("module", [container_image, registry_image], ids=["docker", "skopeo"])
def test_what_docker_and_skopeo_print_has_no_secret(
    module: SimpleNamespace,
    auth: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "words").write_text(WORDS, encoding="utf-8")
    say = f"cat {tmp_path / 'words'} >&2; exit 1"
    program(tmp_path / "bin", "docker", f'[ "$1" = --config ] || exit 1\n{say}')
    program(tmp_path / "bin", "skopeo", say)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    arguments: dict[str, Any] = {"digest": DIGEST}
    if module is container_image:
        arguments |= {"repository": "127.0.0.1:1/x", "client_config": str(auth.parent)}
    else:
        arguments |= {"source": "127.0.0.1:1/x", "destination": "127.0.0.1:2/x"}
        arguments |= {"source_auth_file": str(auth), "http_proxy": "http://me:Pr0xy@192.0.2.1:1"}
    found = called(module, arguments, tmp_path, capsys, check=False)
    assert found["failed"] and found["code"] == "registry.login-refused"
    assert "***" in found["msg"] and "***" in "".join(found["stderr_lines"])
    assert not is_told({**found, "invocation": {}})


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("https://ops:it's@mirror:443/cuda/", "https://mirror:443/cuda/"),
        ("http://mirror/a@b", "http://mirror/a@b"),
        ("file:/srv/cuda/", "file:/srv/cuda/"),
        ("copy:/srv/a@b", "copy:/srv/a@b"),
        ("", ""),
    ],
)
def test_an_address_loses_its_login_and_nothing_else(url: str, printed: str) -> None:
    assert masking.without_login(url) == printed
