"""Harbor over the lab's network, from a bare host to a restored one, with the stand-in's own installer.

Each test starts from where the one before it left the lab. Each part needs only the first apply; an ordinary
run has one of them.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .conftest import REPOSITORY, RunningLab, bring_up, json_lines
from .harbor_host import (
    HOST,
    PASSWORD,
    ask,
    backups,
    declare,
    digest,
    docker_that,
    healthy,
    is_read_only,
    projects,
    release,
    started,
    until,
    version,
)
from .on_node import Apply, inside

pytestmark = pytest.mark.lab

NODE = "gpu01"
PULL, PUSH = "repository:pull", "repository:push"
DECLARED = {
    "registry_projects": [
        {"name": "golden", "public": True},
        {
            "name": "site", "quota": "20G", "retention": [{"keep": "latest_pushed", "count": 5}],
            "immutable_tags": [{"tags": "v*"}],
        },
    ],
    "registry_robots": [
        {"name": "nodes", "permissions": [{"namespace": "*", "access": [PULL]}]},
        {"name": "push", "project": "site", "permissions": [{"namespace": "site", "access": [PULL, PUSH]}]},
    ],
    "registry_schedules": {"gc": {"cron": "0 0 3 * * 0"}},
}  # fmt: skip


def part(name: str) -> pytest.MarkDecorator:
    """Marks the tests of a part."""
    return pytest.mark.drawn("harbor", name)


def ensure_content(lab: RunningLab) -> None:
    """Harbor has the declared projects, robots and schedules."""
    if "golden" not in projects(lab):
        declare(lab, **DECLARED)
        lab.done("registry", "apply", "--yes")


@pytest.fixture(scope="module")
def harbor() -> Iterator[RunningLab]:
    """A lab of its own, whose registry host is to run the older of two releases."""
    for running in bring_up(REPOSITORY / ".lab-test/harbor", "--nodes", "1", "--registry", "harbor"):
        declare(running, release(0))
        yield running


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
    assert f"{HOST}:443/library/paddle" in inside(
        harbor, f"docker image inspect {HOST}:443/library/paddle@{digest(harbor)}", host=NODE
    )
    (row,) = json_lines(harbor.clusterctl("status", "--json", "--limit", NODE))
    assert (row["image"], row["unreachable"]) == (True, "")


@part("restart")
def test_a_second_apply_changes_nothing_and_stops_nothing(harbor: RunningLab) -> None:
    before = started(harbor)
    done = harbor.clusterctl("apply", "--yes", "--full", "--json")
    assert (done.returncode, json_lines(done)[-1]["changed"]) == (0, 0)
    assert started(harbor) == before


@part("restart")
def test_harbor_is_healthy_again_after_a_boot(harbor: RunningLab) -> None:
    boot = "cat /proc/sys/kernel/random/boot_id"
    before = inside(harbor, boot, host=HOST)
    inside(harbor, "systemctl reboot", host=HOST, check=False)
    until(harbor, boot, lambda said: said not in ("", before))
    # Only then: what was there before the boot is active and healthy too.
    until(harbor, "systemctl is-active harbor", lambda said: said == "active")
    assert healthy(harbor)


@part("restart")
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


@part("content")
def test_what_is_declared_of_it_comes_in_one_apply(harbor: RunningLab) -> None:
    ensure_content(harbor)
    assert {"golden", "site"} <= projects(harbor)
    assert "nothing to do" in harbor.done("registry", "plan")


@part("content")
def test_images_go_in_as_one_robot_and_the_node_pulls_as_another(harbor: RunningLab) -> None:
    declare(
        harbor, training_image_repository="site/paddle", images_push_robot="site+push",
        registry_client_auth="robot", registry_client_robot="nodes",
    )  # fmt: skip
    harbor.done("lock")
    assert harbor.clusterctl("images", "verify").returncode == 1
    (mirrored, _) = json_lines(harbor.clusterctl("images", "mirror", "--json"))
    assert mirrored["state"] == "copied"
    image = f"{HOST}:443/site/paddle@{digest(harbor)}"
    stranger = inside(harbor, f"docker pull -q {image} 2>&1", host=NODE, check=False)
    assert re.search("unauthorized|denied", stranger), stranger
    inside(harbor, "docker image prune --all --force", host=NODE)
    applied = harbor.clusterctl("apply", "--yes", "--json")
    assert applied.returncode == 0, applied.stderr
    (pull,) = json_lines(applied)[-1]["pulls"]
    # As the robot, too, the node learns what is to come: this much it needs room for.
    assert 0 < pull["limit_s"] < pull["seconds"]
    inside(harbor, f"docker image inspect {image}", host=NODE)
    verified = harbor.clusterctl("images", "verify", "--deep")
    assert verified.returncode == 0, verified.stderr
    assert "not as nodes pull" not in verified.stderr


@part("content")
def test_a_secret_that_was_rotated_reaches_the_node_with_the_next_apply(harbor: RunningLab) -> None:
    harbor.done("registry", "rotate", "nodes", "--yes")
    assert harbor.clusterctl("images", "verify").returncode == 3
    inside(harbor, "docker image prune --all --force", host=NODE)
    harbor.done("apply", "--yes")
    inside(harbor, f"docker image inspect {HOST}:443/site/paddle@{digest(harbor)}", host=NODE)
    harbor.done("images", "verify")
    assert "nothing to do" in harbor.done("registry", "plan")


@part("content")
def test_a_node_whose_image_came_through_harbor_is_valid(harbor: RunningLab) -> None:
    harbor.done("validate")


@part("upgrade")
def test_a_plan_of_an_upgrade_goes_to_its_end_and_changes_nothing(harbor: RunningLab) -> None:
    ensure_content(harbor)
    declare(harbor, release(1))
    before = started(harbor), backups(harbor)
    assert "it could be started" in harbor.clusterctl("registry", "upgrade", "--check").stderr
    assert (started(harbor), backups(harbor), version(harbor)) == (*before, release(0).version)


@part("upgrade")
def test_a_migration_that_is_refused_leaves_the_old_release_running(harbor: RunningLab) -> None:
    before = started(harbor)
    with docker_that(harbor, "*migrate*", "echo 'not supported'; exit 1"):
        refused = harbor.clusterctl("registry", "upgrade", "--yes")
    assert refused.returncode == 1
    assert "Harbor's own migration of harbor.yml" in " ".join(refused.stderr.split())
    assert started(harbor) == before
    assert release(0).version in inside(harbor, "systemctl cat harbor", host=HOST)
    assert healthy(harbor)
    assert not is_read_only(harbor)


@part("upgrade")
def test_another_release_comes_by_an_upgrade_alone_with_a_backup_before(harbor: RunningLab) -> None:
    refused = harbor.clusterctl("apply", "--yes", "--only", "registry", "--limit", HOST)
    assert refused.returncode == 1
    assert "clusterctl registry upgrade" in refused.stderr
    before = backups(harbor)
    harbor.done("registry", "upgrade", "--yes")
    assert healthy(harbor)
    assert version(harbor) == release(1).version
    assert "golden" in projects(harbor)
    assert len(backups(harbor)) == len(before) + 1


@part("backup")
def test_a_backup_that_is_killed_in_the_middle_is_mended_by_the_next_apply(harbor: RunningLab) -> None:
    ensure_content(harbor)
    with (
        docker_that(harbor, "*pg_dump*", "echo $PPID >/run/dumping; sleep 300"),
        Apply(harbor, "registry", "backup", "--yes", "--json") as backup,
    ):
        module = until(harbor, "cat /run/dumping", bool)
        assert is_read_only(harbor)
        inside(harbor, f"kill -9 {module}; rm /run/dumping", host=HOST)
        assert backup.end()[0] == 1
    assert is_read_only(harbor)
    harbor.done("apply", "--yes", "--only", "registry", "--full")
    assert not is_read_only(harbor)
    harbor.done("registry", "backup", "--yes")
    assert not [name for name in backups(harbor) if name.endswith(".partial")]


@part("backup")
def test_a_backup_that_was_changed_since_is_no_backup(harbor: RunningLab) -> None:
    done = harbor.clusterctl("registry", "backup", "--yes", "--json")
    said = json_lines(done)[-1]
    assert (done.returncode, said["backup"]["version"]) == (0, version(harbor))
    assert not is_read_only(harbor)
    harbor.done("registry", "backup", "--verify")
    backup = said["backup"]["backup"]
    inside(harbor, f"cp -a {backup}/database.sql.gz /root/kept && echo >>{backup}/database.sql.gz", host=HOST)
    broken = harbor.clusterctl("registry", "backup", "--verify")
    assert broken.returncode == 1
    assert "database.sql.gz is gone or was changed" in broken.stderr
    inside(harbor, f"cp -a /root/kept {backup}/database.sql.gz", host=HOST)


@part("restore")
def test_a_restore_that_is_cut_before_the_load_shows_nobody_an_empty_harbor(harbor: RunningLab) -> None:
    ensure_content(harbor)
    if not backups(harbor):
        harbor.done("registry", "backup", "--yes")
    refused = harbor.clusterctl("registry", "restore", "--yes")
    assert refused.returncode == 1
    assert "a restore needs an empty host" in refused.stderr
    inside(harbor, "systemctl disable --now harbor; docker rm -f $(docker ps -aq); docker network prune -f",
           host=HOST)  # fmt: skip
    inside(
        harbor, "rm -rf /opt/harbor /var/lib/clusterctl/harbor /etc/systemd/system/harbor.service", host=HOST
    )
    with docker_that(harbor, "*psql*-f*", "echo 'no' >&2; exit 3"):
        cut = harbor.clusterctl("registry", "restore", "--yes")
    assert cut.returncode == 1
    assert "does not take the dump" in cut.stderr
    running = inside(harbor, "docker ps --format '{{.Names}}'", host=HOST).split()
    assert "harbor-db" in running
    assert not {"nginx", "harbor-core"} & set(running)
    for command in (
        ("apply", "--yes", "--only", "registry", "--limit", HOST),
        ("registry", "backup", "--yes"),
    ):
        done = harbor.clusterctl(*command)
        assert done.returncode == 1
        assert "clusterctl registry restore" in done.stderr


@part("restore")
def test_a_backup_comes_back_where_it_was_cut_off_and_takes_pushes(harbor: RunningLab) -> None:
    harbor.done("registry", "restore", "--yes")
    assert healthy(harbor)
    assert "golden" in projects(harbor)
    image = f"{HOST}:443/library/paddle@{digest(harbor)}"
    inside(harbor, f"docker image rm {image}; docker pull -q {image}", host=NODE)
    assert not is_read_only(harbor)
    ask(harbor, "/api/v2.0/projects", {"project_name": "after", "metadata": {"public": "false"}})
    auth = "--authfile /etc/clusterctl/harbor/admin.auth.json"
    inside(
        harbor, f"skopeo copy -q {auth} docker://{image} docker://{HOST}:443/after/paddle:again", host=HOST
    )
    assert inside(harbor, "systemctl is-enabled harbor", host=HOST) == "enabled"


@part("restore")
def test_its_state_is_nowhere_that_others_can_read(harbor: RunningLab) -> None:
    # harbor.yml.tmpl is Harbor's own, and everybody's.
    secret = "/opt/harbor/releases/*/harbor/harbor.yml /opt/harbor/*.json /etc/clusterctl/harbor"
    assert len(inside(harbor, f"find {secret} -type f", host=HOST).split()) > 4
    assert inside(harbor, f"find {secret} -type f -perm /044", host=HOST) == ""
    assert inside(harbor, "find /opt/harbor -name '*migrate*'", host=HOST) == ""
    # What is in a backup may have any mode: nobody comes so far.
    modes = inside(
        harbor, "stat -c %a /var/backups/clusterctl/harbor /var/backups/clusterctl/harbor/*Z", host=HOST
    )
    assert set(modes.split()) == {"700"}
    assert Path(harbor.cluster / PASSWORD).stat().st_mode & 0o077 == 0
