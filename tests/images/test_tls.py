"""Images into a registry over TLS, as the cluster's Harbor is: trusted by our authority, or not at all."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import httpx
import pytest
import yaml
from cryptography import x509
from pydantic import SecretStr
from tests.support.certificates import DAY, own_authority
from tests.support.registries import Running, bytes_of, put_image, registry

from clusterctl.registry.harbor import vault
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint

from .driving import MB, call, error, good, records

NAME = "harbor.lan"
PASSWORD = "of the administrator"


def certificate(directory: Path, *, ends: datetime.timedelta, name: str = NAME) -> dict[str, str]:
    """One that is its own authority, for a name and no address, as sites have them; until then."""
    made, key = own_authority(x509.DNSName(name), ends)
    directory.mkdir(exist_ok=True)
    (directory / "tls.crt").write_bytes(made)
    (directory / "tls.key").write_bytes(key)
    return {"certificate": str(directory / "tls.crt"), "key": str(directory / "tls.key")}


@contextmanager
def harbor(root: Path, tls: dict[str, str]) -> Iterator[Running]:
    """What stands for Harbor's registry: TLS, and a password."""
    lines = root / "htpasswd"
    lines.write_text("admin:" + bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode() + "\n")
    auth = {"htpasswd": {"realm": "harbor", "path": str(lines)}}
    with registry(root / "harbor", auth=auth, tls=tls) as running:
        yield running


def cluster(root: Path, source: Running, port: int, authority: Path, password: str = PASSWORD) -> Path:
    """A cluster with that Harbor and one image, as the role leaves it."""
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = root / "site"
    (directory / "group_vars").mkdir(parents=True)
    (directory / "hosts.yml").write_text(
        "all: {children: {gpu_nodes: {hosts: {gpu01: {ansible_host: 192.0.2.1}}}}}\n"
    )
    said = {
        "registry_kind": "harbor", "registry_hostname": "harbor.lan", "registry_address": "127.0.0.1",
        "registry_port": port,
        "images": [{"source": f"http://{source.host}/t/one:1", "target": "golden/one"}],
    }  # fmt: skip
    (directory / "group_vars/all.yml").write_text(yaml.safe_dump(said))
    for part in ("ca", "secrets"):
        (directory / ".clusterctl" / part).mkdir(parents=True)
    (directory / ".clusterctl/ca/ca.crt").write_bytes(authority.read_bytes())
    token = base64.b64encode(f"admin:{password}".encode()).decode()
    entries = {f"harbor.lan:{port}": {"auth": token}}
    file = directory / ".clusterctl/secrets/harbor-admin.auth.json"
    file.write_text(json.dumps({"auths": entries}))
    file.chmod(0o600)
    good(call(directory, "lock"))
    return directory


def test_harbor_is_asked_by_its_address_and_trusted_by_our_authority(tmp_path: Path, source: Running) -> None:
    tls = certificate(tmp_path / "tls", ends=DAY)
    with harbor(tmp_path, tls) as running:
        directory = cluster(tmp_path, source, running.port, Path(tls["certificate"]))
        done = records(good(call(directory, "images", "mirror", "--json")))
        assert (done[0]["state"], done[-1]["registry"]) == ("copied", f"harbor.lan:{running.port}")
        good(call(directory, "images", "verify", "--deep"))
        assert PASSWORD not in "".join(
            p.read_text() for p in directory.rglob("*.json*") if "auth" not in p.name
        )


def test_harbor_is_verified_as_the_robot_as_which_nodes_pull_and_else_that_is_said(
    tmp_path: Path, source: Running
) -> None:
    tls = certificate(tmp_path / "tls", ends=DAY)
    with harbor(tmp_path, tls) as running:
        directory = cluster(tmp_path, source, running.port, Path(tls["certificate"]))
        good(call(directory, "images", "mirror"))
        as_admin = good(call(directory, "images", "verify"))
        assert "was asked as Harbor's administrator, and not as nodes pull" in as_admin.stderr
        settings = directory / "group_vars/all.yml"
        said = yaml.safe_load(settings.read_text()) | {"registry_client_auth": "robot"}
        settings.write_text(yaml.safe_dump(said | {"registry_client_robot": "nodes"}))
        robot = directory / ".clusterctl/secrets/registry-robot.auth.json"
        for password, code in ((PASSWORD, 0), ("a rotated one", 3)):
            token = base64.b64encode(f"admin:{password}".encode()).decode()
            robot.write_text(json.dumps({"auths": {f"harbor.lan:{running.port}": {"auth": token}}}))
            robot.chmod(0o600)
            asked = call(directory, "images", "verify", "--json")
            assert (asked.return_value or 0) == code, asked.output
            assert "not as nodes pull" not in asked.stderr


def test_images_go_into_harbor_as_the_robot_that_the_reconciler_made(tmp_path: Path, source: Running) -> None:
    tls = certificate(tmp_path / "tls", ends=DAY)
    with harbor(tmp_path, tls) as running:
        directory = cluster(
            tmp_path, source, running.port, Path(tls["certificate"]), password="not to be used"
        )
        settings = directory / "group_vars/all.yml"
        said = yaml.safe_load(settings.read_text()) | {"images_push_robot": "golden+push"}
        settings.write_text(yaml.safe_dump(said))
        nobody = call(directory, "images", "mirror")
        assert error(nobody).code == "images.no-robot"
        kept = vault.Vault(directory / ".clusterctl/secrets" / vault.FILE)
        kept.begin("golden+push", SecretStr(PASSWORD), now=vault.now())
        kept.save()
        # Harbor has not been told of it yet.
        assert error(call(directory, "images", "mirror")).code == "images.no-robot"
        kept.done("golden+push", "admin", 7)
        kept.save()
        done = records(good(call(directory, "images", "mirror", "--json")))
        assert done[0]["state"] == "copied"
        asked = good(call(directory, "images", "verify"))
        assert "as the robot golden+push (images_push_robot), and not as nodes pull" in asked.stderr


def test_a_source_is_asked_at_its_address_and_trusted_by_its_name(tmp_path: Path) -> None:
    for name, good_name in (("mirror.lan", True), ("another.lan", False)):
        tls = certificate(tmp_path / name, ends=DAY, name=name)
        with registry(tmp_path / f"at-{name}", tls=tls) as running:
            directory = tmp_path / f"site-{name}"
            (directory / "group_vars").mkdir(parents=True)
            (directory / "hosts.yml").write_text("gpu_nodes: {hosts: {gpu01: {ansible_host: 192.0.2.1}}}\n")
            said = {
                "registry_hostname": "registry01", "images_ca_file": tls["certificate"],
                "images": [{"source": f"mirror.lan:{running.port}/t/one:1"}],
                "images_source_addresses": {f"mirror.lan:{running.port}": f"127.0.0.1:{running.port}"},
            }  # fmt: skip
            (directory / "group_vars/all.yml").write_text(yaml.safe_dump(said))
            endpoint = RegistryEndpoint(running.host, name=name, authorities=(Path(tls["certificate"]),))
            put_image(endpoint, "t/one", "1", [bytes_of(1, MB)])
            locked = call(directory, "lock")
            if good_name:
                assert "mirror.lan" in (good(locked) and (directory / "clusterctl.lock").read_text())
            else:
                assert locked.return_value == 1
                assert "not valid for 'mirror.lan'" in " ".join(locked.output.split())


def test_what_lies_in_the_cluster_s_own_registry_goes_into_a_bundle(tmp_path: Path, source: Running) -> None:
    tls = certificate(tmp_path / "tls", ends=DAY)
    with harbor(tmp_path, tls) as running:
        directory = cluster(tmp_path, source, running.port, Path(tls["certificate"]))
        good(call(directory, "images", "mirror"))
        settings = directory / "group_vars/all.yml"
        said = yaml.safe_load(settings.read_text())
        # As an image that was built is named: by the registry's own name, which nothing here resolves.
        said["images"] = [{"source": f"harbor.lan:{running.port}/golden/one:1"}]
        settings.write_text(yaml.safe_dump(said))
        good(call(directory, "lock"))
        made = call(directory, "images", "bundle", "create", str(tmp_path / "usb"), "--json")
        assert records(good(made))[-1]["finished"] is True


@pytest.mark.parametrize(
    ("ends", "name", "says"),
    [
        (-DAY, NAME, "expired"),
        (DAY, "elsewhere.lan", NAME),
        (DAY, "other authority", "self-signed"),
    ],
)
def test_a_certificate_that_is_not_good_is_said_and_nothing_is_sent(
    ends: datetime.timedelta, name: str, says: str, tmp_path: Path, source: Running
) -> None:
    other = name == "other authority"
    tls = certificate(tmp_path / "tls", ends=ends, name=NAME if other else name)
    trusted = certificate(tmp_path / "trusted", ends=DAY) if other else tls
    with harbor(tmp_path, tls) as running:
        directory = cluster(tmp_path, source, running.port, Path(trusted["certificate"]))
        done = call(directory, "images", "mirror", "--json")
        assert done.return_value == 1
        failed = records(done)[0]
        assert failed["code"] == "images.certificate"
        assert says in failed["what"].replace("self signed", "self-signed")
        listed = call(directory, "images", "list", "--json")
        assert listed.return_value == 3
        assert records(listed)[0]["code"] == "images.certificate"
        # Renewed, with the authority that is trusted here: the next run is good.
        running.kill()
        certificate(tmp_path / "tls", ends=DAY)
        running.start_again()
        authority = directory / ".clusterctl/ca/ca.crt"
        authority.write_bytes((tmp_path / "tls/tls.crt").read_bytes())
        assert records(good(call(directory, "images", "mirror", "--json")))[0]["state"] == "copied"
        good(call(directory, "images", "verify", "--deep"))


def test_the_name_goes_to_the_registry_itself_and_to_nobody_that_it_sends_us_to() -> None:
    with Registry(RegistryEndpoint("127.0.0.1:443", name=NAME)) as client:
        for url, expected in (("https://127.0.0.1/v2/", NAME), ("https://s3.example.org/blob", None)):
            request = httpx.Request("GET", url, extensions={"sni_hostname": NAME})
            client._call_by_name(request)
            assert request.extensions.get("sni_hostname") == expected


def test_a_password_that_was_changed_is_said(tmp_path: Path, source: Running) -> None:
    tls = certificate(tmp_path / "tls", ends=DAY)
    with harbor(tmp_path, tls) as running:
        directory = cluster(tmp_path, source, running.port, Path(tls["certificate"]), password="0ld")
        done = call(directory, "images", "mirror", "--json")
        # As `registry apply` says it: the settings are wrong, not the cluster.
        assert (done.return_value, records(done)[0]["code"]) == (2, "images.login-refused")
        assert "0ld" not in done.output
        token = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
        entries = {f"harbor.lan:{running.port}": {"auth": token}}
        file = directory / ".clusterctl/secrets/harbor-admin.auth.json"
        file.write_text(json.dumps({"auths": entries}))
        assert records(good(call(directory, "images", "mirror", "--json")))[0]["state"] == "copied"
