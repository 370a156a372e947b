"""The failures of our modules as an operator sees them: each is known by its code."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.callback.clusterctl_events import summarize
from ansible_collections.clusterctl.cluster.plugins.module_utils import (
    bounded,
    docker_daemon,
    driver_node,
    driver_reload,
    image_room,
    nvidia_driver_planner,
    package_task,
    repository_key,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault
from ansible_collections.clusterctl.cluster.plugins.modules import (
    cluster_certificate,
    container_engine_facts,
    container_image,
    debian_packages,
    docker_daemon_config,
    harbor_backup,
    harbor_health,
    harbor_installer,
    harbor_preflight,
    harbor_release,
    harbor_restore,
    nvidia_cdi_spec,
    nvidia_driver_packages,
    nvidia_driver_plan,
    registry_image,
    service_files,
    site_certificate,
)
from tests.support import openpgp
from tests.support.called_module import called
from tests.support.played_module import PlayedModule, result_of

from clusterctl.engine.event_reading import parse
from clusterctl.engine.events import TaskResult
from clusterctl.engine.failure import failure_of

from . import test_nvidia_driver_packages
from .harbor_programs import programs

DIGEST = "sha256:" + "ab" * 32
REFERENCE = f"r:5000/a@{DIGEST}"


class Module(PlayedModule):
    """One whose programs end as ``ends`` says."""

    def __init__(self, ends: tuple[int, str, str] = (0, "", ""), **params: Any) -> None:
        super().__init__(params)
        self.ends = ends

    def run_command(self, *_: object, **__: object) -> tuple[int, str, str]:
        return self.ends


@dataclass
class Host:
    """Where modules run: a directory, and programs that are played."""

    root: Path
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def call(self, module: Any, **arguments: Any) -> dict[str, Any]:
        """What a whole module answers."""
        return called(module, arguments, self.root, self.capsys)

    def ends(self, module: Any, rc: int, out: str = "", err: str = "") -> None:
        """Every program that the module runs ends so."""
        self.patch.setattr(module, "run_bounded", lambda *_, **__: (rc, out, err))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Host:
    monkeypatch.setattr(bounded, "LOCKS", tmp_path / "locks")
    return Host(tmp_path, monkeypatch, capsys)


def code_of(result: dict[str, Any]) -> str:
    """The code of the failure that the operator sees, by the way of the callback and its events."""
    assert result["failed"]
    said = {"event": "result", "at": 1.0, "host": "gpu01", "task_id": "t", "status": "failed"}
    event = parse(json.dumps({**said, **summarize(result)}))
    assert isinstance(event, TaskResult)
    return failure_of(event, None).code


# Harbor


def harbor(host: Host, **more: Any) -> dict[str, Any]:
    """Where a Harbor's files are."""
    return {"directory": str(host.root / "opt"), "data_dir": str(host.root / "data"), **more}


def preflight_refuses(host: Host) -> dict[str, Any]:
    return host.call(harbor_preflight, **harbor(host, version="v2.15.2", ports={"a": 1, "b": 1}))


def release_refuses(host: Host) -> dict[str, Any]:
    wanted = programs(host.root, host.patch, "")
    (host.root / "opt/installed.json").write_text('{"version": "v2.15.2"}', encoding="utf-8")
    return host.call(harbor_release, **{**wanted, "version": "v2.14.0"})


def installs(host: Host, script: str) -> dict[str, Any]:
    wanted = programs(host.root, host.patch, f"#!/bin/sh\n{script}\nexit 1\n")
    return host.call(harbor_release, **wanted)


def proxy_does_not_take(host: Host) -> dict[str, Any]:
    host.ends(harbor_release, 1, "", "nginx: [emerg] bad certificate")
    host.patch.setattr(harbor_release, "put", lambda _: None)
    host.patch.setattr(harbor_release, "declared", lambda _: None)
    host.patch.setattr(harbor_release, "shown", lambda _: "ab")
    return result_of(harbor_release.put_certificate, Module())


def service_hangs(host: Host) -> dict[str, Any]:
    host.ends(harbor_release, bounded.TIMED_OUT, "", "systemctl did not end within 600 s")
    return result_of(harbor_release.run, Module(), ["systemctl"], "`systemctl start harbor` failed", 600)


def installer_is_another(host: Host) -> dict[str, Any]:
    (host.root / "h.tgz").write_bytes(b"other")
    return host.call(harbor_installer, archive=str(host.root / "h.tgz"), sha256="0" * 64, version="v2.15.2",
                     directory=str(host.root / "opt"))  # fmt: skip


def certificate_of_another(host: Host) -> dict[str, Any]:
    now = datetime.now(tz=UTC)
    authority = cluster_certificate.make_authority("site", now)
    pair = cluster_certificate.make_server(authority, ["registry01"], now, 100)
    files = host.root / "r.crt", host.root / "r.key"
    cluster_certificate.save(pair, *files, Vault({}))
    return host.call(site_certificate, certificate=str(files[0]), key=str(files[1]), names=["other"])


def harbor_is_silent(host: Host) -> dict[str, Any]:
    return host.call(harbor_health, hostname="127.0.0.1", port=1, certificate="/none", seconds=0,
                     directory=str(host.root))  # fmt: skip


def backup_of_nothing(host: Host) -> dict[str, Any]:
    return host.call(harbor_backup, **harbor(host, backup_dir=str(host.root / "b"), hostname="r"))


def restore_of_nothing(host: Host) -> dict[str, Any]:
    where = {"backup_dir": str(host.root / "b"), "release": str(host.root), "version": "v2.15.2"}
    return host.call(harbor_restore, **harbor(host, **where, state="data"))


# Images


def pull_fails(said: str) -> Callable[[Host], dict[str, Any]]:
    """A pull that ends with these words of Docker's."""

    def fails(host: Host) -> dict[str, Any]:
        docker = host.root / "bin/docker"
        docker.parent.mkdir()
        words = host.root / "said"
        words.write_text(f"Error response from daemon: {said}\n", encoding="utf-8")
        script = f'#!/bin/sh\n[ "$1" = info ] && echo "{{}}" && exit 0\ncat {words} >&2\nexit 1\n'
        docker.write_text(script, encoding="utf-8")
        docker.chmod(0o755)
        host.patch.setenv("PATH", f"{docker.parent}:/usr/bin:/bin")
        host.patch.setattr(container_image, "look", lambda *_: {})
        return host.call(container_image, repository="r:5000/a", digest=DIGEST)

    return fails


def no_room(host: Host) -> dict[str, Any]:
    host.patch.setattr(image_room, "free_bytes", lambda _: 1e9)
    module = Module(room_factor=4.0, min_free_gb=2.0)
    return result_of(container_image.require_room, module, {"DockerRootDir": str(host.root)}, {})


def docker_hangs_at_inspect(host: Host) -> dict[str, Any]:
    host.ends(container_image, bounded.TIMED_OUT, "", "docker did not end within 60 s")
    return result_of(container_image.inspect, Module(), "docker", REFERENCE)


def copy_fails(said: str) -> Callable[[Host], dict[str, Any]]:
    """A copy that ends with these words of skopeo's."""
    options = {"source": "depot:5000/a", "destination": "r:443/a", "digest": DIGEST, "tag": "",
               "destination_tls": True, "source_auth_file": "", "destination_auth_file": "",
               "http_proxy": "", "https_proxy": ""}  # fmt: skip
    err = f'time="x" level=fatal msg="{said}"'
    return lambda _: result_of(registry_image.copy, Module((1, "", err), **options), "skopeo")


def look_fails(said: str) -> Callable[[Host], dict[str, Any]]:
    """A look for the image at its destination that ends with these words of skopeo's."""
    options = {"destination": "r:443/a", "digest": DIGEST, "destination_auth_file": "/etc/auth",
               "destination_tls": True, "http_proxy": "", "https_proxy": ""}  # fmt: skip
    err = f'time="x" level=fatal msg="{said}"'
    return lambda _: result_of(registry_image.manifest_there, Module((1, "", err), **options), "skopeo")


# Packages


def somebody_holds(host: Host) -> dict[str, Any]:
    host.patch.setattr(package_task, "HOLDS", host.root / "holds.json")
    node = Module((0, "docker.io|1.0|hold ok installed\n", ""), packages=["docker.io=2"], version="",
                  adopt=[], busy="", hold=False)  # fmt: skip
    host.patch.setattr(debian_packages, "AnsibleModule", lambda **_: node)
    return result_of(debian_packages.main)


def another_run_has_the_lock(host: Host) -> dict[str, Any]:
    @contextmanager
    def never(name: str, seconds: float) -> Any:
        raise TimeoutError(f"another run has kept /run/clusterctl/locks/{name}.lock for {seconds:g} s")
        yield

    host.patch.setattr(package_task, "alone", never)
    host.patch.setattr(package_task, "HOLDS", host.root / "holds.json")
    node = Module(packages=["docker.io"], version="", adopt=[], busy="", hold=False)
    host.patch.setattr(debian_packages, "AnsibleModule", lambda **_: node)
    return result_of(debian_packages.main)


def apt_fails(said: str) -> Callable[[Host], dict[str, Any]]:
    """An installation that ends with these words of apt's."""

    def fails(host: Host) -> dict[str, Any]:
        module = Module((100, "", said), http_proxy="", https_proxy="", no_proxy="")
        return result_of(debian_packages.AptPackages(module).transact, {"x": "x=1"})

    return fails


def key_does_not_come(error: OSError) -> Callable[[Host], dict[str, Any]]:
    """A repository's key that cannot be read."""

    def fails(host: Host) -> dict[str, Any]:
        def fetch(*_: object) -> bytes:
            raise error

        host.patch.setattr(repository_key, "fetch", fetch)
        return result_of(repository_key.get_key, Module(key_url="http://depot/key.asc"), Proxies())

    return fails


def key_is_foreign(_: Host) -> dict[str, Any]:
    """A repository's key that is not the declared one."""
    module = Module(key_url="http://depot/key.asc", keyring_package_url="")
    return result_of(repository_key.require_pinned, module, openpgp.ARMORED, {"AB" * 20})


def driver_is_held(host: Host) -> dict[str, Any]:
    host.patch.setattr(nvidia_driver_packages, "ROOT", host.root)
    host.patch.setattr(nvidia_driver_packages, "PREFERENCES", host.root / "pin")
    node = test_nvidia_driver_packages.Node(host.root)
    host.patch.setattr(nvidia_driver_packages, "alone", lambda *_: nullcontext())
    node.packages["libcuda1"][1] = True
    node.write()
    host.patch.setattr(nvidia_driver_packages, "AnsibleModule", lambda *_, **__: node)
    return result_of(nvidia_driver_packages.main)


def lists_fail(said: str) -> Callable[[Host], dict[str, Any]]:
    """The driver's lists that end with these words of apt's."""
    module = Module(refresh=True)
    return lambda host: result_of(
        nvidia_driver_packages.pinned_view, module, lambda _: (100, "", said), host.root, ""
    )


def plan_cannot_read(said: str) -> Callable[[Host], dict[str, Any]]:
    """The driver's source that ends with these words of apt's."""
    params = {"repository_url": "http://depot/", "http_proxy": "", "https_proxy": "", "no_proxy": "",
              "source": "cuda"}  # fmt: skip
    return lambda host: result_of(
        nvidia_driver_plan.offered_afresh, Module((100, "", said), **params), [], host.root
    )


def plan_refuses(change: Callable[[Any], Any]) -> Callable[[Host], dict[str, Any]]:
    """A plan of the driver that cannot be."""

    def fails(host: Host) -> dict[str, Any]:
        from ..module_utils import test_nvidia_driver_planner as facts

        plan = nvidia_driver_planner.make_plan(facts.REQUEST, change(facts.BARE), facts.COMPAT)
        assert plan.problems
        host.patch.setattr(nvidia_driver_plan, "decide", lambda *_: plan)
        host.patch.setattr(nvidia_driver_plan, "AnsibleModule", lambda *_, **__: Module())
        return result_of(nvidia_driver_plan.main)

    return fails


# Docker and services


def docker_does_not_answer(host: Host) -> dict[str, Any]:
    docker = host.root / "docker"
    docker.write_text("#!/bin/sh\n", encoding="utf-8")
    docker.chmod(0o755)
    host.patch.setenv("PATH", f"{host.root}:/usr/bin:/bin")
    host.ends(container_engine_facts, bounded.TIMED_OUT, "", "docker did not end within 60 s")
    return host.call(container_engine_facts)


def docker_runs_and_is_silent(host: Host) -> dict[str, Any]:
    host.patch.setattr(docker_daemon.Daemon, "refresh", lambda self: setattr(self, "pid", 1))
    host.patch.setattr(docker_daemon.Daemon, "info", {}, raising=False)
    return host.call(docker_daemon_config, path=str(host.root / "daemon.json"))


def unit_hangs(host: Host) -> dict[str, Any]:
    host.ends(service_files, bounded.TIMED_OUT, "", "systemctl did not end within 600 s")
    host.patch.setattr(service_files, "lacking", lambda *_: ["start"])
    return host.call(service_files, files=[], units=["x.service"])


def cdi_hangs(host: Host) -> dict[str, Any]:
    host.ends(nvidia_cdi_spec, bounded.TIMED_OUT, "", "nvidia-ctk did not end within 180 s")
    return result_of(nvidia_cdi_spec.refresh, Module(), host.root / "cdi/nvidia.yaml", "")


def driver_hangs(host: Host) -> dict[str, Any]:
    host.ends(driver_node, bounded.TIMED_OUT, "", "modprobe did not end within 300 s")
    return result_of(driver_reload.load, driver_node.Node(Module(), host.root), "580.95.05")


GONE = "dial tcp: lookup r: no such host"
REFUSED = 'Get "https://r:5000/v2/": dial tcp 10.0.0.5:5000: connect: connection refused'
EXPIRED = "tls: failed to verify certificate: x509: certificate has expired or is not yet valid"
FAILURES: dict[str, tuple[Callable[[Host], dict[str, Any]], str]] = {
    "two parts of Harbor want one port": (preflight_refuses, "harbor.refused"),
    "Harbor has no way back": (release_refuses, "harbor.refused"),
    "Harbor's installer fails": (lambda host: installs(host, "echo bad tar"), "harbor.install-failed"),
    "Harbor's installer fills the disk": (
        lambda host: installs(host, "echo no space left on device"), "host.disk-full"),
    "Harbor's installer finds no Docker": (
        lambda host: installs(host, "echo Cannot connect to the Docker daemon at unix:///x"),
        "host.docker-down"),
    "Harbor's proxy does not reload": (proxy_does_not_take, "harbor.install-failed"),
    "Harbor's unit hangs": (service_hangs, "task.timed-out"),
    "an installer that is another": (installer_is_another, "harbor.installer"),
    "a certificate that is not for this host": (certificate_of_another, "harbor.certificate"),
    "Harbor does not answer": (harbor_is_silent, "harbor.unhealthy"),
    "nothing to back up": (backup_of_nothing, "harbor.backup"),
    "nothing to restore": (restore_of_nothing, "harbor.restore"),
    "pull: unknown authority": (
        pull_fails("x509: certificate signed by unknown authority"), "registry.certificate"),
    "pull: expired": (pull_fails(EXPIRED), "registry.certificate"),
    "pull: too many": (pull_fails("toomanyrequests: You have reached your limit."),
                       "registry.too-many-requests"),
    "pull: 429": (pull_fails("error parsing HTTP 429 response body: unexpected end of JSON input"),
                  "registry.too-many-requests"),
    "pull: unauthorized": (pull_fails("unauthorized: authentication required"), "registry.login-refused"),
    "pull: 401 of a token": (
        pull_fails("failed to fetch oauth token: unexpected status: 401 Unauthorized"),
        "registry.login-refused"),
    "pull: denied": (pull_fails("denied: requested access to the resource is denied"),
                     "registry.login-refused"),
    "pull: no such image": (pull_fails("manifest unknown: manifest unknown"), "registry.no-image"),
    "pull: not found": (pull_fails("r:5000/a: not found"), "registry.no-image"),
    "pull: name": (pull_fails(GONE), "host.dns"),
    "pull: refused": (pull_fails(REFUSED), "registry.unreachable"),
    "pull: 503": (pull_fails("received unexpected HTTP status: 503 Service Unavailable"),
                  "registry.unreachable"),
    "pull: no Docker": (pull_fails("Cannot connect to the Docker daemon at unix:///x"),
                        "registry.unreachable"),
    "pull: disk": (pull_fails("write /var/lib/docker/x: no space left on device"), "host.disk-full"),
    "pull: read-only": (pull_fails("open /var/lib/docker/x: read-only file system"), "host.read-only"),
    "no room for an image": (no_room, "host.disk-full"),
    "Docker hangs at an image": (docker_hangs_at_inspect, "host.docker-down"),
    "copy: login": (copy_fails("initializing source: unauthorized: authentication required"),
                    "registry.login-refused"),
    "copy: forbidden": (copy_fails("writing blob: StatusCode: 403, <html>"), "registry.login-refused"),
    "copy: too many": (copy_fails("reading manifest: toomanyrequests: slow down"),
                       "registry.too-many-requests"),
    "copy: too many by number": (copy_fails("reading blob: StatusCode: 429, <html>"),
                                 "registry.too-many-requests"),
    "copy: certificate": (copy_fails("initializing source: x509: unknown authority"),
                          "registry.certificate"),
    "copy: not there": (copy_fails("reading manifest sha256:0 in depot/a: manifest unknown"),
                        "registry.no-image"),
    "copy: name": (copy_fails(f"initializing source: {GONE}"), "host.dns"),
    "copy: disk": (copy_fails("writing blob: no space left on device"), "host.disk-full"),
    "copy: refused": (copy_fails("writing blob: dial tcp: connection refused"), "registry.unreachable"),
    "copy: its own error": (copy_fails("writing blob: StatusCode: 500, <html>"), "registry.unreachable"),
    "look: login": (look_fails("unauthorized: authentication required"), "registry.login-refused"),
    "look: refused": (look_fails("dial tcp: connection refused"), "registry.unreachable"),
    "packages held": (somebody_holds, "packages.held"),
    "packages locked": (another_run_has_the_lock, "packages.locked"),
    "apt: no such package": (apt_fails("E: Unable to locate package x"), "packages.not-offered"),
    "apt: dpkg's lock": (apt_fails("E: Could not get lock /var/lib/dpkg/lock-frontend."), "packages.locked"),
    "apt: unknown": (apt_fails("E: it is broken"), "task.failed"),
    "key: refused": (key_does_not_come(ConnectionRefusedError(111, "Connection refused")),
                     "packages.source-down"),
    "key: name": (key_does_not_come(OSError("[Errno -3] Temporary failure in name resolution")), "host.dns"),
    "key: foreign": (key_is_foreign, "packages.key-refused"),
    "driver held": (driver_is_held, "packages.held"),
    "driver's lists": (lists_fail("E: it is broken"), "packages.source-down"),
    "driver's lists: key": (lists_fail("W: NO_PUBKEY 1234"), "packages.untrusted"),
    "driver's source": (plan_cannot_read("E: it is broken"), "packages.source-down"),
    "driver's source: name": (plan_cannot_read("E: Temporary failure resolving 'depot'"), "host.dns"),
    "plan: held": (
        plan_refuses(lambda facts: replace(
            facts, installed={**facts.installed, "libcuda1": "570.148.08-1"}, held={"libcuda1"})),
        "packages.held"),
    "plan: not offered": (plan_refuses(lambda facts: replace(facts, available={})), "packages.not-offered"),
    "plan: no GPU": (plan_refuses(lambda facts: replace(facts, gpus=[])), "task.failed"),
    "Docker does not answer": (docker_does_not_answer, "host.docker-down"),
    "Docker runs and does not answer": (docker_runs_and_is_silent, "host.docker-down"),
    "a unit hangs": (unit_hangs, "task.timed-out"),
    "the CDI specification hangs": (cdi_hangs, "task.timed-out"),
    "modprobe hangs": (driver_hangs, "task.timed-out"),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_of_a_module_is_known_by_its_code(what: str, host: Host) -> None:
    fails, code = FAILURES[what]
    assert code_of(fails(host)) == code
