#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One image by digest in a registry, copied from another with skopeo and verified by its manifest's hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_reading
from ansible_collections.clusterctl.cluster.plugins.module_utils.image_digest import (
    code_of,
    find_program,
    require_digest,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import (
    forms_in_auth_file,
    forms_in_url,
    mask_forms,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.skopeo_words import (
    ABSENT,
    NOT_UP,
    explain_copy,
    explain_look,
    reason_of,
)

DOCUMENTATION = r"""
module: registry_image
short_description: Have an image by digest in a registry
description:
  - Copies the image from O(source) unless the destination has it, and verifies the digest there.
  - Layers that the destination has are not sent again, so a copy that was interrupted continues where it was.
options:
  source: {description: Registry and path to copy from, type: str, required: true}
  destination: {description: Registry and path to copy to, type: str, required: true}
  digest: {description: The manifest's digest (sha256:...), type: str, required: true}
  tag: {description: A tag for people to find it by at the destination, type: str, default: ""}
  source_auth_file: {description: Credentials for the source, type: path, default: ""}
  destination_auth_file: {description: Credentials for the destination, type: path, default: ""}
  destination_tls: {description: Whether the destination speaks TLS, type: bool, default: true}
  http_proxy: {description: Proxy for http, type: str, default: ""}
  https_proxy: {description: Proxy for https, type: str, default: ""}
  no_proxy: {description: Hosts to reach without a proxy, type: str, default: ""}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Copy the training image into the registry
  clusterctl.cluster.registry_image:
    source: docker.io/paddlepaddle/paddle
    destination: 127.0.0.1:501/library/paddle
    digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  async: 14400
  poll: 0
"""

RETURN = r"""
digest: {description: The digest at the destination, returned: always, type: str}
wanted: {description: Whether the image was not there, returned: always, type: bool}
code:
  description: >-
    Stable code of the failure: host.disk-full, host.dns, host.read-only, registry.certificate,
    registry.login-refused, registry.no-image, registry.too-many-requests or registry.unreachable
  returned: when it failed
  type: str
"""


# A list names images, and seldom another list.
MAX_DEPTH = 3
# What skopeo reads for a copy: each layer once, what it asks before, and the destination's answers. It writes
# each layer once.
TIMES_ITS_SIZE, BESIDES_BYTES = 2, 64 << 20


def is_manifest(raw: str, digest: str) -> bool:
    """Whether `raw` is byte for byte the manifest of this digest."""
    return f"sha256:{hashlib.sha256(raw.encode(errors='surrogateescape')).hexdigest()}" == digest


def proxies(module: AnsibleModule) -> dict[str, str]:
    """The declared proxies; a push to the destination goes past them, by whatever name it is reached."""
    names = {name: module.params[name] for name in ("http_proxy", "https_proxy") if module.params[name]}
    if names:
        near = [host_of(module.params["destination"]), "127.0.0.1", "localhost"]
        names["no_proxy"] = ",".join(dict.fromkeys(filter(None, [module.params["no_proxy"], *near])))
    return names


def host_of(reference: str) -> str:
    """`registry01:443/library/paddle` -> `registry01`, `[fd00::1]:443/x` -> `fd00::1`."""
    place = reference.partition("/")[0]
    return place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]


def run(module: AnsibleModule, command: list[str], most_bytes: int = 0) -> tuple[int, str, str]:
    """Exit code, output and error output of skopeo; of what a registry or proxy says again no secret.

    With ``most_bytes`` it is ended once it has read or written more than these.
    """
    if most_bytes:
        rc, out, err = run_reading(command, most_bytes, proxies(module))
    else:
        rc, out, err = module.run_command(command, environ_update=proxies(module))
    secrets: set[str] = set()
    for name in ("http_proxy", "https_proxy"):
        secrets |= forms_in_url(module.params.get(name) or "")
    for name in ("source_auth_file", "destination_auth_file"):
        if file := module.params.get(name):
            secrets |= forms_in_auth_file(file)
    return rc, out, mask_forms(err, secrets)


def manifest_there(module: AnsibleModule, skopeo: str) -> bool:
    """Whether the destination has the manifest, by reading it and hashing what it gave.

    Ends the module where the destination cannot be asked: nothing is known then.
    """
    options = module.params
    auth = ["--authfile", options["destination_auth_file"]] if options["destination_auth_file"] else []
    tls = f"--tls-verify={str(options['destination_tls']).lower()}"
    reference = f"docker://{options['destination']}@{options['digest']}"
    rc, out, err = run(module, [skopeo, "inspect", "--raw", tls, *auth, reference])
    if rc == 0:
        return is_manifest(out, options["digest"])
    if ABSENT.search(err):
        return False
    # Before the first apply nothing listens; the registry's own part of the apply comes first.
    if module.check_mode and NOT_UP.search(err):
        module.warn(f"{options['destination']} does not answer yet: {reason_of(err)}")
        return False
    module.fail_json(
        msg=explain_look(err, options), code=code_of(err), rc=rc, stderr_lines=err.splitlines()[-20:]
    )
    return False  # not reached: fail_json ends the module


def size_of(module: AnsibleModule, skopeo: str, digest: str, depth: int = 0) -> int:
    """The bytes of all that an image has, by its manifests at the source, which have their digests.

    Ends the module where the source does not give them.
    """
    options = module.params
    auth = ["--authfile", options["source_auth_file"]] if options["source_auth_file"] else []
    reference = f"docker://{options['source']}@{digest}"
    rc, raw, err = run(module, [skopeo, "inspect", "--raw", *auth, reference])
    if rc != 0:
        fail_copy(module, rc, f"reading {reference}: {reason_of(err)}")
    if not is_manifest(raw, digest):
        fail_copy(module, 1, f"reading {reference}: what came has another digest")
    if depth > MAX_DEPTH:
        fail_copy(module, 1, f"reading {reference}: lists are nested more than {MAX_DEPTH} deep")
    try:
        manifest = json.loads(raw, object_pairs_hook=without_urls)
        parts = manifest.get("manifests")
        if parts is None:
            return int(manifest["config"]["size"]) + sum(int(one["size"]) for one in manifest["layers"])
        digests = sorted({str(one["digest"]) for one in parts})
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        fail_copy(module, 1, f"reading {reference}: this manifest cannot be copied: {error!r}")
        raise  # not reached: fail_json ends the module
    return sum(size_of(module, skopeo, one, depth + 1) for one in digests)


def without_urls(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a manifest. Raises ValueError where it has addresses for a part of the image.

    skopeo does not copy such a layer, and nodes ask these addresses before the registry. Both are written
    in Go, which matches names without case.
    """
    if any(name.casefold() == "urls" and isinstance(value, list) and value for name, value in pairs):
        raise ValueError("it names other addresses for its layers (urls)")
    return dict(pairs)


def fail_copy(module: AnsibleModule, rc: int, err: str) -> None:
    """Ends the module with what skopeo said."""
    lines = err.splitlines()[-20:]
    module.fail_json(msg=explain_copy(err, module.params), code=code_of(err), rc=rc, stderr_lines=lines)


def copy(module: AnsibleModule, skopeo: str) -> None:
    """Copy manifest and layers, of every platform where the digest names a list.

    skopeo takes of a layer what the source sends, whatever size the manifest gives it.
    """
    options = module.params
    most_bytes = TIMES_ITS_SIZE * size_of(module, skopeo, options["digest"]) + BESIDES_BYTES
    command = [skopeo, "copy", "--quiet", "--all", "--preserve-digests"]
    command.append(f"--dest-tls-verify={str(options['destination_tls']).lower()}")
    for side, flag in (("source", "--src-authfile"), ("destination", "--dest-authfile")):
        if options[f"{side}_auth_file"]:
            command += [flag, options[f"{side}_auth_file"]]
    goal = f":{options['tag']}" if options["tag"] else f"@{options['digest']}"
    command += [
        f"docker://{options['source']}@{options['digest']}",
        f"docker://{options['destination']}{goal}",
    ]
    rc, _, err = run(module, command, most_bytes)
    if rc != 0:
        fail_copy(module, rc, err)


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "str", "required": True},
            "destination": {"type": "str", "required": True},
            "digest": {"type": "str", "required": True},
            "tag": {"type": "str", "default": ""},
            "source_auth_file": {"type": "path", "default": ""},
            "destination_auth_file": {"type": "path", "default": ""},
            "destination_tls": {"type": "bool", "default": True},
            "http_proxy": {"type": "str", "default": "", "no_log": True},
            "https_proxy": {"type": "str", "default": "", "no_log": True},
            "no_proxy": {"type": "str", "default": "", "no_log": False},
        },
        supports_check_mode=True,
    )
    digest = module.params["digest"]
    require_digest(module, digest)
    skopeo = find_program(module, "skopeo", "registry", digest=digest)
    changed = not manifest_there(module, skopeo)
    if changed and not module.check_mode:
        copy(module, skopeo)
        if not manifest_there(module, skopeo):
            module.fail_json(
                msg=f"{module.params['destination']} was written, but does not give {digest} back."
            )
    module.exit_json(changed=changed, wanted=changed, digest=digest)


if __name__ == "__main__":
    main()
