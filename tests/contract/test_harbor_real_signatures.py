"""Signed images on a real Harbor: mirrored there, found there, replicated, and refused where unsigned.

Run by ``script/test --harbor``; needs Debian's `docker-registry`. All names begin with the run's own prefix.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.images.driving import call, error, good, records
from tests.support.harbor_play import applied
from tests.support.real_harbor import RealHarbor, until
from tests.support.registries import Running, bytes_of, cluster_directory, put_image, registry
from tests.support.signed_images import cosign_key, public_pem, sign_by_cosign

from clusterctl.registry.harbor.vault import Vault

MB = 1 << 20


@pytest.fixture
def real(the_real_harbor: RealHarbor | None) -> Iterator[RealHarbor]:
    """The Harbor that was named, without what this test made."""
    assert the_real_harbor is not None
    yield the_real_harbor
    the_real_harbor.clean(prefix=the_real_harbor.prefix)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Running]:
    """Where images come from."""
    with registry(tmp_path / "source") as running:
        yield running


def declared(real: RealHarbor) -> dict[str, Any]:
    """A project for images, one for copies of them, and who writes and reads them."""
    names = [f"{real.prefix}golden", f"{real.prefix}copies"]
    access = ["repository:pull", "repository:push"]
    permissions = [{"namespace": name, "access": access} for name in names]
    return {
        "registry_projects": [{"name": name} for name in names],
        "registry_robots": [{"name": f"{real.prefix}mover", "permissions": permissions}],
    }


class Site:
    """A cluster directory whose images come from one registry, with a robot's login to the Harbor."""

    def __init__(self, real: RealHarbor, root: Path, source: Running) -> None:
        self.real, self.root, self.source = real, root, source
        robot = Vault(root / "robots.json").robot(f"{real.prefix}mover")
        self.user, self.secret = robot["user"], robot["secret"].get_secret_value()
        login = base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()
        self.auth = root / "auth.json"
        self.auth.touch(0o600)
        self.auth.write_text(json.dumps({"auths": {real.host: {"auth": login}}}))
        self.at = real.url if real.url.startswith("http://") else real.host

    def declare(
        self, *images: tuple[str, str], policy: dict[str, list[dict[str, Any]]] | None = None
    ) -> Path:
        """Images, each a source and a target, and who must have signed those of which scope."""
        more: dict[str, object] = {
            "images_auth_file": str(self.auth),
            "images_push_auth_file": str(self.auth),
        }
        if self.real.authority:
            more["images_ca_file"] = str(self.real.authority)
        if policy is not None:
            others = [{"type": "insecureAcceptAnything"}]
            more["images_signatures"] = {"default": others, "transports": {"docker": policy}}
        listed: list[dict[str, object]] = [{"source": one, "target": target} for one, target in images]
        directory = cluster_directory(self.root / "site", listed, **more)
        (directory / "cosign.pub").write_bytes(public_pem(cosign_key()))
        return directory

    def mirror(self, directory: Path) -> Any:
        return call(directory, "images", "mirror", "--to", self.at, "--json")

    def signatures(self, directory: Path) -> list[str]:
        """What is known of the signature of each image, in the Harbor."""
        verified = good(call(directory, "images", "verify", "--deep", "--to", self.at, "--json"))
        return [one["signature"] for one in records(verified) if "signature" in one]


def by_cosign(repository: str) -> list[dict[str, Any]]:
    identity = {"type": "exactRepository", "dockerRepository": repository}
    return [{"type": "sigstoreSigned", "keyPath": "cosign.pub", "signedIdentity": identity}]


def accessories(real: RealHarbor, project: str, digest: str) -> set[str]:
    """The kinds of what Harbor knows to belong to an image."""
    path = f"/projects/{project}/repositories/one/artifacts/{digest}/accessories"
    answer = real.call("GET", path)
    return {one["type"] for one in answer.json()} if answer.is_success else set()


def test_a_signature_goes_with_its_image_into_harbor_and_by_replication(
    real: RealHarbor, source: Running, tmp_path: Path
) -> None:
    """The copies are locked and mirrored from Harbor in turn, by the signature that was replicated."""
    raw = declared(real)
    golden, copies = (one["name"] for one in raw["registry_projects"])
    assert applied(real.url, tmp_path, raw).exit_code == 0
    site = Site(real, tmp_path, source)
    made = put_image(source.host, "t/one", "1", [bytes_of("one", MB)])
    image = (f"http://{source.host}/t/one:1", f"{golden}/one")
    policy = {source.host: by_cosign(f"{source.host}/t/one")}

    good(call(site.declare(image), "lock"))
    assert error(site.mirror(site.declare(image, policy=policy))).code == "images.signature"
    with source.client() as client:
        sign_by_cosign(client, "t/one", made.digest, cosign_key())
    directory = site.declare(image, policy=policy)
    good(call(directory, "lock"))
    assert [one["state"] for one in records(good(site.mirror(directory)))[:-1]] == ["copied"]
    assert site.signatures(directory) == ["verified"]
    assert until(lambda: accessories(real, golden, made.digest)) == {"signature.cosign"}
    assert [one["state"] for one in records(good(site.mirror(directory)))[:-1]] == ["there"]

    (tmp_path / "secret").touch(0o600)
    (tmp_path / "secret").write_text(site.secret)
    end = {"name": f"{real.prefix}self", "type": "docker-registry", "url": real.url,
           "access_key": site.user, "access_secret_file": "secret"}  # fmt: skip
    copy = {"name": f"{real.prefix}copy", "source": end["name"], "namespace": copies,
            "filters": [{"type": "name", "value": f"{golden}/one"}]}  # fmt: skip
    raw |= {"registry_endpoints": [end], "registry_replications": [copy]}
    assert applied(real.url, tmp_path, raw).exit_code == 0
    real.replicate(copy["name"])
    assert until(lambda: accessories(real, copies, made.digest)) == {"signature.cosign"}

    scheme = "http://" if real.url.startswith("http://") else ""
    again = (f"{scheme}{real.host}/{copies}/one:1", f"{golden}/again")
    (directory / "clusterctl.lock").unlink()
    directory = site.declare(again, policy={real.host: by_cosign(f"{source.host}/t/one")})
    good(call(directory, "lock"))
    assert [one["state"] for one in records(good(site.mirror(directory)))[:-1]] == ["copied"]
    assert site.signatures(directory) == ["verified"]
