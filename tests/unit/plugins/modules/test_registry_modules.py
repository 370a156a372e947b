"""What the registry's modules decide: credentials, trust, digests, failures in one sentence."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import image_digest
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault
from ansible_collections.clusterctl.cluster.plugins.modules import (
    container_image,
    registry_credentials,
    registry_image,
    registry_trust,
)
from pydantic import SecretStr
from tests.support.played_module import PlayedModule, result_of

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor import vault as harbor_vault

CA = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
DIGEST = "sha256:" + "ab" * 32


PLAIN = Vault({})


def write(path: Path, content: str) -> None:
    registry_credentials.write_private(path, content, PLAIN)


def make(directory: Path) -> list[str]:
    changed = registry_credentials.ensure(
        directory, "registry-push", "push", ["127.0.0.1:5001"], put=write, vault=PLAIN
    )
    return [path.name for path in changed]


def test_credentials_are_made_once_private_and_fit_each_other(tmp_path: Path) -> None:
    assert make(tmp_path) == ["registry-push.password", "registry-push.htpasswd", "registry-push.auth.json"]
    assert make(tmp_path) == []
    password = (tmp_path / "registry-push.password").read_text(encoding="utf-8").strip()
    line = (tmp_path / "registry-push.htpasswd").read_text(encoding="utf-8")
    assert registry_credentials.htpasswd_fits(line, "push", password)
    assert not registry_credentials.htpasswd_fits(line, "pull", password)
    auths = json.loads((tmp_path / "registry-push.auth.json").read_text(encoding="utf-8"))["auths"]
    assert base64.b64decode(auths["127.0.0.1:5001"]["auth"]).decode() == f"push:{password}"
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_password_that_an_operator_sets_is_followed(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "registry-push.password").write_text("their own\n", encoding="utf-8")
    assert make(tmp_path) == ["registry-push.htpasswd", "registry-push.auth.json"]
    line = (tmp_path / "registry-push.htpasswd").read_text(encoding="utf-8")
    assert registry_credentials.htpasswd_fits(line, "push", "their own")


def test_a_robots_password_is_taken_from_its_file_and_never_from_one_that_others_read(tmp_path: Path) -> None:
    given, kept = tmp_path / "robot", tmp_path / "secrets"
    kept.mkdir()

    def ensure() -> list[str]:
        changed = registry_credentials.ensure(
            kept, "registry-robot", "robot$nodes", ["harbor.lan"],
            put=write, vault=PLAIN, given=str(given),
        )  # fmt: skip
        return [path.name for path in changed]

    with pytest.raises(ValueError, match="is not there"):
        ensure()
    given.write_text("Made0ByHarbor\n", encoding="utf-8")
    given.chmod(0o644)
    with pytest.raises(ValueError, match="read by others"):
        ensure()
    given.chmod(0o600)
    assert "registry-robot.auth.json" in ensure()
    assert ensure() == []
    auths = json.loads((kept / "registry-robot.auth.json").read_text(encoding="utf-8"))["auths"]
    assert base64.b64decode(auths["harbor.lan"]["auth"]).decode() == "robot$nodes:Made0ByHarbor"
    given.write_text("Rotated1\n", encoding="utf-8")
    assert "registry-robot.auth.json" in ensure()


def test_a_password_file_that_cannot_be_removed_is_said_and_ends_in_no_traceback(tmp_path: Path) -> None:
    kept = harbor_vault.Vault(tmp_path / harbor_vault.FILE)
    kept.begin("nodes", None, now=harbor_vault.now())
    (tmp_path / harbor_vault.PASSWORDS / "nodes.password").mkdir(parents=True)
    with pytest.raises(ClusterctlError) as caught:
        kept.forget("nodes")
    assert caught.value.code.startswith("cluster.state-not-")


def test_a_robots_secret_comes_from_the_file_that_the_reconciler_writes(tmp_path: Path) -> None:
    vault = tmp_path / registry_credentials.ROBOTS
    assert registry_credentials.ROBOTS == harbor_vault.FILE
    with pytest.raises(ValueError, match="registry apply makes the robots"):
        registry_credentials.robot_of(vault, "nodes", PLAIN)
    kept = harbor_vault.Vault(vault)
    kept.begin("nodes", SecretStr("Made0ByUs-yes"), now=harbor_vault.now())
    kept.save()
    with pytest.raises(ValueError, match="does not have the secret"):
        registry_credentials.robot_of(vault, "nodes", PLAIN)
    kept.done("nodes", "robot$nodes", 7)
    kept.save()
    assert registry_credentials.robot_of(vault, "nodes", PLAIN) == ("robot$nodes", "Made0ByUs-yes")
    with pytest.raises(ValueError, match="there are: nodes"):
        registry_credentials.robot_of(vault, "node", PLAIN)

    def ensure() -> list[str]:
        changed = registry_credentials.ensure(
            tmp_path, "registry-robot", "pull", ["harbor.lan"],
            put=write, vault=PLAIN, robot="nodes",
        )  # fmt: skip
        return [path.name for path in changed]

    assert "registry-robot.auth.json" in ensure()
    assert ensure() == []
    auths = json.loads((tmp_path / "registry-robot.auth.json").read_text(encoding="utf-8"))["auths"]
    assert base64.b64decode(auths["harbor.lan"]["auth"]).decode() == "robot$nodes:Made0ByUs-yes"
    kept.begin("nodes", SecretStr("Rotated0-yes"), now=harbor_vault.now())
    kept.done("nodes", "robot$nodes", 7)
    kept.save()
    assert "registry-robot.auth.json" in ensure()
    vault.chmod(0o644)
    with pytest.raises(ValueError, match="read by others"):
        ensure()


def trust(**options: object) -> dict[str, str]:
    defaults = {
        "name": "clusterctl-mysite", "ca_certificate": CA, "address": "registry01:5000",
        "docker_certs": "/etc/docker/certs.d", "os_store": "/usr/local/share/ca-certificates",
    }  # fmt: skip
    return {str(file.path): file.content for file in registry_trust.wanted_files({**defaults, **options})}


def test_the_authority_goes_where_os_and_docker_look() -> None:
    assert trust() == {
        "/usr/local/share/ca-certificates/clusterctl-mysite.crt": CA,
        "/etc/docker/certs.d/registry01:5000/ca.crt": CA,
    }


def test_a_ca_of_somebody_else_is_known_and_our_own_former_one_too() -> None:
    wanted = registry_trust.TrustFile(Path("/etc/docker/certs.d/registry01:5000/ca.crt"), CA)
    assert registry_trust.is_theirs(wanted, "theirs\n", known="ours of last year\n")
    assert not registry_trust.is_theirs(wanted, "ours of last year", known="ours of last year\n")
    assert not registry_trust.is_theirs(wanted, "", known="")
    store = registry_trust.TrustFile(Path("/usr/local/share/ca-certificates/clusterctl-mysite.crt"), CA)
    assert not registry_trust.is_theirs(store, "x", known="x")


def test_the_oss_bundle_is_searched_however_its_lines_break(tmp_path: Path) -> None:
    bundle = tmp_path / "ca-certificates.crt"
    assert registry_trust.bundle_lacks(bundle, CA)
    bundle.write_text("other\n" + CA.replace("\n", "\r\n"), encoding="utf-8")
    assert not registry_trust.bundle_lacks(bundle, CA)


def test_a_manifest_is_known_by_its_bytes() -> None:
    raw = '{"schemaVersion": 2}'
    digest = "sha256:" + hashlib.sha256(raw.encode()).hexdigest()
    assert registry_image.is_manifest(raw, digest)
    assert not registry_image.is_manifest(raw + "\n", digest)


COPY = {"source": "depot:5000/p", "destination": "harbor.lan/p", "source_auth_file": "",
        "destination_auth_file": "", "http_proxy": "", "https_proxy": ""}  # fmt: skip


class Skopeo(PlayedModule):
    """A module whose skopeo reads one manifest."""

    def __init__(self, raw: str) -> None:
        whole = raw.encode(errors="surrogateescape")
        self.raw, self.digest = raw, f"sha256:{hashlib.sha256(whole).hexdigest()}"
        super().__init__({**COPY, "digest": self.digest})

    def run_command(self, *_: object, **__: object) -> tuple[int, str, str]:
        return 0, self.raw, ""


@pytest.mark.parametrize("raw", [b"\xff", b'{"config": {"size": 1e999}, "layers": []}'])
def test_a_manifest_that_cannot_be_read_ends_the_copy(raw: bytes) -> None:
    module = Skopeo(raw.decode(errors="surrogateescape"))
    assert module.digest == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    said = result_of(registry_image.size_of, module, "skopeo", module.digest)
    assert "this manifest cannot be copied" in said["msg"]


def test_an_image_is_as_large_as_its_manifest_says() -> None:
    layer = {"size": 40, "urls": [], "annotations": {"urls": "https://example.com"}}
    module = Skopeo(json.dumps({"config": {"size": 2}, "layers": [layer, {"size": 3, "urls": None}]}))
    assert registry_image.size_of(module, "skopeo", module.digest) == 45


@pytest.mark.parametrize("name", ["urls", "URLs", "url\N{LATIN SMALL LETTER LONG S}"])
@pytest.mark.parametrize("kind", ["layers", "Layers", "manifests"])
def test_a_layer_that_skopeo_would_not_copy_ends_the_copy(name: str, kind: str) -> None:
    part = {"digest": DIGEST, "size": 1, name: ["http://192.0.2.1/admin?reboot=all"]}
    module = Skopeo(json.dumps({"config": {"size": 2}, "layers": [], kind: [part]}))
    said = result_of(registry_image.size_of, module, "skopeo", module.digest)
    assert "it names other addresses" in said["msg"]
    assert "declare the digest of an image that has all its layers" in said["msg"]


@pytest.mark.parametrize(
    ("destination", "host"),
    [
        ("registry01:443/library/paddle", "registry01"),
        ("10.0.0.5/x", "10.0.0.5"),
        ("[fd00::5]:443/x", "fd00::5"),
    ],
)
def test_a_push_goes_past_the_sites_proxy_whatever_the_destination_is_called(
    destination: str, host: str
) -> None:
    told = {
        "destination": destination,
        "http_proxy": "",
        "https_proxy": "http://proxy:3128",
        "no_proxy": ".lan",
    }
    went = registry_image.proxies(SimpleNamespace(params=told))  # type: ignore[arg-type]
    assert went["no_proxy"].split(",") == [".lan", host, "127.0.0.1", "localhost"]
    assert registry_image.proxies(SimpleNamespace(params={**told, "https_proxy": ""})) == {}  # type: ignore[arg-type]


def test_an_image_counts_only_under_its_own_repository_and_digest() -> None:
    inspected = [{"RepoDigests": [f"registry01:5000/library/paddle@{DIGEST}"]}]
    assert container_image.has_digest(inspected, "registry01:5000/library/paddle", DIGEST)
    assert not container_image.has_digest(inspected, "depot:5000/library/paddle", DIGEST)
    assert not container_image.has_digest([{"RepoDigests": None}], "registry01:5000/library/paddle", DIGEST)
    assert not container_image.has_digest([], "registry01:5000/library/paddle", DIGEST)


# Docker 20.10 said so of registries that were made so; Harbor, Docker Hub and containerd as is reported.
@pytest.mark.parametrize(
    ("said", "cure", "known_as"),
    [
        ('Get "https://r:5000/v2/": x509: certificate signed by unknown authority', "does not trust",
         "registry.certificate"),
        ('Get "https://r:5000/v2/": tls: failed to verify certificate: x509: certificate has expired or is '
         "not yet valid: current time 2026-11-22T01:00:47Z is after 2026-10-25T01:00:46Z",
         "certificate of r:5000 has expired", "registry.certificate"),
        ("unauthorized: authentication required", "refuses this host's password", "registry.login-refused"),
        ("unauthorized: unauthorized to access repository: library/a, action: pull: unauthorized to access "
         "repository: library/a, action: pull", "refuses this host's password", "registry.login-refused"),
        ('Get "https://r:5000/v2/a/manifests/sha256:0": no basic auth credentials', "or asks for one",
         "registry.login-refused"),
        ("failed to authorize: failed to fetch oauth token: unexpected status from GET request to "
         "https://r:5000/service/token: 401 Unauthorized", "refuses this host's password",
         "registry.login-refused"),
        ("toomanyrequests: You have reached your pull rate limit.", "limits how often",
         "registry.too-many-requests"),
        ('error parsing HTTP 429 response body: unexpected end of JSON input: ""', "limits how often",
         "registry.too-many-requests"),
        ("received unexpected HTTP status: 503 Service Unavailable", "error of its own",
         "registry.unreachable"),
        ("manifest for r:5000/a@sha256:0 not found: manifest unknown: manifest unknown", "apply images to",
         "registry.no-image"),
        ("write /var/lib/docker/tmp/GetImageBlob123: no space left on device", "the disk of /store is full",
         "host.disk-full"),
        ("failed to register layer: write /usr/lib/x: no space left on device", "the disk of /store is full",
         "host.disk-full"),
        ('failed to copy: failed to send write: write /var/lib/containerd/x/ingest/y/data: no space left on '
         "device: unknown", "the disk of /store is full", "host.disk-full"),
        ('Get "https://r:5000/v2/": dial tcp 10.0.0.5:5000: connect: connection refused', "nothing listens",
         "registry.unreachable"),
    ],
)  # fmt: skip
def test_a_failed_pull_says_why_and_what_to_do(said: str, cure: str, known_as: str) -> None:
    err = f"Error response from daemon: {said}\n"
    told = container_image.explain(err, "r:5000/a@sha256:0", Path("/store"))
    assert said.rstrip('"') in told
    assert cure in told
    assert image_digest.code_of(err) == known_as
