"""What only a real Harbor can prove: images move, and are refused, deleted and freed as was declared.

Run by ``script/test --harbor``. All names begin with the run's own prefix.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from tests.support.examples import examples
from tests.support.harbor_play import applied, changes, rotated
from tests.support.loopback_registry import tiny_layout
from tests.support.real_harbor import RealHarbor, until

from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.harbor.vault import Vault

from .harbor_states import anything, at, write_secrets

SOME, MORE = ["repository:pull"], ["repository:pull", "repository:push"]


@pytest.fixture
def real(the_real_harbor: RealHarbor | None) -> Iterator[RealHarbor]:
    """The Harbor that was named, without what this test made."""
    assert the_real_harbor is not None
    yield the_real_harbor
    the_real_harbor.clean(prefix=the_real_harbor.prefix)


class Images:
    """Tiny images, pushed and pulled by skopeo as a robot that the reconciler made."""

    def __init__(self, harbor: RealHarbor, directory: Path) -> None:
        self.harbor, self.directory = harbor, directory
        self._certificates = directory / "certificates"
        self._certificates.mkdir(exist_ok=True)
        if harbor.authority:
            (self._certificates / "ca.crt").write_bytes(harbor.authority.read_bytes())

    def push(self, robot: str, where: str, *, size: int = 2000, secret: str = "") -> str:
        """The digest that was pushed. Raises CalledProcessError."""
        layout = self.directory / "out"
        digest = tiny_layout(layout, size)
        self._copy(robot, "dest", f"oci:{layout}", self._at(where), secret)
        return digest

    def pull(self, robot: str, where: str, *, secret: str = "") -> str:
        """The digest that was pulled. Raises CalledProcessError."""
        target = self.directory / "in"
        self._copy(robot, "src", self._at(where), f"oci:{target}:pulled", secret)
        index = json.loads((target / "index.json").read_text())
        return str(index["manifests"][-1]["digest"])

    def secret(self, robot: str) -> str:
        """What is kept here of it."""
        entry = Vault(self.directory / "robots.json").robot(robot)
        return str(entry["secret"].get_secret_value())

    def _at(self, where: str) -> str:
        return f"docker://{self.harbor.host}/{where}"

    def _copy(self, robot: str, side: str, source: str, target: str, secret: str) -> None:
        user = Vault(self.directory / "robots.json").robot(robot)["user"]
        login = base64.b64encode(f"{user}:{secret or self.secret(robot)}".encode()).decode()
        auth = self.directory / "auth.json"
        auth.touch(0o600)
        auth.write_text(json.dumps({"auths": {self.harbor.host: {"auth": login}}}))
        options = [f"--{side}-authfile={auth}", f"--{side}-cert-dir={self._certificates}"]
        if self.harbor.url.startswith("http://"):
            options.append(f"--{side}-tls-verify=false")
        subprocess.run(
            ["skopeo", "copy", "--quiet", "--preserve-digests", *options, source, target],
            check=True, timeout=120, capture_output=True, text=True,
        )  # fmt: skip


def refusal(function: Callable[[], object]) -> str:
    """Why skopeo could not."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        function()
    return str(refused.value.stderr)


@pytest.fixture
def images(real: RealHarbor, tmp_path: Path) -> Images:
    return Images(real, tmp_path)


def golden(real: RealHarbor, **changed: Any) -> dict[str, Any]:
    """A project, a robot that pushes there and one that only pulls."""
    name = f"{real.prefix}golden"
    return {
        "registry_projects": [{"name": name, **changed}],
        "registry_robots": [
            {"name": "push", "project": name, "permissions": [{"namespace": name, "access": MORE}]},
            {"name": f"{real.prefix}pull", "permissions": [{"namespace": name, "access": SOME}]},
        ],
    }


def tags(real: RealHarbor, project: str, repository: str) -> dict[str, str]:
    """The digest of each tag."""
    path = f"/projects/{project}/repositories/{repository.replace('/', '%252F')}/artifacts"
    answer = real.call("GET", path, page_size=100)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return {}
    return {tag["name"]: one["digest"] for one in answer.json() for tag in one.get("tags") or []}


def test_robots_push_and_pull_as_far_as_they_may(real: RealHarbor, images: Images, tmp_path: Path) -> None:
    raw = golden(real)
    name = raw["registry_projects"][0]["name"]
    pusher, puller = f"{name}+push", f"{real.prefix}pull"
    assert applied(real.url, tmp_path, raw).exit_code == 0
    digest = images.push(pusher, f"{name}/deep/base:1")
    assert images.pull(puller, f"{name}/deep/base:1") == digest
    assert "action: push" in refusal(lambda: images.push(puller, f"{name}/base:2"))
    raw["registry_robots"][1]["disabled"] = True
    applied(real.url, tmp_path, raw)
    assert "unauthorized" in refusal(lambda: images.pull(puller, f"{name}/deep/base:1")).lower()


def test_after_a_rotation_the_new_secret_alone_serves(
    real: RealHarbor, images: Images, tmp_path: Path
) -> None:
    raw = golden(real)
    pusher = f"{real.prefix}golden+push"
    applied(real.url, tmp_path, raw)
    images.push(pusher, f"{real.prefix}golden/base:1")
    old = images.secret(pusher)
    assert rotated(real.url, tmp_path, raw).exit_code == 0
    assert images.secret(pusher) != old
    images.push(pusher, f"{real.prefix}golden/base:2")
    words = refusal(lambda: images.push(pusher, f"{real.prefix}golden/base:3", secret=old))
    assert "unauthorized" in words.lower()
    assert changes(applied(real.url, tmp_path, raw, prove=True)) == []


def test_a_secret_that_was_set_by_others_is_found_and_replaced(
    real: RealHarbor, images: Images, tmp_path: Path
) -> None:
    raw = golden(real)
    applied(real.url, tmp_path, raw)
    key = f"{real.prefix}pull"
    (robot,) = [one for one in real.every("/robots") if one["name"].endswith(key)]
    real.ask("PATCH", f"/robots/{robot['id']}", {"secret": "Another1Secret"})
    assert changes(applied(real.url, tmp_path, raw)) == []
    assert changes(applied(real.url, tmp_path, raw, prove=True)) == [("update", "robot", key)]
    assert changes(applied(real.url, tmp_path, raw, prove=True)) == []


def test_a_quota_refuses_what_does_not_fit(real: RealHarbor, images: Images, tmp_path: Path) -> None:
    raw = golden(real, quota=200_000)
    pusher, where = f"{real.prefix}golden+push", f"{real.prefix}golden/base"
    applied(real.url, tmp_path, raw)
    images.push(pusher, f"{where}:1", size=100_000)
    assert "upper limit" in refusal(lambda: images.push(pusher, f"{where}:2", size=150_000))
    raw["registry_projects"][0]["quota"] = "1G"
    applied(real.url, tmp_path, raw)
    images.push(pusher, f"{where}:2", size=150_000)


def test_an_immutable_tag_is_neither_replaced_nor_deleted(
    real: RealHarbor, images: Images, tmp_path: Path
) -> None:
    raw = golden(real, immutable_tags=[{"tags": "v*"}])
    name = raw["registry_projects"][0]["name"]
    applied(real.url, tmp_path, raw)
    digest = images.push(f"{name}+push", f"{name}/base:v1")
    assert "immutable" in refusal(lambda: images.push(f"{name}+push", f"{name}/base:v1")).lower()
    assert real.call("DELETE", f"/projects/{name}/repositories/base/artifacts/{digest}").status_code == 412
    images.push(f"{name}+push", f"{name}/base:dev")
    images.push(f"{name}+push", f"{name}/base:dev")
    assert tags(real, name, "base")["v1"] == digest
    # Who deletes a project deletes its rules first, and so does what cleans up after this test.
    raw["registry_projects"][0]["immutable_tags"] = []
    applied(real.url, tmp_path, raw, prune=False)


def test_retention_deletes_all_but_what_it_keeps(real: RealHarbor, images: Images, tmp_path: Path) -> None:
    keep = [{"keep": "latest_pushed", "count": 1, "tags": "dev-*"}, {"keep": "always", "tags": "v*"}]
    raw = golden(real, retention=keep)
    name = raw["registry_projects"][0]["name"]
    applied(real.url, tmp_path, raw)
    for tag in ("v1", "dev-1", "other", "dev-2"):
        images.push(f"{name}+push", f"{name}/base:{tag}")
    number = real.ask("GET", f"/projects/{name}")["metadata"]["retention_id"]
    real.ask("POST", f"/retentions/{number}/executions", {"dry_run": False})
    until(lambda: set(tags(real, name, "base")) == {"v1", "dev-2"})
    assert changes(applied(real.url, tmp_path, raw)) == []


def test_garbage_is_collected_as_declared_and_what_is_new_is_spared(
    real: RealHarbor, images: Images, tmp_path: Path
) -> None:
    """Harbor frees nothing that was pushed within two hours."""
    if real.in_use:
        pytest.skip("collects garbage of all projects")
    raw = golden(real)
    raw["registry_schedules"] = {"gc": {"cron": "0 0 3 * * 0", "delete_untagged": True, "workers": 3}}
    name = raw["registry_projects"][0]["name"]
    applied(real.url, tmp_path, raw)
    digest = images.push(f"{name}+push", f"{name}/base:1")
    before = {one["id"] for one in real.every("/system/gc")}
    schedule = real.ask("GET", "/system/gc/schedule")
    asked = {"schedule": {"type": "Manual"}, "parameters": json.loads(schedule["job_parameters"])}
    real.ask("POST", "/system/gc/schedule", asked)

    def ended() -> Any:
        runs = [one for one in real.every("/system/gc") if one["id"] not in before]
        return [one for one in runs if one["job_status"] not in ("Pending", "Running", "Scheduled")]

    (run,) = until(ended)
    assert run["job_status"] == "Success"
    assert json.loads(run["job_parameters"])["workers"] == 3
    assert images.pull(f"{real.prefix}pull", f"{name}/base:1") == digest
    assert changes(applied(real.url, tmp_path, raw)) == []


def itself(real: RealHarbor, images: Images, robot: str) -> dict[str, Any]:
    """This Harbor as its own upstream, as which a robot logs in."""
    secret = images.directory / "secret"
    secret.touch(0o600)
    secret.write_text(images.secret(robot) + "\n")
    user = Vault(images.directory / "robots.json").robot(robot)["user"]
    return {
        "name": f"{real.prefix}self",
        # As one of type harbor it finds itself unhealthy.
        "type": "docker-registry",
        "url": real.url,
        "access_key": user,
        "access_secret_file": "secret",
    }


def test_a_replication_moves_an_image(real: RealHarbor, images: Images, tmp_path: Path) -> None:
    """From this Harbor to itself, as a robot that may only pull."""
    raw = golden(real)
    name, target = raw["registry_projects"][0]["name"], f"{real.prefix}copies"
    puller = f"{real.prefix}pull"
    applied(real.url, tmp_path, raw)
    digest = images.push(f"{name}+push", f"{name}/base:1")
    images.push(f"{name}+push", f"{name}/base:dev")
    end = itself(real, images, puller)
    copy = {"name": f"{real.prefix}copy", "source": end["name"], "namespace": target,
            "filters": [{"type": "name", "value": f"{name}/base"},
                        {"type": "tag", "value": "[0-9]*"}]}  # fmt: skip
    raw["registry_projects"].append({"name": target})
    raw |= {"registry_endpoints": [end], "registry_replications": [copy]}
    done = applied(real.url, tmp_path, raw)
    assert [(one.change.subject, one.why) for one in done.outcomes if one.state != "done"] == []
    real.replicate(copy["name"])
    assert tags(real, target, "base") == {"1": digest}
    assert changes(applied(real.url, tmp_path, raw)) == []


def test_a_replication_hands_out_an_image(real: RealHarbor, images: Images, tmp_path: Path) -> None:
    """To a destination: this Harbor again, as a robot that may push there."""
    raw = golden(real)
    name, target, taker = raw["registry_projects"][0]["name"], f"{real.prefix}copies", f"{real.prefix}taker"
    raw["registry_projects"].append({"name": target})
    raw["registry_robots"].append({"name": taker, "permissions": [{"namespace": target, "access": MORE}]})
    applied(real.url, tmp_path, raw)
    digest = images.push(f"{name}+push", f"{name}/base:1")
    images.push(f"{name}+push", f"{name}/base:dev")
    end = itself(real, images, taker)
    copy = {"name": f"{real.prefix}copy", "destination": end["name"], "namespace": target,
            "filters": [{"type": "name", "value": f"{name}/base"},
                        {"type": "tag", "value": "[0-9]*"}]}  # fmt: skip
    raw |= {"registry_endpoints": [end], "registry_replications": [copy]}
    assert applied(real.url, tmp_path, raw).exit_code == 0
    real.replicate(copy["name"])
    assert tags(real, target, "base") == {"1": digest}
    assert changes(applied(real.url, tmp_path, raw)) == []


def test_a_proxy_cache_fetches_what_is_pulled(real: RealHarbor, images: Images, tmp_path: Path) -> None:
    raw = golden(real)
    name, cache = raw["registry_projects"][0]["name"], f"{real.prefix}cache"
    puller = f"{real.prefix}pull"
    applied(real.url, tmp_path, raw)
    digest = images.push(f"{name}+push", f"{name}/base:1")
    end = itself(real, images, puller)
    raw["registry_projects"].append({"name": cache, "proxy_of": end["name"]})
    raw["registry_endpoints"] = [end]
    raw["registry_robots"][1]["permissions"].append({"namespace": cache, "access": SOME})
    raw["registry_robots"].append(
        {"name": "push", "project": cache, "permissions": [{"namespace": cache, "access": MORE}]}
    )
    assert applied(real.url, tmp_path, raw).exit_code == 0
    assert images.pull(puller, f"{cache}/{name}/base:1") == digest
    assert until(lambda: tags(real, cache, f"{name}/base")) == {"1": digest}
    assert refusal(lambda: images.push(f"{cache}+push", f"{cache}/base:1"))
    number = real.ask("GET", f"/projects/{cache}")["metadata"]["retention_id"]
    assert real.ask("GET", f"/retentions/{number}")["rules"] == []


def test_what_has_no_setting_is_left_as_it_is(real: RealHarbor, tmp_path: Path) -> None:
    """Webhooks, labels, an allowlist, a scanner's choice: a site's own."""
    raw = golden(real, public=True)
    name = raw["registry_projects"][0]["name"]
    applied(real.url, tmp_path, raw)
    number = real.ask("GET", f"/projects/{name}")["project_id"]
    target = {"type": "http", "address": "http://127.0.0.1:9", "skip_cert_verify": True}
    hook = {"name": "hook", "enabled": True, "event_types": ["PUSH_ARTIFACT"], "targets": [target]}
    real.ask("POST", f"/projects/{name}/webhook/policies", hook)
    real.ask("POST", "/labels", {"name": "ours", "scope": "p", "project_id": number})
    allowed = {"items": [{"cve_id": "CVE-2026-0001"}], "project_id": number}
    real.ask(
        "PUT",
        f"/projects/{name}",
        {"cve_allowlist": allowed, "metadata": {"reuse_sys_cve_allowlist": "false"}},
    )

    def seen() -> list[Any]:
        project = real.ask("GET", f"/projects/{name}")
        labels = [one["name"] for one in real.every("/labels", scope="p", project_id=number)]
        hooks = [(one["name"], one["targets"]) for one in real.every(f"/projects/{name}/webhook/policies")]
        return [project["cve_allowlist"]["items"], labels, hooks]

    before = seen()
    assert before[0]
    raw["registry_projects"][0] |= {"public": False, "scan_on_push": True, "quota": "1G"}
    assert applied(real.url, tmp_path, raw, prune=False).exit_code == 0
    assert seen() == before


def test_no_secret_is_in_the_audit_log(real: RealHarbor, images: Images, tmp_path: Path) -> None:
    raw = golden(real)
    applied(real.url, tmp_path, raw)
    rotated(real.url, tmp_path, raw)
    key = f"{real.prefix}golden+push"
    images.push(key, f"{real.prefix}golden/base:1")
    answer = until(lambda: [
        one for one in real.ask("GET", "/auditlog-exts", page_size=100)
        if f"{real.prefix}golden" in json.dumps(one)
    ])  # fmt: skip
    assert images.secret(key) not in json.dumps(answer)


def test_a_preheat_network_that_is_not_there_is_unhealthy_and_its_policy_is_kept(
    real: RealHarbor, tmp_path: Path
) -> None:
    raw = golden(real)
    name, network = raw["registry_projects"][0]["name"], f"{real.prefix}dragon"
    place = f"http://{real.prefix}dragon.invalid:8080"
    raw["registry_preheat"] = {
        "instances": [{"name": network, "vendor": "dragonfly", "endpoint": place}],
        "policies": [{"name": "hot", "project": name, "instance": network, "repositories": "base"}],
    }
    assert applied(real.url, tmp_path, raw).exit_code == 0
    assert real.ask("GET", f"/p2p/preheat/instances/{network}")["status"] != "Healthy"
    policy = real.ask("GET", f"/projects/{name}/preheat/policies/hot")
    assert not real.call("POST", f"/projects/{name}/preheat/policies/hot", policy).is_success
    assert changes(applied(real.url, tmp_path, raw)) == []


@examples(8)
@given(before=anything(), after=anything())
def test_any_state_becomes_any_other_in_one_apply(
    the_real_harbor: RealHarbor | None, tmp_path_factory: pytest.TempPathFactory, **states: dict[str, Any]
) -> None:
    assert the_real_harbor is not None
    harbor = the_real_harbor
    if harbor.in_use:
        pytest.skip("wants a Harbor of its own")
    directory = tmp_path_factory.mktemp("states")
    write_secrets(directory)
    try:
        for raw in (plainly(states["before"], harbor), wanted := plainly(states["after"], harbor)):
            done = applied(harbor.url, directory, raw, prune=True, adopt=True)
            assert [(one.change.subject, one.why) for one in done.outcomes if one.state != "done"] == []
        left = applied(harbor.url, directory, wanted, prune=True, check=True)
        assert (changes(left), left.plan.remarks) == ([], [])
        declared = DeclaredHarbor.model_validate(wanted)
        there = {one["name"] for one in harbor.every("/projects")}
        assert there == {"library", *(one.name for one in declared.registry_projects)}
    finally:
        harbor.clean()


def plainly(raw: dict[str, Any], harbor: RealHarbor) -> dict[str, Any]:
    """With upstreams that a real Harbor finds healthy: itself."""
    raw = at(raw, "")
    plain = {"type": "docker-registry", "url": harbor.url, "ca_certificate": "",
             "insecure": harbor.authority is not None}  # fmt: skip
    ends = [
        {**{key: value for key, value in one.items() if not key.startswith("access_")}, **plain}
        for one in raw["registry_endpoints"]
    ]
    raw = {**raw, "registry_endpoints": ends}
    if not harbor.scans:
        raw["registry_schedules"] = {k: v for k, v in raw["registry_schedules"].items() if k != "scan_all"}
    return raw
