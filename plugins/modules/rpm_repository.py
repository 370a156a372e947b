#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: one signed repository of RPMs, its key and its proxy."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import proxies_of
from ansible_collections.clusterctl.cluster.plugins.module_utils.dnf_run import (
    REPOSITORIES,
    UNREAD,
    address_options,
    caches,
    dnf_runner,
    explain,
    find_repository,
    mask_repository,
    repository,
    require_dnf,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import read_file, replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.openpgp_keys import (
    UnusableKeyError,
    fingerprints,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.repository_key import (
    dropped_keys,
    holds_pinned_keys_alone,
    pinned_fingerprints,
    usable_key,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import public_keys

DOCUMENTATION = r"""
module: rpm_repository
short_description: One signed repository of RPMs, its key and its proxy
description:
  - Writes a file of yum.repos.d with a key of its own and the site's proxy, then reads the repository.
  - A repository with the same address that is enabled already is adopted and left as it is, with its key.
    Ours goes.
  - A key file is refused unless every key in it is one of I(key_fingerprints), in check mode too.
  - A key that an earlier file had and that is none of them now is taken from RPM and dnf.
  - Check mode and diff are supported.
options:
  name: {description: Names the files., type: str, required: true}
  url: {description: Address of the repository., type: str, required: true}
  key_url: {description: Where the key lies., type: str, required: true}
  key_fingerprints:
    description: Fingerprints of the keys that may sign, 40 hexadecimal digits each; one at least.
    type: list
    elements: str
    required: true
  signed:
    description: What the owner signs, every package or the repository's index.
    type: str
    choices: [packages, index]
    default: packages
  packages:
    description: Names or globs of the only packages that the host takes from the repository; empty for all.
    type: list
    elements: str
    default: []
  http_proxy: {description: Proxy for http., type: str, default: ""}
  https_proxy: {description: Proxy for https., type: str, default: ""}
  no_proxy:
    description: Hosts reached without a proxy, separated by commas.
    type: str
    default: ""
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Add NVIDIA's repository
  clusterctl.cluster.rpm_repository:
    name: cuda
    url: https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/
    key_url: https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/D42D0685.pub
    key_fingerprints: [610C7B14E068A878070DA4E99CD0A493D42D0685]
"""

RETURN = r"""
adopted: {description: The file that already names this repository., type: str, returned: always}
code:
  description: >-
    Stable code of the failure: host.unsupported-system, packages.source-down or packages.key-refused
  returned: when the cause is known
  type: str
"""

ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "url": {"type": "str", "required": True},
    "key_url": {"type": "str", "required": True, "no_log": False},
    "key_fingerprints": {"type": "list", "elements": "str", "required": True, "no_log": False},
    "signed": {"type": "str", "choices": ["packages", "index"], "default": "packages"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "http_proxy": {"type": "str", "default": "", "no_log": True},
    "https_proxy": {"type": "str", "default": "", "no_log": True},
    "no_proxy": {"type": "str", "default": ""},
}
ROOT = Path("/")
KEYS = "etc/pki/rpm-gpg"


def content(params: dict, key: str, proxy: str) -> str:
    """The file as it is to stand in yum.repos.d; `key` is the path of the key file."""
    options = {
        "name": f"{params['name']} (clusterctl)",
        **address_options(params["url"]),
        "enabled": "1",
        "gpgcheck": str(int(params["signed"] == "packages")),
        "repo_gpgcheck": str(int(params["signed"] == "index")),
        "gpgkey": f"file://{key}",
        **({"includepkgs": ",".join(params["packages"])} if params["packages"] else {}),
        **({"proxy": proxy} if proxy else {}),
    }
    return "# Managed by clusterctl.\n" + repository(f"clusterctl-{params['name']}", options)


def unreadable(module: AnsibleModule, name: str) -> str:
    """Why dnf cannot read the repository; empty if it can."""
    with dnf_runner(module, ROOT) as run:
        code, output, error = run(
            ["dnf", "--assumeyes", "--refresh", f"--repo=clusterctl-{name}", "makecache"]
        )
    failed = code != 0 or any(words in error for words in UNREAD)
    return (explain(error or output) or f"dnf ended with {code}") if failed else ""


def forget_keys(module: AnsibleModule, name: str, dropped: set[str]) -> None:
    """Takes keys from RPM, which verifies the packages of all repositories with any, and from dnf."""
    named = []
    for package, key in public_keys(module.run_command).items():
        with suppress(UnusableKeyError):  # none that was pinned
            named += [package] if dropped & set(fingerprints(key)) else []
    if named:
        code, output, error = module.run_command(["rpm", "-e", "--allmatches", *named])
        if code != 0:
            module.fail_json(
                msg=f"RPM keeps {', '.join(named)}, which may sign for the repository no longer: "
                f"{(error or output).strip()}. Nothing was written.",
            )
    for cache in caches(f"clusterctl-{name}", ROOT):
        if (cache / "pubring").is_dir():
            shutil.rmtree(cache / "pubring")


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    require_dnf(module, ROOT)
    params = module.params
    name, proxies = params["name"], proxies_of(params)
    pinned = pinned_fingerprints(module)
    file = ROOT / REPOSITORIES / f"clusterctl-{name}.repo"
    key_file = ROOT / KEYS / f"clusterctl-{name}.asc"
    found = find_repository(ROOT, params["url"], but_not=file.name)
    adopted = found.file if found else ""
    before = read_file(file)
    path = f"/{key_file.relative_to(ROOT)}"
    wanted = "" if adopted else content(params, path, proxies.for_url(params["url"]))
    differs = bool(wanted) and not (wanted == before and holds_pinned_keys_alone(key_file, pinned))
    key = usable_key(module, proxies, pinned) if differs else None
    result = {
        "changed": wanted != before or differs,
        "adopted": adopted,
        "diff": {
            "before_header": str(file),
            "before": mask_repository(before),
            "after_header": str(file),
            "after": mask_repository(wanted),
        },
    }
    if not result["changed"] or module.check_mode:
        module.exit_json(**result)
    if adopted:
        file.unlink(missing_ok=True)
        module.exit_json(**result)
    if key is not None:
        if dropped := dropped_keys(key_file, pinned):
            forget_keys(module, name, dropped)
        replace_file(key_file, key, 0o644)
    # dnf reads it as root; a password of the repository or of a proxy is nobody else's to read.
    replace_file(file, wanted, 0o644 if mask_repository(wanted) == wanted else 0o600)
    if error := unreadable(module, name):
        file.unlink(missing_ok=True)  # so that the next run tries again
        module.fail_json(
            msg=f"dnf cannot read the repository {mask_urls(params['url'])}: {error}. "
            "Check that this host reaches it (site_http_proxy, site_no_proxy), and its key.",
            code="packages.source-down",
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
