#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Harbor's release, running with its settings: the installer is run when one of the two changed."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bounded import run_bounded
from ansible.module_utils.harbor_host import (
    INSTALLED,
    compose,
    plain,
    read_record,
    why_no_upgrade,
    write_record,
)
from ansible.module_utils.node_files import replace_file
from ansible.module_utils.service_unit import show

DOCUMENTATION = r"""
module: harbor_release
short_description: Have a release of Harbor installed and running with the settings that lie there
description:
  - Runs C(install.sh), which stops Harbor for a while, when the release, its settings or Trivy changed.
  - A certificate that changed alone is put in place without a stop.
  - What an earlier run did not bring to its end is done again.
options:
  directory: {description: Where releases are unpacked, type: path, required: true}
  release: {description: Directory of the release, type: path, required: true}
  version: {description: The release, type: str, required: true}
  data_dir: {description: Where Harbor keeps its data, type: path, required: true}
  certificate: {description: Certificate that it shows, type: path, required: true}
  key: {description: The certificate's key, type: path, required: true}
  trivy: {description: Install Trivy, type: bool, default: false}
  upgrade: {description: Whether this may be a step from another release, type: bool, default: false}
  timeout_s: {description: Seconds that the installer may take, type: int, default: 1800}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Have Harbor installed
  harbor_release:
    directory: /opt/harbor
    release: /opt/harbor/releases/v2.15.2/harbor
    version: v2.15.2
    data_dir: /var/lib/clusterctl/harbor
    certificate: /etc/clusterctl/harbor/tls.crt
    key: /etc/clusterctl/harbor/tls.key
"""

RETURN = r"""
done: {description: What was done, or would be, with its reason, returned: always, type: list}
"""

UNIT = "harbor.service"
PROXY = "nginx"
# Harbor's containers run as this user, whatever the host calls it.
HARBOR_ID = 10000
ORDINARY_S = 300
TAIL = 12


@dataclass(frozen=True)
class Found:
    """What is on the host, of what decides."""

    record: dict[str, Any]
    settings: str
    composed: bool
    certificate_differs: bool
    unit: dict[str, str]


def digest(path: Path) -> str:
    """SHA-256 of a file; empty where it is not there."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def why_install(found: Found, version: str, *, trivy: bool) -> list[str]:
    """Reasons to run the installer; none where all is as it was left."""
    record = found.record
    if not record:
        return ["it is not installed"]
    if record.get("state") != INSTALLED:
        return ["an earlier installation did not come to its end"]
    reasons = []
    if record.get("version") != version:
        reasons.append(f"{record.get('version')} is here, and {version} is declared")
    if record.get("settings") != found.settings:
        reasons.append("harbor.yml changed")
    if bool(record.get("trivy")) != trivy:
        reasons.append("Trivy was switched on" if trivy else "Trivy was switched off")
    if not found.composed and not reasons:
        reasons.append("docker-compose.yml is gone")
    return reasons


def steps(found: Found, version: str, *, trivy: bool) -> list[tuple[str, str]]:
    """What is to be done, in order, each with its reason."""
    if reasons := why_install(found, version, trivy=trivy):
        return [("install", ", ".join(reasons)), *_unit_steps(found)]
    renewed = [("certificate", "it was renewed")] if found.certificate_differs else []
    return [*renewed, *_unit_steps(found)]


def _unit_steps(found: Found) -> list[tuple[str, str]]:
    wanted = []
    if found.unit.get("UnitFileState") != "enabled":
        wanted.append(("enable", "it would not come up after a boot"))
    if found.unit.get("ActiveState") != "active":
        wanted.append(("start", "it does not run"))
    return wanted


def look(module: AnsibleModule) -> Found:
    """Read what is on the host."""
    options = module.params
    shown = Path(options["data_dir"], "secret/cert")
    pairs = [(options["certificate"], shown / "server.crt"), (options["key"], shown / "server.key")]
    release = Path(options["release"])
    return Found(
        record=read_record(options["directory"]),
        settings=digest(release / "harbor.yml"),
        composed=(release / "docker-compose.yml").is_file(),
        certificate_differs=any(digest(Path(ours)) != digest(theirs) for ours, theirs in pairs),
        unit=show(module, UNIT, "UnitFileState", "ActiveState"),
    )


def run(module: AnsibleModule, argv: list[str], seconds: float, failed: str) -> str:
    """Run a program; its standard output. Fails the module with its last lines."""
    rc, out, err = run_bounded(argv, seconds, {"TERM": "dumb"})
    if rc != 0:
        lines = plain(f"{out}\n{err}")[-TAIL:]
        module.fail_json(
            msg=f"{failed}: {' | '.join(lines[-4:]) or f'exit code {rc}'}. Mend that and apply again; "
            "what was begun is done again from its start.",
            rc=rc,
            stderr_lines=lines,
        )
    return out


def migrate(module: AnsibleModule, before: Path, record: dict[str, Any]) -> None:
    """Have Harbor's own tool agree to the step by migrating a copy of the settings, then stop what runs.

    The migrated copy stays beside ours, for people who want to compare.
    """
    options = module.params
    release = Path(options["release"])
    for images in sorted(release.glob("harbor*.tar.gz")):
        run(
            module, ["docker", "load", "-i", str(images)], options["timeout_s"], "Harbor's images do not load"
        )
    copy = release / "harbor.yml.migrated"
    replace_file(copy, (before / "harbor.yml").read_bytes(), 0o600)
    tool = f"goharbor/prepare:{options['version']}"
    argv = ["docker", "run", "--rm", "-v", "/:/hostfs", tool, "migrate", "-i", str(copy)]
    run(module, argv, ORDINARY_S, f"Harbor's own migration of harbor.yml from {record['version']} failed")
    run(module, compose(str(before), "down"), ORDINARY_S, f"Harbor {record['version']} does not stop")


def install(module: AnsibleModule, found: Found) -> None:
    """Run the installer; the record says that it is under way until it has come to its end."""
    options, record = module.params, found.record
    before = str(record.get("version", ""))
    if before and before != options["version"]:
        why = why_no_upgrade(before, options["version"])
        if why or not options["upgrade"]:
            why = why or "upgrades are asked for (`clusterctl registry upgrade`)"
            module.fail_json(msg=f"Harbor {before} was left as it is: {why}.")
        place = Path(str(record["release"]))
        if (place / "docker-compose.yml").is_file():
            migrate(module, place, record)
    state = {name: options[name] for name in ("version", "release", "trivy", "data_dir")}
    write_record(options["directory"], {**state, "state": "installing"})
    argv = [str(Path(options["release"], "install.sh")), *(["--with-trivy"] if options["trivy"] else [])]
    run(module, argv, options["timeout_s"], "Harbor's installer failed")
    settings = digest(Path(options["release"], "harbor.yml"))
    write_record(options["directory"], {**state, "settings": settings, "state": INSTALLED})


def put_certificate(module: AnsibleModule) -> None:
    """Put the certificate where Harbor's proxy reads it, and have it read again: nobody is cut off."""
    options = module.params
    shown = Path(options["data_dir"], "secret/cert")
    for source, name in ((options["certificate"], "server.crt"), (options["key"], "server.key")):
        replace_file(shown / name, Path(source).read_bytes(), 0o600)
        os.chown(shown / name, HARBOR_ID, HARBOR_ID)
    argv = ["docker", "exec", PROXY, "nginx", "-s", "reload"]
    run(module, argv, ORDINARY_S, "Harbor's proxy does not take the new certificate")


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
            "trivy": {"type": "bool", "default": False},
            "upgrade": {"type": "bool", "default": False},
            "timeout_s": {"type": "int", "default": 1800},
        },
        supports_check_mode=True,
    )
    found = look(module)
    todo = steps(found, module.params["version"], trivy=module.params["trivy"])
    done = [f"{what}: {because}" for what, because in todo]
    if not module.check_mode:
        for what, _ in todo:
            if what == "install":
                install(module, found)
            elif what == "certificate":
                put_certificate(module)
            else:
                run(module, ["systemctl", what, UNIT], 700, f"`systemctl {what} {UNIT}` failed")
    module.exit_json(changed=bool(todo), done=done)


if __name__ == "__main__":
    main()
