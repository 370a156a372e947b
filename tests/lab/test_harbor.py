"""Harbor over the lab's network, from a bare host to a restored one, with the stand-in's own installer.

One road: each test goes on from where the one before it left the lab.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterlab.images.harbor import Installer, ensure_installers
from clusterlab.progress import Progress

from .conftest import REPOSITORY, RunningLab, bring_up, json_lines
from .on_node import inside

pytestmark = pytest.mark.lab

HOST = "registry01"
NODE = "gpu01"
PASSWORD = ".clusterctl/secrets/harbor-admin.password"
HEALTH_S = 120.0
PROJECT = {"name": "golden", "public": True}


@pytest.fixture(scope="module")
def harbor() -> Iterator[RunningLab]:
    """A lab of its own, whose registry host is to run the older of two releases."""
    for running in bring_up(REPOSITORY / ".lab-test-harbor", "--nodes", "1", "--registry", "harbor"):
        declare(running, release(0))
        yield running


def release(which: int) -> Installer:
    """The older (0) or the newer (1) release that the depot serves."""
    return ensure_installers(Progress(lambda _: None)).releases[which]


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


def ask(lab: RunningLab, path: str) -> Any:
    """What Harbor's API says to its administrator, asked on its host over TLS that is checked."""
    password = (lab.cluster / PASSWORD).read_text(encoding="utf-8").strip()
    program = (
        "import base64, json, ssl, urllib.request as u;"
        "c = ssl.create_default_context(cafile='/etc/clusterctl/harbor/ca.crt');"
        f"t = base64.b64encode(b'admin:{password}').decode();"
        f"r = u.Request('https://{HOST}{path}', headers={{'Authorization': 'Basic ' + t}});"
        "print(u.urlopen(r, context=c, timeout=20).read().decode())"
    )
    return json.loads(inside(lab, f'python3 -c "{program}"', host=HOST))


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
        time.sleep(1)
    return False


def started(lab: RunningLab) -> str:
    """Since when Harbor's proxy runs: another time where it was stopped."""
    return inside(lab, "docker inspect -f '{{.State.StartedAt}}' nginx", host=HOST)


def test_a_port_that_somebody_holds_is_refused_before_anything_is_touched(harbor: RunningLab) -> None:
    inside(harbor, "systemd-run --unit=holder --quiet python3 -m http.server 443", host=HOST)
    try:
        refused = harbor.clusterctl("apply", "--yes", "--only", "registry", "--limit", HOST)
    finally:
        inside(harbor, "systemctl stop holder", host=HOST)
    assert refused.returncode == 1
    assert "port 443 (https) is held by python3" in " ".join(refused.stderr.split())
    assert "harbor.refused" in refused.stderr
    assert not inside(harbor, "ls /opt/harbor 2>/dev/null; command -v docker-compose", host=HOST, check=False)


def test_an_apply_brings_harbor_and_the_node_pulls_its_image_through_it(harbor: RunningLab) -> None:
    harbor.done("apply", "--yes")
    assert healthy(harbor)
    digest = yaml.safe_load((harbor.cluster / "group_vars/all.yml").read_text())["training_image_digest"]
    assert f"{HOST}:443/library/paddle" in inside(
        harbor, f"docker image inspect {HOST}:443/library/paddle@{digest}", host=NODE
    )
    assert "nothing was changed" not in harbor.done("status")


def test_a_second_apply_changes_nothing_and_stops_nothing(harbor: RunningLab) -> None:
    before = started(harbor)
    done = harbor.clusterctl("apply", "--yes", "--full", "--json")
    assert (done.returncode, json_lines(done)[-1]["changed"]) == (0, 0)
    assert started(harbor) == before


def test_harbor_is_healthy_again_after_a_boot(harbor: RunningLab) -> None:
    inside(harbor, "systemctl reboot", host=HOST, check=False)
    assert healthy(harbor)
    assert inside(harbor, "systemctl is-active harbor", host=HOST) == "active"


def test_what_is_declared_of_it_comes_in_one_apply(harbor: RunningLab) -> None:
    declare(harbor, registry_projects=[PROJECT])
    harbor.done("registry", "apply", "--yes")
    assert "golden" in projects(harbor)
    assert "nothing to do" in harbor.done("registry", "plan")


def test_a_renewed_certificate_is_shown_without_a_stop(harbor: RunningLab) -> None:
    before = started(harbor)
    declare(harbor, registry_certificate_names=["registry.lab"])
    harbor.done("apply", "--yes", "--only", "registry")
    address = yaml.safe_load((harbor.cluster / "hosts.yml").read_text())["all"]["children"]["registry"][
        "hosts"
    ]
    shown = ssl.get_server_certificate((address[HOST]["ansible_host"], 443), timeout=20)
    declared = (harbor.cluster / f".clusterctl/ca/harbor-{HOST}.crt").read_text(encoding="ascii")
    assert shown.split() == declared.split()
    assert started(harbor) == before


def test_another_release_comes_by_an_upgrade_alone_with_a_backup_before(harbor: RunningLab) -> None:
    declare(harbor, release(1))
    refused = harbor.clusterctl("apply", "--yes", "--only", "registry", "--limit", HOST)
    assert refused.returncode == 1
    assert "clusterctl registry upgrade" in refused.stderr
    harbor.done("registry", "upgrade", "--yes")
    assert healthy(harbor)
    assert "v2.15.2" in inside(harbor, "docker inspect -f '{{.Config.Image}}' harbor-core", host=HOST)
    assert "golden" in projects(harbor)
    assert inside(harbor, "ls /var/backups/clusterctl/harbor", host=HOST).count("Z") == 1


def test_a_backup_that_was_changed_since_is_no_backup(harbor: RunningLab) -> None:
    done = harbor.clusterctl("registry", "backup", "--yes", "--json")
    said = json_lines(done)[-1]
    assert (done.returncode, said["backup"]["version"]) == (0, "v2.15.2")
    assert ask(harbor, "/api/v2.0/configurations")["read_only"]["value"] is False
    harbor.done("registry", "backup", "--verify")
    backup = said["backup"]["backup"]
    inside(harbor, f"cp -a {backup}/database.sql.gz /root/kept && echo >>{backup}/database.sql.gz", host=HOST)
    broken = harbor.clusterctl("registry", "backup", "--verify")
    assert broken.returncode == 1
    assert "database.sql.gz is gone or was changed" in broken.stderr
    inside(harbor, f"cp -a /root/kept {backup}/database.sql.gz", host=HOST)


def test_a_backup_comes_back_on_an_empty_host(harbor: RunningLab) -> None:
    refused = harbor.clusterctl("registry", "restore", "--yes")
    assert refused.returncode == 1
    assert "a restore wants an empty host" in refused.stderr
    inside(harbor, "systemctl disable --now harbor; docker rm -f $(docker ps -aq); docker network prune -f",
           host=HOST)  # fmt: skip
    inside(
        harbor, "rm -rf /opt/harbor /var/lib/clusterctl/harbor /etc/systemd/system/harbor.service", host=HOST
    )
    harbor.done("registry", "restore", "--yes")
    assert healthy(harbor)
    assert "golden" in projects(harbor)
    digest = yaml.safe_load((harbor.cluster / "group_vars/all.yml").read_text())["training_image_digest"]
    image = f"{HOST}:443/library/paddle@{digest}"
    inside(harbor, f"docker image rm {image}; docker pull -q {image}", host=NODE)


def test_its_state_is_nowhere_that_others_can_read(harbor: RunningLab) -> None:
    places = "/opt/harbor/releases/*/harbor/harbor.yml* /opt/harbor/*.json /etc/clusterctl/harbor"
    readable = f"find {places} -type f -perm /044"
    assert inside(harbor, readable, host=HOST) == ""
    assert Path(harbor.cluster / PASSWORD).stat().st_mode & 0o077 == 0
