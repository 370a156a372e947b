#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: one signed apt source, its key and its proxy."""

from __future__ import annotations

import io
import subprocess
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_packages import explain
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import (
    Proxies,
    find_source,
    proxy_configuration,
    source_stanza,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file

DOCUMENTATION = r"""
module: apt_source
short_description: One signed apt source, its key and its proxy
description:
  - Writes a deb822 source with a keyring of its own and an apt proxy for its host, then reads the lists.
  - A source of the same URL that is there already is adopted and left as it is.
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
"""

RETURN = r"""
adopted: {description: The file that already names this source., type: str, returned: always}
code:
  description: "Stable code of the failure: packages.source-down"
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
    "http_proxy": {"type": "str", "default": "", "no_log": True},
    "https_proxy": {"type": "str", "default": "", "no_log": True},
    "no_proxy": {"type": "str", "default": ""},
}


def fetch(url: str, proxies: Proxies) -> bytes:
    """The document at a URL, within a minute; raises OSError."""
    proxy = proxies.for_url(url)
    handler = urllib.request.ProxyHandler({url.split(":", 1)[0]: proxy} if proxy else {})
    with urllib.request.build_opener(handler).open(url, timeout=60) as response:
        return response.read()


def key_of_package(package: bytes) -> bytes:
    """The first keyring that a Debian package ships; raises ValueError."""
    command = ["dpkg-deb", "--fsys-tarfile", "/dev/stdin"]
    archive = subprocess.run(command, input=package, capture_output=True, check=False)
    if archive.returncode != 0:
        raise ValueError("it is no Debian package")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        for member in tar.getmembers():
            content = tar.extractfile(member) if "/keyrings/" in member.name and member.isfile() else None
            if content is not None:
                return content.read()
    raise ValueError("it ships no keyring")


def get_key(module: AnsibleModule, proxies: Proxies) -> bytes:
    """The repository's key; ends the module where it cannot be had."""
    url = module.params["key_url"] or module.params["keyring_package_url"]
    try:
        content = fetch(url, proxies)
        return content if module.params["key_url"] else key_of_package(content)
    except (OSError, ValueError, urllib.error.URLError) as error:
        module.fail_json(
            msg=f"The repository's key cannot be read from {mask_urls(url)}: {mask_urls(str(error))}. "
            "Check the repository URL, and that this host reaches it (site_http_proxy, site_no_proxy).",
            code="packages.source-down",
        )
        raise  # not reached: fail_json ends the module


def stanza_of(params: dict, key: Path) -> str:
    """The source as it is to stand under /etc/apt."""
    stanza = source_stanza(params["url"], params["suite"], params["components"], f"Signed-By: {key}")
    return "# Managed by clusterctl.\n" + stanza


def existing_key(name: str) -> Path | None:
    """The keyring that an earlier run wrote."""
    found = sorted(Path("/etc/apt/keyrings").glob(f"clusterctl-{name}.*"))
    return found[0] if found else None


def main() -> None:
    """Entry point."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    proxies = Proxies(params["http_proxy"], params["https_proxy"], params["no_proxy"])
    name = params["name"]
    source = Path("/etc/apt/sources.list.d") / f"clusterctl-{name}.sources"
    proxy_file = Path("/etc/apt/apt.conf.d") / f"60clusterctl-{name}-proxy"
    adopted = find_source(Path("/"), params["url"], but_not=source.name)

    proxy = proxy_configuration(params["url"], proxies)
    proxy_before = proxy_file.read_text() if proxy_file.exists() else ""
    key = existing_key(name)
    stanza = stanza_of(params, key or Path(f"/etc/apt/keyrings/clusterctl-{name}.gpg"))
    before = source.read_text() if source.exists() else ""
    wanted = before if adopted else stanza
    source_differs = before != wanted or (key is None and not adopted)
    result = {
        "changed": source_differs or proxy != proxy_before,
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

    if source_differs:
        # apt reads sources as root; a password in the URL is nobody else's to read.
        mode = 0o644 if mask_urls(stanza) == stanza else 0o600
        content = get_key(module, proxies)
        kind = "asc" if content.startswith(b"-----BEGIN") else "gpg"
        key = Path("/etc/apt/keyrings") / f"clusterctl-{name}.{kind}"
        replace_file(key, content, 0o644)
        replace_file(source, stanza_of(params, key), mode)
    if proxy:
        replace_file(proxy_file, proxy, 0o600)
    else:
        proxy_file.unlink(missing_ok=True)
    code, output, error = module.run_command(
        ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3", "update"],
        environ_update={"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )
    unread = f"Failed to fetch {params['url'].rstrip('/')}" in error + output
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
