#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One image by digest on this host, pulled through Docker and verified by what Docker then has."""

from __future__ import annotations

import json
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import image_room
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import TIMED_OUT, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.image_digest import (
    EXPIRED,
    ITS_OWN_ERROR,
    REFUSED,
    TOO_MANY,
    code_of,
    failure,
    find_program,
    require_digest,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.image_pull import PullProgress, look
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import forms_in_auth_file, mask_forms

DOCUMENTATION = r"""
module: container_image
short_description: Have an image by digest on this host
description:
  - Pulls the image unless it is there, and verifies by its repository digest that it is the right one.
  - Refuses, in check mode too, an image for whose missing layers there is no room; before anything moves.
  - Says how much is to be pulled over which link, then how long it took, and how long the download.
  - Never removes an image. Run it with C(async) for big images; look in check mode first.
options:
  repository: {description: Registry and path (host:port/path), type: str, required: true}
  digest: {description: The manifest's digest (sha256:...), type: str, required: true}
  client_config:
    description: Directory of a Docker client's config.json with credentials; "" pulls anonymously.
    type: path
    default: ""
  min_free_gb:
    description: So much is to be free, where the engine keeps images, when the image is there
    type: float
    default: 0
  room_factor:
    description: What a missing layer takes, packed and unpacked, over its compressed size; 0 does not ask
    type: float
    default: 4.3
  docker_certs: {description: Docker's directory of CAs, type: path, default: /etc/docker/certs.d}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Pull the training image
  clusterctl.cluster.container_image:
    repository: registry01:5000/library/paddle
    digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  async: 7200
  poll: 0
"""

RETURN = r"""
reference: {description: The image as it is to be named, returned: always, type: str}
wanted: {description: Whether the image was not there, returned: always, type: bool}
size_bytes: {description: Unpacked size, returned: when the image is there, type: int}
clusterctl:
  description: In C(facts.pull) bytes, layers, link_mbps; after a pull also seconds and download_s
  returned: when the image was not there
  type: dict
code:
  description: >-
    Stable code of the failure: host.docker-down, host.disk-full, host.dns, host.read-only,
    registry.certificate, registry.login-refused, registry.no-image, registry.too-many-requests or
    registry.unreachable
  returned: when it failed
  type: str
"""

LOOK_S = 60


def has_digest(inspected: list[dict[str, Any]], repository: str, digest: str) -> bool:
    """Whether `docker image inspect` shows the image under exactly this repository and digest."""
    return any(f"{repository}@{digest}" in (image.get("RepoDigests") or []) for image in inspected)


def explain(err: str, reference: str, place: Path) -> str:
    """A failed pull in one sentence with what to do; ``place`` is where images are kept."""
    reason = next((line for line in reversed(err.splitlines()) if line.strip()), "docker pull said nothing")
    host = reference.partition("/")[0]
    cures = {
        EXPIRED: f"the certificate of {host} has expired: provide a new one (harbor_certificate); one of "
        "clusterctl's own is renewed by clusterctl apply --only registry",
        r"x509": "the host does not trust the registry's certificate: apply the registry role to it",
        r"manifest unknown": "the registry does not have this digest: apply images to its host first",
        r"no such host": "its name is not known here: give it to DNS, or set registry_client_hosts_entry",
        r"connection refused": "nothing listens there: apply the registry to its host",
        r"no space left": f"the disk of {place} is full: make room there; images are not removed unasked",
        TOO_MANY: f"{host} limits how often it is asked: apply again later, or to fewer hosts at once",
        REFUSED: "the registry refuses this host's password, or asks for one: see registry_auth and "
        "registry_client_robot, and apply the registry to the host again",
        ITS_OWN_ERROR: f"{host} has an error of its own: see its log, and its disk",
    }
    otherwise = "see that this host reaches the registry"
    return failure(f"{reference} could not be pulled", reason, err, cures, otherwise)


def inspect(module: AnsibleModule, docker: str, reference: str) -> list[dict[str, Any]]:
    """What Docker has under `reference`; [] when it has nothing."""
    rc, out, err = run_bounded([docker, "image", "inspect", reference], LOOK_S)
    if rc == TIMED_OUT:
        module.fail_json(
            msg=f"Docker does not answer: {err}. Look at `systemctl status docker`.", code="host.docker-down"
        )
    return json.loads(out) if rc == 0 else []


def require_room(module: AnsibleModule, info: dict[str, Any], layers: dict[str, int]) -> None:
    """Fail before a pull that would fill the disk."""
    why = image_room.too_little(
        layers, info, factor=module.params["room_factor"], to_remain_gb=module.params["min_free_gb"]
    )
    if why:
        module.fail_json(
            msg=f"{why}. Nothing was pulled. Make room there (images are not removed unasked), or see "
            "training_image_room_factor.",
            code="host.disk-full",
        )


def pull(command: list[str]) -> tuple[int, str, PullProgress]:
    """Run a pull; its exit code, what it said on standard error, and its progress."""
    progress = PullProgress()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
            errors="replace",
        )  # fmt: skip
        progress.follow(process.stdout or [])
        rc = process.wait()
        errors.seek(0)
        return rc, errors.read(), progress


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "repository": {"type": "str", "required": True},
            "digest": {"type": "str", "required": True},
            "client_config": {"type": "path", "default": ""},
            "min_free_gb": {"type": "float", "default": 0},
            "room_factor": {"type": "float", "default": 4.3},
            "docker_certs": {"type": "path", "default": "/etc/docker/certs.d"},
        },
        supports_check_mode=True,
    )
    repository, digest = module.params["repository"], module.params["digest"]
    reference = f"{repository}@{digest}"
    require_digest(module, digest)
    docker = find_program(module, "docker", "runtime", reference=reference)
    found = inspect(module, docker, reference)
    changed = not has_digest(found, repository, digest)
    about: dict[str, Any] = {}
    info: dict[str, Any] = {}
    if changed:
        certificates = Path(module.params["docker_certs"])
        about = look(repository, digest, module.params["client_config"], certificates, platform.machine())
        info = image_room.engine_info(docker)
        require_room(module, info, about.get("layers") or {})
    if changed and not module.check_mode:
        directory = module.params["client_config"]
        config = ["--config", directory] if directory else []
        rc, said, progress = pull([docker, *config, "pull", reference])
        # A registry may say the password again.
        err = mask_forms(said, forms_in_auth_file(f"{directory}/config.json") if directory else ())
        if rc != 0:
            module.fail_json(
                msg=explain(err, reference, image_room.store(info)),
                code=code_of(err),
                rc=rc,
                stderr_lines=err.splitlines()[-20:],
            )
        found = inspect(module, docker, reference)
        if not has_digest(found, repository, digest):
            module.fail_json(msg=f"{reference} was pulled, but Docker does not show it under this digest.")
        about = progress.summary(about)
    size = {"size_bytes": found[0]["Size"]} if found else {}
    told = {"clusterctl": {"facts": {"pull": about}}} if about else {}
    module.exit_json(changed=changed, wanted=changed, reference=reference, **size, **told)


if __name__ == "__main__":
    main()
