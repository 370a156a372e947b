#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: one signed apt source, its key and its proxy."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import explain
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_run import (
    proxies_of,
    require_apt,
    runner,
    update,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_sources import find_source
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import (
    proxy_configuration,
    source_stanza,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls, without_login
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.openpgp_keys import is_armored
from ansible_collections.clusterctl.cluster.plugins.module_utils.repository_key import (
    holds_pinned_keys_alone,
    pinned_fingerprints,
    usable_key,
)

DOCUMENTATION = r"""
module: apt_source
short_description: One signed apt source, its key and its proxy
description:
  - Writes a deb822 source with a keyring of its own and an apt proxy for its host, then reads the lists.
  - A source of the same archive that is there already is adopted and left as it is, with its key. Ours goes.
  - A key file is refused unless every key in it is one of I(key_fingerprints), in check mode too.
  - Needs nothing on the node but apt and Python. Check mode and diff are supported.
options:
  name: {description: Names the files under /etc/apt., type: str, required: true}
  url: {description: URI of the source., type: str, required: true}
  suite:
    description: Suite; a path that ends in a slash for a flat repository.
    type: str
    default: /
  components: {description: "Components, separated by blanks.", type: str, default: ""}
  key_url: {description: "Where the key lies, armored or binary.", type: str, default: ""}
  keyring_package_url:
    description: A Debian package that ships the key; read where I(key_url) is empty, never installed.
    type: str
    default: ""
  key_fingerprints:
    description: Fingerprints of the keys that may sign the source, 40 hexadecimal digits each; one at least.
    type: list
    elements: str
    required: true
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
  clusterctl.cluster.apt_source:
    name: cuda
    url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/
    keyring_package_url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb
    key_fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
"""

RETURN = r"""
adopted: {description: The file that already names this source., type: str, returned: always}
code:
  description: >-
    Stable code of the failure: host.unsupported-system, packages.source-down or packages.key-refused
  returned: when the cause is known
  type: str
"""


ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "url": {"type": "str", "required": True},
    "suite": {"type": "str", "default": "/"},
    "components": {"type": "str", "default": ""},
    "key_url": {"type": "str", "default": "", "no_log": False},
    "keyring_package_url": {"type": "str", "default": "", "no_log": False},
    "key_fingerprints": {"type": "list", "elements": "str", "required": True, "no_log": False},
    "http_proxy": {"type": "str", "default": "", "no_log": True},
    "https_proxy": {"type": "str", "default": "", "no_log": True},
    "no_proxy": {"type": "str", "default": ""},
}
ROOT = Path("/")


def stanza_of(params: dict, key: Path) -> str:
    """The source as it is to stand under /etc/apt."""
    stanza = source_stanza(params["url"], params["suite"], params["components"], f"Signed-By: {key}")
    return "# Managed by clusterctl.\n" + stanza


def key_files(name: str) -> list[Path]:
    """The key files that an earlier run wrote."""
    return sorted((ROOT / "etc/apt/keyrings").glob(f"clusterctl-{name}.*"))


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    require_apt(module)
    params = module.params
    proxies = proxies_of(params)
    name = params["name"]
    pinned = pinned_fingerprints(module)
    source = ROOT / f"etc/apt/sources.list.d/clusterctl-{name}.sources"
    proxy_file = ROOT / f"etc/apt/apt.conf.d/60clusterctl-{name}-proxy"
    adopted = find_source(ROOT, params["url"], params["suite"], but_not=source.name)

    proxy = proxy_configuration(params["url"], proxies)
    proxy_before = proxy_file.read_text() if proxy_file.exists() else ""
    existing = key_files(name)
    key_file = existing[0] if existing else ROOT / f"etc/apt/keyrings/clusterctl-{name}.gpg"
    keys_fit = len(existing) == 1 and holds_pinned_keys_alone(key_file, pinned)
    before = source.read_text() if source.exists() else ""
    source_differs = not adopted and not (keys_fit and before == stanza_of(params, key_file))
    key = usable_key(module, proxies, pinned) if source_differs else None
    if key is not None:
        kind = "asc" if is_armored(key) else "gpg"
        key_file = ROOT / f"etc/apt/keyrings/clusterctl-{name}.{kind}"
    wanted = stanza_of(params, key_file) if source_differs else "" if adopted else before
    result = {
        "changed": wanted != before or source_differs or proxy != proxy_before,
        "adopted": adopted,
        "diff": {
            "before_header": str(source),
            "before": mask_urls(before),
            "after_header": str(source),
            "after": mask_urls(wanted),
        },
    }
    if not result["changed"] or module.check_mode:
        module.exit_json(**result)

    if adopted:  # apt reads no archive by two keys
        source.unlink(missing_ok=True)
    if key is not None:
        # apt reads sources as root; a password in the URL is nobody else's to read.
        mode = 0o644 if mask_urls(wanted) == wanted else 0o600
        replace_file(key_file, key, 0o644)
        replace_file(source, wanted, mode)
        for other in key_files(name):
            if other != key_file:
                other.unlink()
    if proxy:
        replace_file(proxy_file, proxy, 0o600)
    else:
        proxy_file.unlink(missing_ok=True)
    with runner(module) as run:
        code, output, error = update(run, ["-o", "Acquire::Retries=3"])
    unread = f"Failed to fetch {without_login(params['url']).rstrip('/')}" in error + output
    if code != 0 or unread:
        if source_differs:
            source.unlink(missing_ok=True)  # so that the next run tries again
        module.fail_json(
            msg=f"apt cannot read the package lists: {explain(error or output)}. "
            "Check that the package sources are reached (site_http_proxy, site_no_proxy), and keys.",
            code="packages.source-down",
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
