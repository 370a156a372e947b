"""What the tests of Harbor do to its host in the lab, and ask there."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from clusterlab.images.harbor import Installer, ensure_installers
from clusterlab.progress import LabProgress

from .conftest import RunningLab
from .on_node import inside

HOST = "registry01"
PASSWORD = ".clusterctl/secrets/harbor-admin.password"
HEALTH_S = 120.0


def release(which: int) -> Installer:
    """The older (0) or the newer (1) release that the depot serves."""
    return ensure_installers(LabProgress(lambda _: None)).releases[which]


def declare(lab: RunningLab, installer: Installer | None = None, **settings: Any) -> None:
    """Write settings as an operator does."""
    path = lab.cluster / "group_vars" / "all.yml"
    said = yaml.safe_load(path.read_text(encoding="utf-8"))
    if installer:
        said |= {
            "harbor_version": installer.version,
            "harbor_installer_url": f"http://depot/harbor/{installer.file}",
            "harbor_installer_sha256": installer.sha256,
        }
    path.write_text(yaml.safe_dump({**said, **settings}), encoding="utf-8")


def digest(lab: RunningLab) -> str:
    """That of the declared training image."""
    said = yaml.safe_load((lab.cluster / "group_vars/all.yml").read_text(encoding="utf-8"))
    return str(said["training_image_digest"])


def ask(lab: RunningLab, path: str, body: Any = None) -> Any:
    """What Harbor's API says to its administrator, asked on its host over TLS that is checked.

    With a ``body`` it is a POST.
    """
    password = (lab.cluster / PASSWORD).read_text(encoding="utf-8").strip()
    sent = base64.b64encode(json.dumps(body).encode()).decode() if body is not None else ""
    program = (
        "import base64, json, ssl, urllib.request as u;"
        "c = ssl.create_default_context(cafile='/etc/clusterctl/harbor/ca.crt');"
        f"t = base64.b64encode(b'admin:{password}').decode();"
        f"d = base64.b64decode('{sent}') or None;"
        "h = {'Authorization': 'Basic ' + t, 'Content-Type': 'application/json'};"
        f"r = u.Request('https://{HOST}{path}', data=d, headers=h);"
        "print(u.urlopen(r, context=c, timeout=20).read().decode() or 'null')"
    )
    return json.loads(inside(lab, f'python3 -c "{program}"', host=HOST))


def is_read_only(lab: RunningLab) -> bool:
    """Whether nobody can push now."""
    return bool(ask(lab, "/api/v2.0/configurations")["read_only"]["value"])


def until(lab: RunningLab, command: str, wanted: Callable[[str], bool]) -> str:
    """What a command says on Harbor's host once it says what is wanted; that host may be away meanwhile."""
    deadline = time.monotonic() + HEALTH_S
    while not wanted(said := inside(lab, command, host=HOST, check=False)):
        assert time.monotonic() < deadline, f"{command}: {said!r}"
        time.sleep(0.5)  # a host that is away can wake nobody
    return said


@contextmanager
def docker_that(lab: RunningLab, when: str, does: str) -> Iterator[None]:
    """Harbor's host with a docker that does something else for arguments that fit a pattern of the shell."""
    script = f'#!/bin/sh\ncase "$*" in {when}) {does} ;; esac\nexec /usr/bin/docker "$@"\n'
    packed = base64.b64encode(script.encode()).decode()
    place = "/usr/local/bin/docker"
    inside(lab, f"echo {packed} | base64 -d >{place} && chmod 755 {place}", host=HOST)
    try:
        yield
    finally:
        inside(lab, f"rm -f {place}", host=HOST)


def projects(lab: RunningLab) -> set[str]:
    """Names of what is in Harbor."""
    return {one["name"] for one in ask(lab, "/api/v2.0/projects?page_size=100")}


def healthy(lab: RunningLab) -> bool:
    """Whether every part of it is, waited for."""
    deadline = time.monotonic() + HEALTH_S
    while time.monotonic() < deadline:
        try:
            if ask(lab, "/api/v2.0/health")["status"] == "healthy":
                return True
        except (AssertionError, ValueError):
            pass
        time.sleep(1)  # Harbor tells nobody when it has come up
    return False


def started(lab: RunningLab) -> str:
    """Since when Harbor's proxy runs: another time where it was stopped."""
    return inside(lab, "docker inspect -f '{{.State.StartedAt}}' nginx", host=HOST)


def backups(lab: RunningLab) -> list[str]:
    """Names of what lies where backups are."""
    return inside(lab, "ls /var/backups/clusterctl/harbor", host=HOST, check=False).split()


def version(lab: RunningLab) -> str:
    """The release that runs."""
    return inside(lab, "docker inspect -f '{{.Config.Image}}' harbor-core", host=HOST).rpartition(":")[2]
