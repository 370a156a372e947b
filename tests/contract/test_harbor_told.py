"""Secrets that Harbor was told, said again by a Harbor that wants them in a log: nothing shows them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_plus

import pytest
from tests.support.harbor_play import NOTHING, PASSWORD, applied, rotated, site_of
from tests.support.hostile_server import HEAD_END, hostile, whole

from clusterctl.commands.registry import output
from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor import answers
from clusterctl.registry.harbor.change import ChangeState
from clusterctl.registry.harbor.client import BrokenAnswer
from clusterctl.registry.harbor.reconcile import Applied
from clusterctl.registry.harbor.vault import Vault
from clusterlab.simulated.harbor.api.asked import Answer, Asked
from clusterlab.simulated.harbor.api.server import StandIn

PULL = [{"namespace": "*", "access": ["repository:pull"]}]
ROBOT = {"registry_robots": [{"name": "pull", "permissions": PULL}]}
BASIC = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
# In every form that is said, cleaned or cut as ours may be.
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "after much else": lambda text: "x" * 290 + text,
    "with a colour inside": lambda text: f"{text[:4]}\x1b[31m{text[4:]}",
    "with an invisible character inside": "\u200b".join,
    "in an address": lambda text: quote(text, safe=""),
}

Twist = Callable[[Callable[[Asked, Answer], Answer]], None]


def shown(done: Applied, capsys: pytest.CaptureFixture[str]) -> str:
    """All that the commands print of a plan and of its outcomes, for people and for programs."""
    output.show_plan(done.plan)
    output.emit_plan(done.plan)
    for outcome in done.outcomes:
        output.tell_outcome(outcome)
        output.emit_outcome(outcome)
    said = capsys.readouterr()
    # JSON escapes what a terminal would not be shown.
    return f"{said.out} {said.err} {said.out.encode().decode('unicode_escape')}"


def parts(secret: str) -> set[str]:
    """Pieces from which it could be guessed."""
    return {secret[: len(secret) * 3 // 4], secret[len(secret) // 4 :], secret[::-1]}


@pytest.mark.parametrize("form", FORMS)
def test_what_harbor_writes_into_its_objects_shows_no_secret(
    harbor: StandIn, tmp_path: Path, twisted: Twist, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    raw: dict[str, Any] = {**NOTHING, **ROBOT, "registry_projects": [{"name": "gpu"}]}
    applied(harbor.url, tmp_path, raw)
    secret = Vault(tmp_path / "robots.json").robot("pull")["secret"].get_secret_value()

    def twist(asked: Asked, given: Answer) -> Answer:
        if asked.method != "GET" or not isinstance(given.body, list):
            return given
        words = f"{FORMS[form](PASSWORD)}/{FORMS[form](secret)}"[:1000]
        body = json.loads(json.dumps(given.body))
        for one in body:
            one |= {"description": words, **({"name": words} if "url" in one else {})}
        if "/projects?" in asked.target:
            body.append({"project_id": 99, "name": words, "metadata": {}})
        if "/robots?" in asked.target:
            more = {"id": 98, "name": words, "creation_time": "2026-01-01T00:00:00Z", "level": "system"}
            body.append(more)
        return Answer(200, body, {**given.headers, "X-Total-Count": str(len(body))})

    twisted(twist)
    done = applied(harbor.url, tmp_path, raw)
    assert len(done.plan.remarks) >= 2
    assert done.plan.changes
    said = shown(done, capsys)
    assert "(masked)" in said or "characters omitted" in said
    assert [piece for one in (PASSWORD, secret) for piece in parts(one) if piece in said] == []


@pytest.mark.parametrize("form", FORMS)
def test_a_refusal_of_a_secret_shows_it_nowhere(
    harbor: StandIn, tmp_path: Path, twisted: Twist, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    applied(harbor.url, tmp_path, ROBOT)
    sent: list[str] = []

    def twist(asked: Asked, given: Answer) -> Answer:
        if asked.method != "PATCH":
            return given
        sent.append(json.loads(asked.raw)["secret"])
        return Answer(400, {"errors": [{"code": "BAD", "message": f"bad secret {FORMS[form](sent[-1])}"}]})

    twisted(twist)
    done = rotated(harbor.url, tmp_path, ROBOT)
    assert [one.state for one in done.outcomes] == [ChangeState.FAILED]
    said = shown(done, capsys)
    assert "bad secret" in said
    assert [piece for piece in parts(sent[0]) if piece in said] == []


def test_a_refused_endpoint_and_network_show_the_secrets_of_neither(
    harbor: StandIn, upstream: str, tmp_path: Path, twisted: Twist, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = {"of-the/end point": "end", "of-the'netw\"ork": "net"}
    for secret, name in secrets.items():
        (tmp_path / name).write_text(f"{secret}\n")
        (tmp_path / name).chmod(0o600)
    end = {"name": "up", "type": "docker-registry", "url": upstream, "access_key": "me"}
    network = {"name": "d", "vendor": "dragonfly", "endpoint": "http://d", "user": "u"}
    raw = {
        "registry_endpoints": [{**end, "access_secret_file": "end"}],
        "registry_preheat": {"instances": [{**network, "password_file": "net"}]},
    }
    twisted(
        lambda asked, given: (
            Answer(400, {"errors": [{"message": f"no: {asked.raw.decode()} {'|'.join(secrets)}"}]})
            if asked.method == "POST" and "login" not in asked.target
            else given
        )
    )
    done = applied(harbor.url, tmp_path, raw)
    assert len(done.outcomes) == 2
    said = shown(done, capsys)
    assert "no: " in said
    assert [secret for secret in secrets if secret in said or json.dumps(secret)[1:-1] in said] == []


def test_a_line_that_is_no_header_shows_no_password_of_the_login(tmp_path: Path) -> None:
    """As httpx quotes it in its own error."""

    def answer(_: str) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n" + f"{PASSWORD} {BASIC}".encode() + HEAD_END

    with hostile(answer) as server, site_of(f"http://{server.host}", tmp_path) as site:
        with pytest.raises(ClusterctlError, match="masked") as refused:
            site.client.get("health", "/health")
        said = f"{refused.value} {refused.value.what} {refused.value.where} {refused.value.hint}"
        assert not any(word in unquote_plus(said) for word in (PASSWORD, BASIC))


def test_a_field_that_is_named_as_the_password_is_not_quoted(tmp_path: Path) -> None:
    body = json.dumps([{"id": 1, "scope_selectors": {PASSWORD: "x"}}]).encode()
    with (
        hostile(lambda _: whole(body, "X-Total-Count: 1")) as server,
        site_of(f"http://{server.host}", tmp_path) as site,
        pytest.raises(BrokenAnswer, match="masked") as refused,
    ):
        site.client.every("rules", "/rules", answers.ImmutableRuleAnswer)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [{"again": PASSWORD}, {PASSWORD: [{"x": PASSWORD}]}, [[PASSWORD]], {"x": "A" * 1_000_000}, 10**3000],
    ids=["value", "key", "list", "long", "number"],
)
def test_nor_does_an_object_where_harbors_api_has_a_text(
    harbor: StandIn, tmp_path: Path, twisted: Twist, capsys: pytest.CaptureFixture[str], value: Any
) -> None:
    raw: dict[str, Any] = {**NOTHING, **ROBOT}
    applied(harbor.url, tmp_path, raw)

    def twist(asked: Asked, given: Answer) -> Answer:
        if asked.method != "GET" or "/robots" not in asked.target or not isinstance(given.body, list):
            return given
        body = [{**json.loads(json.dumps(one)), "description": value} for one in given.body]
        return Answer(200, body, given.headers)

    twisted(twist)
    done = applied(harbor.url, tmp_path, raw)
    said = shown(done, capsys)
    assert "description" in said
    assert PASSWORD not in said
    assert len(said) < 10_000
