#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether Harbor is well, by what it says of each of its parts, and shows the right certificate."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_api import (
    Harbor,
    HarborError,
    wait_until_healthy,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_certificate import fingerprint
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_host import LOOK_S, OURS, read_record

DOCUMENTATION = r"""
module: harbor_health
short_description: Wait until every part of Harbor says that it is healthy
description:
  - Asks over TLS that is checked, by Harbor's name, on the host itself.
  - The code of the answer decides nothing, what it says of each part does.
options:
  hostname: {description: Harbor's name, type: str, required: true}
  port: {description: Port of its TLS, type: int, default: 443}
  authority: {description: Authority of its certificate; empty means the system's, type: path, default: ""}
  certificate: {description: Certificate that it must show, type: path, required: true}
  directory: {description: Where releases are unpacked, type: path, required: true}
  seconds: {description: Seconds that it has to become healthy, type: int, default: 300}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: See that Harbor is healthy
  clusterctl.cluster.harbor_health:
    hostname: registry01
    authority: /etc/clusterctl/harbor/ca.crt
    certificate: /etc/clusterctl/harbor/tls.crt
    directory: /opt/harbor
"""

RETURN = r"""
healthy: {description: Whether every part is, returned: always, type: bool}
code:
  description: "Stable code of the failure: harbor.unhealthy"
  returned: when the cause is known
  type: str
"""


def containers() -> str:
    """How Harbor's containers stand that do not run well, for people."""
    rc, out, _ = run_bounded(
        ["docker", "ps", "--all", "--filter", OURS, "--format", "{{.Names}}: {{.Status}}"], LOOK_S
    )
    ill = [line for line in out.splitlines() if " Up " not in f" {line}" or "unhealthy" in line]
    return f" Containers: {'; '.join(ill[:6])}." if rc == 0 and ill else ""


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "hostname": {"type": "str", "required": True},
            "port": {"type": "int", "default": 443},
            "authority": {"type": "path", "default": ""},
            "certificate": {"type": "path", "required": True},
            "directory": {"type": "path", "required": True},
            "seconds": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    options = module.params
    if module.check_mode and not read_record(options["directory"]):
        module.exit_json(changed=False, healthy=False)
    harbor = Harbor(options["hostname"], options["port"], options["authority"])
    wrong = wait_until_healthy(harbor, 0 if module.check_mode else options["seconds"])
    if not wrong:
        try:
            if harbor.served() != fingerprint(Path(options["certificate"])):
                wrong = "it shows another certificate than the declared one"
        except (HarborError, OSError, ValueError) as error:
            wrong = str(error)
    if wrong and module.check_mode:
        module.exit_json(changed=True, healthy=False)
    if wrong:
        module.fail_json(
            msg=f"Harbor is not healthy: {wrong}.{containers()} Its logs are in harbor_log_dir on this host.",
            code="harbor.unhealthy",
        )
    module.exit_json(changed=False, healthy=True)


if __name__ == "__main__":
    main()
