"""Signatures of images from source to registry: locked, mirrored with the image, or all is refused."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.registries import (
    Fault,
    Made,
    Proxy,
    Running,
    bytes_of,
    cluster_directory,
    put_image,
)
from tests.support.signed_images import (
    claim_of,
    cosign_key,
    gpg_home,
    public_pem,
    put_artifact,
    sign_by_cosign,
    signature_of,
)

from clusterctl.commands.images import bringing
from clusterctl.registry.images.signatures import cosign

from .driving import call, error, good, mirror, records

KB = 1 << 10
LONG_S = 15.0
IN_REPOSITORY = {"type": "matchRepository"}


def policy(host: str, *requirements: dict[str, Any]) -> dict[str, Any]:
    """What the images of a registry need; others need nothing."""
    return {
        "default": [{"type": "insecureAcceptAnything"}],
        "transports": {"docker": {host: list(requirements)}},
    }


def by_cosign(key: str = "keys/cosign.pub") -> dict[str, Any]:
    return {"type": "sigstoreSigned", "keyPath": key, "signedIdentity": IN_REPOSITORY}


def site(root: Path, host: str, *names: str, **more: object) -> Path:
    """A cluster with cosign's key and images from ``host``."""
    images = [{"source": f"http://{host}/t/{name}:1", "target": f"mirrored/{name}"} for name in names]
    directory = cluster_directory(root / "site", images, **more)
    (directory / "keys").mkdir(exist_ok=True)
    (directory / "keys/cosign.pub").write_bytes(public_pem(cosign_key()))
    return directory


def put(source: Running, *names: str) -> list[Made]:
    return [put_image(source.host, f"t/{name}", "1", [bytes_of(name, 64 * KB)]) for name in names]


def locked(directory: Path) -> list[dict[str, Any]]:
    return yaml.safe_load((directory / "clusterctl.lock").read_text())["images"]


def tags(host: Running, repository: str) -> set[str]:
    place = host.storage / "docker/registry/v2/repositories" / repository / "_manifests/tags"
    return {path.name for path in place.iterdir()} if place.is_dir() else set()


def test_a_signed_image_is_locked_and_mirrored_with_its_signature(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    (made,) = put(source, "one")
    directory = site(tmp_path, before_source.host, "one")
    good(call(directory, "lock"))
    without = (directory / "clusterctl.lock").read_text()
    assert "signatures" not in without
    assert cosign.signature_tag(made.digest) not in " ".join(path for _, path, _ in before_source.seen)

    site(tmp_path, before_source.host, "one", images_signatures=policy(before_source.host, by_cosign()))
    refused = call(directory, "lock")
    assert refused.return_value == 1
    assert "it has no signature" in refused.stderr
    assert (directory / "clusterctl.lock").read_text() == without
    failed = mirror(directory, destination)
    assert failed.return_value == 1
    assert records(failed)[0]["code"] == "images.signature"
    assert tags(destination, "mirrored/one") == set()

    with source.client() as client:
        artifact = sign_by_cosign(client, "t/one", made.digest, cosign_key(), f"{before_source.host}/t/one")
    # The image stays as it is locked; only its signature is new.
    moved = put_image(source.host, "t/one", "1", [bytes_of("moved", 64 * KB)])
    good(call(directory, "lock"))
    (image,) = locked(directory)
    (signature,) = image.pop("signatures")
    fingerprint = cosign.read_key(public_pem(cosign_key())).fingerprint
    assert (signature["kind"], signature["key"], signature["signed"]) == ("cosign", fingerprint, made.digest)
    assert image == yaml.safe_load(without)["images"][0]
    assert image["digest"] != moved.digest
    asked = len(before_source.seen)
    text = (directory / "clusterctl.lock").read_text()
    good(call(directory, "lock"))
    assert ((directory / "clusterctl.lock").read_text(), len(before_source.seen)) == (text, asked)

    done = records(good(mirror(directory, destination)))
    assert done[0]["state"] == "copied"
    assert tags(destination, "mirrored/one") == {"1", cosign.signature_tag(made.digest)}
    with destination.client() as client:
        assert client.manifest("mirrored/one", cosign.signature_tag(made.digest)).digest == artifact
    again = records(good(mirror(directory, destination)))
    assert again[0]["state"] == "there"
    to = ("--to", f"http://{destination.host}")
    verified = call(directory, "images", "verify", *to, "--json")
    assert records(good(verified))[0]["signature"] == "verified"
    assert "signatures: 1 verified" in good(call(directory, "images", "verify", *to)).stdout

    # What we brought goes with its image.
    site(tmp_path, before_source.host)
    good(call(directory, "lock"))
    assert records(good(call(directory, "images", "prune", *to, "--json", "--yes")))[-1]["removed"] == 1
    assert tags(destination, "mirrored/one") == set()


def test_an_unsigned_image_is_not_copied_and_the_others_are(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    made = put(source, "one", "two")
    with source.client() as client:
        sign_by_cosign(client, "t/one", made[0].digest, cosign_key())
    directory = site(tmp_path, source.host, "one", "two")
    good(call(directory, "lock"))
    site(tmp_path, source.host, "one", "two", images_signatures=policy(source.host, by_cosign()))
    checked = mirror(directory, destination, "--check")
    assert [one.get("code") for one in records(checked)[:-1]] == [None, "images.signature"]
    bundled = call(directory, "images", "bundle", "create", str(tmp_path / "bundle"))
    assert error(bundled).code == "images.signature"
    assert tags(destination, "mirrored/one") == set()
    failed = mirror(directory, destination)
    assert failed.return_value == 1
    assert [one["state"] for one in records(failed)[:-1]] == ["copied", "failed"]
    assert "the image two" in records(failed)[1]["what"]
    assert tags(destination, "mirrored/two") == set()


def test_a_source_that_fails_stops_its_image_alone(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    made = put(source, "one", "two")
    with source.client() as client:
        for name, image in zip(("one", "two"), made, strict=True):
            sign_by_cosign(client, f"t/{name}", image.digest, cosign_key(), f"{before_source.host}/t/{name}")
    wanted = policy(before_source.host, by_cosign())
    directory = site(tmp_path, before_source.host, "one", "two", images_signatures=wanted)
    good(call(directory, "lock"))
    asked = cosign.signature_tag(made[1].digest)
    before_source.fault = lambda _method, path, _: Fault(status=403) if path.endswith(asked) else None
    done = records(mirror(directory, destination))
    assert {one["name"]: one["state"] for one in done[:-1]} == {"one": "copied", "two": "failed"}
    assert tags(destination, "mirrored/two") == set()


def test_signatures_that_others_put_into_our_registry_stay(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    (made,) = put(source, "one")
    with source.client() as client:
        ours = sign_by_cosign(client, "t/one", made.digest, cosign_key())
    directory = site(tmp_path, source.host, "one", images_signatures=policy(source.host, by_cosign()))
    good(call(directory, "lock"))
    with destination.client() as client:
        theirs = sign_by_cosign(client, "mirrored/one", made.digest, cosign_key("P-256", 2))
    done = good(call(directory, "images", "mirror", "--to", f"http://{destination.host}"))
    assert "has other signatures of it" in done.stderr
    tag = cosign.signature_tag(made.digest)
    with destination.client() as client:
        assert client.manifest("mirrored/one", tag).digest == theirs != ours
    # The lock knows that it was verified where it came from.
    verified = call(directory, "images", "verify", "--to", f"http://{destination.host}", "--json")
    assert records(good(verified))[0]["signature"] == "recorded"
    # What the source signs again replaces what it had signed before.
    with source.client() as client, destination.client() as there:
        payload = claim_of(f"{source.host}/t/one", made.digest)
        first = (payload, {cosign.SIGNATURE: signature_of(cosign_key(), payload)})
        put_artifact(there, "mirrored/one", made.digest, [first])
        second = (payload, {cosign.SIGNATURE: signature_of(cosign_key("P-256", 2), payload)})
        both = put_artifact(client, "t/one", made.digest, [first, second])
    good(mirror(directory, destination))
    with destination.client() as client:
        assert client.manifest("mirrored/one", tag).digest == both


@dataclass
class HeldBack:
    """A source that gives the blobs of its signature only once ``is_over``, or after ``LONG_S``."""

    is_copied: Callable[[], bool]
    is_over: Callable[[], bool]
    waited_for_nothing: bool = False

    def fault(self, method: str, path: str, _number: int) -> Fault | None:
        if method == "GET" and "/blobs/" in path and self.is_copied():
            end = time.monotonic() + LONG_S
            while not self.is_over() and time.monotonic() < end:
                threading.Event().wait(0.05)
            self.waited_for_nothing |= not self.is_over()
        return None


def test_a_source_that_holds_its_signature_back_keeps_no_other_waiting(
    tmp_path: Path, source: Running, before_source: Proxy, destination: Running
) -> None:
    hosts = {"slow": before_source.host, "quick": source.host}
    images = [{"source": f"http://{host}/t/{n}:1", "target": f"m/{n}"} for n, host in hosts.items()]
    made = dict(zip(hosts, put(source, *hosts), strict=True))
    with source.client() as client:
        for name, host in hosts.items():
            sign_by_cosign(client, f"t/{name}", made[name].digest, cosign_key(), f"{host}/t/{name}")
    directory = site(tmp_path, source.host)
    cluster_directory(directory, images, images_signatures={"default": [by_cosign()]})
    good(call(directory, "lock"))
    held = HeldBack(
        lambda: bool(tags(destination, "m/slow")),
        lambda: cosign.signature_tag(made["quick"].digest) in tags(destination, "m/quick"),
    )
    before_source.fault = held.fault
    done = records(good(mirror(directory, destination)))
    assert [one["state"] for one in done[:-1]] == ["copied", "copied"]
    assert not held.waited_for_nothing


def test_a_source_that_never_gives_its_signature_is_left(
    tmp_path: Path,
    source: Running,
    before_source: Proxy,
    destination: Running,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bringing, "IMAGE_S", 1.0)
    (made,) = put(source, "one")
    with source.client() as client:
        sign_by_cosign(client, "t/one", made.digest, cosign_key(), f"{before_source.host}/t/one")
    wanted = policy(before_source.host, by_cosign())
    directory = site(tmp_path, before_source.host, "one", images_signatures=wanted)
    good(call(directory, "lock"))
    over = threading.Event()
    before_source.fault = HeldBack(lambda: bool(tags(destination, "mirrored/one")), over.is_set).fault
    done = records(mirror(directory, destination))
    over.set()
    assert (done[0]["state"], done[0]["code"]) == ("failed", "images.unreachable")
    assert tags(destination, "mirrored/one") == {"1"}


def test_a_bundle_needs_a_lock_that_did_not_come_with_it(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    (made,) = put(source, "one")
    with source.client() as client:
        sign_by_cosign(client, "t/one", made.digest, cosign_key())
    directory = site(tmp_path, source.host, "one", images_signatures=policy(source.host, by_cosign()))
    good(call(directory, "lock"))
    bundle = tmp_path / "bundle"
    good(call(directory, "images", "bundle", "create", str(bundle)))
    lock = directory / "clusterctl.lock"
    text = lock.read_text()
    lock.unlink()
    load = ("images", "bundle", "load", str(bundle), "--allow-unsigned", "--to", f"http://{destination.host}")
    refused = error(call(directory, *load))
    assert refused.code == "images.signature"
    assert "comes with the bundle" in refused.what
    assert not lock.exists()
    lock.write_text(text)
    good(call(directory, *load))
    assert tags(destination, "mirrored/one") == {"1"}


def test_a_key_that_the_policy_names_no_more_is_found_by_verify(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    (made,) = put(source, "one")
    with source.client() as client:
        sign_by_cosign(client, "t/one", made.digest, cosign_key())
    directory = site(tmp_path, source.host, "one", images_signatures=policy(source.host, by_cosign()))
    good(call(directory, "lock"))
    good(mirror(directory, destination))
    (directory / "keys/cosign.pub").write_bytes(public_pem(cosign_key("P-256", 2)))
    verified = call(directory, "images", "verify", "--to", f"http://{destination.host}", "--json")
    assert verified.return_value == 1
    assert [one.get("code") for one in records(verified)] == ["images.signature", None]


@pytest.mark.needs("gpg", "gpgv", "skopeo")
def test_what_skopeo_signs_with_gpg_is_accepted_by_fingerprint(
    tmp_path: Path, source: Running, destination: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made,) = put(source, "one")
    signatures = tmp_path / "signatures"
    (tmp_path / "registries.d").mkdir()
    (tmp_path / "registries.d/all.yaml").write_text(
        f"default-docker: {{lookaside-staging: file://{signatures}}}\n"
    )
    image = f"docker://{source.host}/t/one:1"
    wanted = {"type": "signedBy", "keyType": "GPGKeys", "keyPath": "keys/vendor.asc"}
    directory = site(
        tmp_path, source.host, "one", images_signatures=policy(source.host, wanted),
        images_signatures_lookaside={source.host: f"file://{signatures}"},
    )  # fmt: skip
    with gpg_home() as signer:
        fingerprint = signer.make_key("vendor")
        monkeypatch.setenv("GNUPGHOME", str(signer.directory))
        command = [
            "skopeo", "--registries.d", str(tmp_path / "registries.d"), "copy", "--preserve-digests",
            "--src-tls-verify=false", "--dest-tls-verify=false", "--sign-by", fingerprint, image, image,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        (directory / "keys/vendor.asc").write_bytes(signer.run("--armor", "--export", "vendor@example.com"))
    good(call(directory, "lock"))
    (signature,) = locked(directory)[0]["signatures"]
    assert (signature["kind"], signature["key"], signature["signed"]) == ("gpg", fingerprint, made.digest)
    good(mirror(directory, destination))
    verified = call(directory, "images", "verify", "--to", f"http://{destination.host}", "--json")
    assert records(good(verified))[0]["signature"] == "verified"
