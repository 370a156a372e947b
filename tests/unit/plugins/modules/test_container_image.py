"""What a pull moves, over which link, and how it went: in the node's module, and in what is said of it."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import platform
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import image_pull
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault
from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate

from clusterctl.cluster.inventory import Host
from clusterctl.engine.ledger import HostRecord
from clusterctl.rollout import pulls
from clusterctl.rollout.waves import Wave

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
GB = 10**9
MANIFEST = {"layers": [{"digest": B, "size": 7}]}
OF_MANIFEST = "sha256:" + hashlib.sha256(json.dumps(MANIFEST).encode()).hexdigest()


def test_of_a_list_the_image_for_this_machine_counts() -> None:
    def platform_of(architecture: str, system: str = "linux") -> dict[str, str]:
        return {"architecture": architecture, "os": system}

    index = [
        {"digest": "arm", "platform": platform_of("arm64")},
        {"digest": "windows", "platform": platform_of("amd64", "windows")},
        {"digest": "attestation", "platform": platform_of("unknown", "unknown")},
        {"digest": "amd", "platform": platform_of("amd64")},
    ]
    stored = {
        "list": {"manifests": index},
        "amd": {"layers": [{"digest": A, "size": 5}, {"digest": B, "size": 7}, {"digest": A, "size": 5}]},
        "none": {"manifests": []},
    }

    def fetch(digest: str) -> bytes:
        return json.dumps(stored[digest]).encode()

    assert image_pull.layers_of(fetch, "list", "x86_64") == {A: 5, B: 7}
    assert image_pull.layers_of(fetch, "amd", "riscv64") == {A: 5, B: 7}
    with pytest.raises(ValueError, match="no image for arm64"):
        image_pull.layers_of(fetch, "none", "aarch64")


@pytest.mark.parametrize(
    ("digest", "size"),
    [
        ("sha256:/dev/zero", 1), ("sha256:../../x", 1), ("sha256:x\0y", 1), (A.upper(), 1), (f"{A}\n", 1),
        (A, -1), (A, 1 << 60),
    ],
)  # fmt: skip
def test_a_layer_that_is_none_becomes_no_path(digest: str, size: int) -> None:
    answer = json.dumps({"layers": [{"digest": digest, "size": size}]}).encode()
    with pytest.raises(ValueError, match="digest or size is not valid"):
        image_pull.layers_of(lambda _: answer, A, "x86_64")


def test_the_course_tells_the_download_from_the_unpacking_and_what_was_here() -> None:
    now = iter([0.0, 4.0, 9.0, 12.5, 20.0])
    progress = image_pull.PullProgress(lambda: next(now))
    lines = [
        "sha256:x: Pulling from library/paddle", "aaaaaaaaaaaa: Already exists",
        "bbbbbbbbbbbb: Download complete", "cccccccccccc: Download complete",
        "cccccccccccc: Pull complete", "dddddddddddd: Download complete", "Status: done",
    ]  # fmt: skip
    assert progress.follow(lines)[-1] == "Status: done"
    told = progress.summary({"layers": {A: 5, B: 7}, "bytes": 12, "link_mbps": 10})
    assert told == {
        "layers": {B: 7}, "bytes": 7, "link_mbps": 10, "seconds": 20.0, "download_s": 12.5,
    }  # fmt: skip
    # By another name all of it was here: Docker names no layer then, and none has moved.
    nothing = image_pull.PullProgress()
    nothing.follow(["Digest: sha256:x", "Status: Downloaded newer image for x"])
    assert nothing.summary({"layers": {A: 5}, "bytes": 5})["bytes"] == 0
    assert image_pull.PullProgress().summary({"unknown": "why"}) == {
        "unknown": "why",
        "seconds": 0.0,
        "download_s": 0.0,
    }


class TokenRealm(http.server.BaseHTTPRequestHandler):
    """A registry of one image that answers nobody without a token, as Harbor does; the realm is its own."""

    digest = A
    user = "Basic " + base64.b64encode(b"robot$nodes:secret").decode()
    told_elsewhere: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        given = self.headers.get("Authorization")
        if self.path.startswith("/service/token?"):
            asked = parse_qs(urlsplit(self.path).query)
            fits = asked == {"service": ["harbor-registry"], "scope": ["repository:site/tiny:pull"]}
            self.answer(200 if fits and given == self.user else 401, {"token": "good"})
        elif self.path.startswith("/v2/site/moved/"):
            self.send_response(307)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/elsewhere":
            self.told_elsewhere.append(given)
            self.answer(200, MANIFEST)
        elif given == "Bearer good":
            self.answer(200, MANIFEST)
        else:
            self.answer(401, {})

    def answer(self, code: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(code)
        port = self.server.server_address[1]
        realm = f'realm="https://127.0.0.1:{port}/service/token",service="harbor-registry"'
        self.send_header("WWW-Authenticate", f'Bearer {realm},scope="repository:site/tiny:pull"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_node_gets_its_token_as_its_docker_would(tmp_path: Path) -> None:
    authority = cluster_certificate.make_authority("test", datetime.now(tz=UTC))
    pair = cluster_certificate.make_server(authority, ["127.0.0.1"], datetime.now(tz=UTC), 2)
    certificate, key = tmp_path / "r.crt", tmp_path / "r.key"
    cluster_certificate.save(pair, certificate, key, Vault({}))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), TokenRealm) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_address[1]}"
        ca = tmp_path / "certs.d" / host / "ca.crt"
        ca.parent.mkdir(parents=True)
        ca.write_bytes(authority.certificate_pem())
        token = base64.b64encode(b"robot$nodes:secret").decode()
        (tmp_path / "config.json").write_text(json.dumps({"auths": {host: {"auth": token}}}))
        asked = (f"{host}/site/tiny", OF_MANIFEST)
        found = image_pull.look(*asked, str(tmp_path), tmp_path / "certs.d", platform.machine())
        assert found["layers"] == {B: 7}
        other = image_pull.look(asked[0], A, str(tmp_path), tmp_path / "certs.d", platform.machine())
        assert "another digest" in other["unknown"]
        stranger = image_pull.look(*asked, "", tmp_path / "certs.d", platform.machine())
        assert "401" in stranger["unknown"]
        moved = (f"{host}/site/moved", OF_MANIFEST)
        followed = image_pull.look(*moved, str(tmp_path), tmp_path / "certs.d", platform.machine())
        assert "unknown" not in followed
        assert TokenRealm.told_elsewhere == [None], "a password went where a redirect led"
        server.shutdown()


def node(name: str, **variables: Any) -> Host:
    return Host(name, "10.0.0.1", 22, "ops", ("gpu_nodes",), variables)


def record(name: str, **pull: Any) -> HostRecord:
    return HostRecord(name, facts={"pull": pull} if pull else {})


def of(
    waves: list[Wave], records: list[HostRecord], locked: Any = None, **variables: Any
) -> list[pulls.WavePull]:
    hosts = {one.name: node(one.name, **variables) for one in records}
    return pulls.of_waves(waves, hosts, {one.name: one for one in records}, locked)


def test_a_wave_is_limited_by_the_registrys_link_that_all_share() -> None:
    names = ("gpu02", "gpu03", "gpu04")
    waves = [Wave("canary", ("gpu01",)), Wave("nodes", names)]
    pull = {"digest": A, "bytes": 10 * GB, "layers": {A: 10 * GB}, "link_mbps": 10_000}
    canary, rest = of(waves, [record(name, **pull) for name in ("gpu01", *names)])
    assert canary.limit_s == pytest.approx(8.51, abs=0.01)
    assert rest.limit_s == pytest.approx(3 * canary.limit_s)
    assert canary.limited_by == "the link of gpu01, 10 Gbit/s"
    assert rest.limited_by == "the registry's link, 10 Gbit/s for 3 nodes"
    assert "gpu02-gpu04 would pull 10.0 GB in 1 layer each: minimum 26 s" in pulls.predicted(rest)


def test_a_faster_registry_leaves_the_nodes_own_links_as_the_limit() -> None:
    pull = {"digest": A, "layers": {A: GB}, "link_mbps": 10_000}
    records = [record("gpu01", **pull), record("gpu02", **{**pull, "link_mbps": 1000})]
    wave = of([Wave("nodes", ("gpu01", "gpu02"))], records, training_image_registry_link_mbps=100_000)[0]
    assert wave.limited_by == "the link of gpu02, 1 Gbit/s"
    assert wave.limit_s == pytest.approx(8.51, abs=0.01)
    said = of([Wave("nodes", ("gpu01", "gpu02"))], records, training_image_link_mbps=100)[0]
    assert said.limited_by == "the registry's link, 100 Mbit/s for 2 nodes"


def test_the_locks_sizes_come_before_a_registry_that_has_no_image_yet() -> None:
    records = [record("gpu01", digest=A, unknown="404", link_mbps=1000)]
    waves = [Wave("nodes", ("gpu01",))]
    assert "size is not known yet" in pulls.predicted(of(waves, records)[0])
    pulled = of(waves, [record("gpu01", digest=A, unknown="404", link_mbps=1000, seconds=3.0)])[0]
    assert pulls.told(pulled) == "nodes: gpu01 pulled the training image in 3 s"
    known = of(waves, records, {A: {B: 117_500_000}})[0]
    assert known.limit_s == pytest.approx(1.0)
    assert "117.5 MB in 1 layer: minimum 1 s" in pulls.predicted(known)


def test_a_link_that_says_no_speed_gives_no_limit_and_no_ratio() -> None:
    waves = [Wave("nodes", ("gpu01",))]
    before = of(waves, [record("gpu01", digest=A, layers={A: GB}, link_mbps=0)])[0]
    assert "the link speed is unknown" in pulls.predicted(before)
    done = of(waves, [record("gpu01", digest=A, layers={A: GB}, link_mbps=0, seconds=3.0, download_s=1.0)])[0]
    assert done.achieved is None
    assert pulls.told(done) == "nodes: gpu01 pulled 1.0 GB in 3 s (1 s of it the download)"


def test_a_run_says_what_was_reached_of_the_limit() -> None:
    done = {"digest": A, "layers": {A: 117_500_000}, "link_mbps": 1000, "seconds": 4.0, "download_s": 1.5}
    wave = of([Wave("nodes", ("gpu01", "gpu02"))], [record("gpu01", **done), record("gpu02")])[0]
    assert wave.achieved == 0.25
    assert "minimum 1 s, limited by the link of gpu01, 1 Gbit/s (25% efficiency)" in pulls.told(wave)
    kept = wave.as_record()
    assert (kept["limit_s"], kept["seconds"], kept["achieved"]) == (1.0, 4.0, 0.25)
    assert kept["nodes"][0]["bytes"] == 117_500_000


def test_nodes_that_had_the_image_are_in_no_pull() -> None:
    assert of([Wave("nodes", ("gpu01",))], [record("gpu01")]) == []


def test_whatever_a_registry_answers_the_look_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in (
        b"[" * 100_000,
        b'{"manifests": [1]}',
        b'{"layers": [{"digest": "a", "size": 1e999}]}',
        b"[]",
    ):
        monkeypatch.setattr(image_pull, "fetcher", lambda *_, answer=answer: lambda _digest: answer)
        found = image_pull.look("registry01:5000/a", A, "", tmp_path, "x86_64")
        assert found["unknown"], answer[:40]
