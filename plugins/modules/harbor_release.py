#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Harbor's release, running with its settings: the installer is run when one of the two changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import (
    TIMED_OUT,
    late,
    run_bounded,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_api import Harbor
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_certificate import (
    Declared,
    put,
    served,
    why_put,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_host import (
    INSTALLED,
    PULLING,
    UPGRADING,
    compose,
    containers_left,
    plain,
    read_record,
    running_services,
    runs,
    why_not,
    write_record,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_migration import migrate
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_steps import Found, steps
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import read_file, replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import show
from ansible_collections.clusterctl.cluster.plugins.module_utils.trusted_directory import trusted_directory

DOCUMENTATION = r"""
module: harbor_release
short_description: Have a release of Harbor installed and running with the settings that lie there
description:
  - Runs C(install.sh), which stops Harbor for a while, when the release, its settings or Trivy changed.
  - A certificate that changed alone is put in place without a stop; so is one that is there, and that
    Harbor's proxy does not show yet, or could not read.
  - What an earlier run did not complete is done again. The release before is stopped, and the unit
    written, only once Harbor's own tool has agreed to its settings.
options:
  directory: {description: Where releases are unpacked, type: path, required: true}
  release: {description: Directory of the release, type: path, required: true}
  version: {description: The release, type: str, required: true}
  data_dir: {description: Where Harbor keeps its data, type: path, required: true}
  certificate: {description: Certificate that it shows, type: path, required: true}
  key: {description: The certificate's key, type: path, required: true}
  hostname: {description: Harbor's name, type: str, required: true}
  port: {description: Port of its TLS, type: int, default: 443}
  trivy: {description: Install Trivy, type: bool, default: false}
  upgrade: {description: Whether this may be a step from another release, type: bool, default: false}
  backup: {description: Name of the verified backup that an upgrade starts with, type: str, default: ""}
  unit: {description: Text of harbor.service; empty leaves it, type: str, default: ""}
  unit_directory: {description: Where units are, type: path, default: /etc/systemd/system}
  settings_sha256:
    description: SHA-256 of harbor.yml as it is to be, without the line of harbor_admin_password; in check
      mode it is not written yet
    type: str
    default: ""
  timeout_s: {description: Seconds that the installer or a pull may take, type: int, default: 1800}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Have Harbor installed
  clusterctl.cluster.harbor_release:
    directory: /opt/harbor
    release: /opt/harbor/releases/v2.15.2/harbor
    version: v2.15.2
    data_dir: /var/lib/clusterctl/harbor
    certificate: /etc/clusterctl/harbor/tls.crt
    key: /etc/clusterctl/harbor/tls.key
    hostname: registry01
"""

RETURN = r"""
done: {description: "What was done, or would be, with its reason", returned: always, type: list}
code:
  description: "Stable code of the failure: harbor.refused, harbor.install-failed or task.timed-out"
  returned: when the cause is known
  type: str
"""

UNIT = "harbor.service"
PROXY = "nginx"
FIRST_START_ONLY = b"harbor_admin_password:"
ORDINARY_S = 300
# More than the unit gives itself.
START_S = 700
INSTALL_FAILED = "harbor.install-failed"
TAIL = 12


def digest(settings: Path) -> str:
    """SHA-256 of what decides of harbor.yml; empty where it is not there.

    The administrator's password is read at the first start only: another one there is no cause for a stop.
    """
    if not settings.is_file():
        return ""
    lines = settings.read_bytes().splitlines(keepends=True)
    decides = b"".join(line for line in lines if not line.startswith(FIRST_START_ONLY))
    return hashlib.sha256(decides).hexdigest()


def declared(options: dict[str, Any]) -> Declared:
    """The certificate that is to be shown."""
    return Declared(Path(options["certificate"]), Path(options["key"]), Path(options["data_dir"]))


def shown(options: dict[str, Any]) -> str:
    """What Harbor's proxy shows now; empty if nobody answers."""
    return served(Harbor(options["hostname"], options["port"]))


def look(module: AnsibleModule) -> Found:
    """Read what is on the host."""
    options = module.params
    release = Path(options["release"])
    wanted = options["settings_sha256"] if module.check_mode else ""
    unit = options["unit"]
    return Found(
        record=read_record(options["directory"]),
        settings=wanted or digest(release / "harbor.yml"),
        composed=(release / "docker-compose.yml").is_file(),
        certificate=why_put(declared(options), shown(options)),
        unit=show(module, UNIT, "UnitFileState", "ActiveState"),
        unit_differs=bool(unit) and read_file(Path(options["unit_directory"], UNIT)) != unit,
        missing=missing(release),
    )


def missing(release: Path) -> tuple[str, ...]:
    """Services of the release whose containers do not run; none where it has no docker-compose.yml yet."""
    if not (release / "docker-compose.yml").is_file():
        return ()
    rc, out, _ = run_bounded(compose(str(release), "config", "--services"), ORDINARY_S)
    return tuple(sorted(set(out.split()) - running_services())) if rc == 0 else ()


def run(
    module: AnsibleModule,
    argv: list[str],
    failed: str,
    seconds: float = ORDINARY_S,
    *,
    code: str = "",
    hint_if_late: str = "",
    good_all_the_same: Callable[[], bool] = lambda: False,
) -> None:
    """Run a program. Fails the module with ``code`` and the program's last lines; ``hint_if_late`` is added
    if it did not end in time."""
    rc, out, err = run_bounded(argv, seconds, {"TERM": "dumb"})
    if rc != 0 and not good_all_the_same():
        lines = plain(f"{out}\n{err}")[-TAIL:]
        message = " | ".join(lines[-4:]) or f"exit code {rc}"
        message += f" ({hint_if_late})" if hint_if_late and rc == TIMED_OUT else ""
        module.fail_json(
            msg=f"{failed}: {message}. Fix that and apply again; the installation restarts.",
            rc=rc,
            stderr_lines=lines,
            **({"code": code} if code else late(rc)),
        )


def run_long(module: AnsibleModule, argv: list[str], failed: str) -> None:
    """Run what loads images, or pulls those that no installer brought; it has the installer's time."""
    run(module, argv, failed, module.params["timeout_s"], code=INSTALL_FAILED, hint_if_late=PULLING)


def stop_before(module: AnsibleModule, before: Path, record: dict[str, Any]) -> None:
    """Let Harbor's own tool check the step, then stop what runs; record first what is started."""
    options = module.params
    release, version = Path(options["release"]), record["version"]
    for images in sorted(release.glob("harbor*.tar.gz")):
        run_long(module, ["docker", "load", "-i", str(images)], "Harbor's images do not load")

    def ask(argv: list[str]) -> None:
        run_long(module, argv, f"Harbor's own migration of harbor.yml from {version} failed")

    migrate(before, release, options["version"], ask)
    begun = {"state": UPGRADING, "to": options["version"], "backup": options["backup"]}
    known = {"backup": record["backup"]} if record.get("backup") and not options["backup"] else {}
    write_record(options["directory"], {**record, **begun, **known})
    # Docker may keep a network for an endpoint that a boot left: the next release takes it as it is.
    run(
        module,
        compose(str(before), "down"),
        f"Harbor {version} does not stop",
        code=INSTALL_FAILED,
        good_all_the_same=lambda: not containers_left(),
    )


def install(module: AnsibleModule, found: Found) -> None:
    """Run the installer; the record says that it is under way until it has complete."""
    options, record = module.params, found.record
    try:  # before anything is stopped: the installer would take what another made meanwhile
        with trusted_directory(Path(options["data_dir"]), make=True, follow=True):
            pass
    except OSError as error:
        module.fail_json(msg=f"Harbor was left as it was: {error}", code="harbor.refused")
    before = str(record.get("version", ""))
    if before and before != options["version"]:
        place = Path(str(record["release"]))
        if (place / "docker-compose.yml").is_file():
            stop_before(module, place, record)
    # Only now: until here a boot brings up what was there before.
    put_unit(module)
    state = {name: options[name] for name in ("version", "release", "trivy", "data_dir")}
    write_record(options["directory"], {**state, "state": "installing"})
    argv = [str(Path(options["release"], "install.sh")), *(["--with-trivy"] if options["trivy"] else [])]
    run_long(module, argv, "Harbor's installer failed")
    settings = digest(Path(options["release"], "harbor.yml"))
    write_record(options["directory"], {**state, "settings": settings, "state": INSTALLED})


def put_unit(module: AnsibleModule) -> None:
    """Write the unit where it is another, and have systemd read it."""
    path = Path(module.params["unit_directory"], UNIT)
    if module.params["unit"] and read_file(path) != module.params["unit"]:
        replace_file(path, module.params["unit"], 0o644)
        run(module, ["systemctl", "daemon-reload"], "`systemctl daemon-reload` failed")


def put_certificate(module: AnsibleModule) -> None:
    """Put the certificate where Harbor's proxy reads it, and have it read again: nobody is interrupted."""
    try:
        put(declared(module.params))
    except OSError as error:
        module.fail_json(msg=f"Harbor's certificate cannot be written: {error}", code=INSTALL_FAILED)
    # A proxy that does not answer reads it when it starts.
    if shown(module.params):
        argv = ["docker", "exec", PROXY, "nginx", "-s", "reload"]
        run(module, argv, "Harbor's proxy does not take the new certificate", code=INSTALL_FAILED)


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "release": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "data_dir": {"type": "path", "required": True},
            "certificate": {"type": "path", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "hostname": {"type": "str", "required": True},
            "port": {"type": "int", "default": 443},
            "trivy": {"type": "bool", "default": False},
            "upgrade": {"type": "bool", "default": False},
            "backup": {"type": "str", "default": ""},
            "unit": {"type": "str", "default": ""},
            "unit_directory": {"type": "path", "default": "/etc/systemd/system"},
            "settings_sha256": {"type": "str", "default": ""},
            "timeout_s": {"type": "int", "default": 1800},
        },
        supports_check_mode=True,
    )
    found = look(module)
    version, upgrade = module.params["version"], module.params["upgrade"]
    if why := why_not(found.record, version, upgrade=upgrade, running=runs()):
        module.fail_json(
            msg=f"Harbor {found.record['version']} was left as it is: {why}.", code="harbor.refused"
        )
    todo = steps(found, version, trivy=module.params["trivy"])
    for what, _ in [] if module.check_mode else todo:
        if what == "install":
            install(module, found)
        elif what == "certificate":
            put_certificate(module)
        elif what == "unit":
            put_unit(module)
        else:
            run(module, ["systemctl", what, UNIT], f"`systemctl {what} {UNIT}` failed", START_S)
    done = [f"{what}: {because}" for what, because in todo]
    place = {"before_header": UNIT, "after_header": UNIT, "before": ""}
    told = [{**place, "after": "".join(f"{one}\n" for one in done)}] if done else []
    module.exit_json(changed=bool(todo), done=done, diff=told)


if __name__ == "__main__":
    main()
