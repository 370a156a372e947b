#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: one signed apt source, its key and its proxy."""

from __future__ import annotations

import http.client
import io
import subprocess
import tarfile
import tempfile
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
    Proxies,
    proxy_configuration,
    source_stanza,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.http_fetch import Deadline, opened, pieces
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.openpgp_keys import (
    LARGEST,
    UnusableKeyError,
    fingerprints,
    is_armored,
    normalize,
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
FETCH_S = 60.0
# cuda-keyring unpacks to some 10 kB.
LARGEST_UNPACKED = 16 << 20


def fetch(url: str, proxies: Proxies) -> bytes:
    """The document at a URL, within FETCH_S and of LARGEST bytes at most; raises OSError, ValueError."""
    deadline = Deadline(FETCH_S)
    try:
        with opened(url, deadline, proxy_for=proxies.for_url) as answer:
            return b"".join(pieces(answer, deadline, LARGEST))
    except http.client.HTTPException as error:
        raise ValueError(f"the server's answer is not HTTP: {error}") from None


def key_of_package(package: bytes) -> bytes:
    """The first keyring that a Debian package ships; raises ValueError."""
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(package)
        file.flush()
        command = ["dpkg-deb", "--fsys-tarfile", file.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            archive = process.stdout.read(LARGEST_UNPACKED + 1)
            process.kill()  # it has ended, or is about to write what nobody reads
    if not archive or len(archive) > LARGEST_UNPACKED:
        raise ValueError("it is no Debian package, or none of a keyring's size")
    try:
        # "r:": dpkg-deb has unpacked it; what is compressed once more is no archive.
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar:
                if "/keyrings/" not in member.name or not member.isfile():
                    continue
                if member.issparse() or not 0 <= member.size <= LARGEST:
                    raise ValueError(f"its keyring {member.name[:100]!r} is sparse, or too large")
                content = tar.extractfile(member)
                if content is not None:
                    return content.read(LARGEST + 1)
    except (tarfile.TarError, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"it is no Debian package: {error}") from None
    raise ValueError("it ships no keyring")


def read_key(params: dict, proxies: Proxies) -> bytes:
    """The repository's key as it is served; raises OSError, ValueError."""
    if params["key_url"]:
        return fetch(params["key_url"], proxies)
    return key_of_package(fetch(params["keyring_package_url"], proxies))


def get_key(module: AnsibleModule, proxies: Proxies) -> bytes:
    """The repository's key; ends the module where it cannot be had."""
    try:
        return read_key(module.params, proxies)
    except (OSError, ValueError) as error:
        url = module.params["key_url"] or module.params["keyring_package_url"]
        module.fail_json(
            msg=f"The repository's key cannot be read from {mask_urls(url)}: {mask_urls(str(error))}. "
            "Check the repository URL, and that this host reaches it (site_http_proxy, site_no_proxy).",
            code="packages.source-down",
        )
        raise  # not reached: fail_json ends the module


def pinned_fingerprints(module: AnsibleModule) -> set[str]:
    """The fingerprints that are declared; ends the module where there is none, or one is malformed."""
    try:
        found = {normalize(one) for one in module.params["key_fingerprints"]}
    except ValueError as error:
        refuse(module, f"A declared key fingerprint cannot be used: {error}.")
    if not found:
        refuse(module, "No fingerprint is declared for the repository's key.")
    return found


def require_pinned(module: AnsibleModule, key: bytes, pinned: set[str]) -> None:
    """Ends the module unless every key in the file is pinned."""
    url = mask_urls(module.params["key_url"] or module.params["keyring_package_url"])
    try:
        foreign = sorted(set(fingerprints(key)) - pinned)
    except UnusableKeyError as error:
        refuse(module, f"The repository's key from {url} cannot be judged: {error}.")
    if foreign:
        refuse(
            module,
            f"The repository's key from {url} is not the declared one: it holds {', '.join(foreign[:3])}, "
            f"and declared is {', '.join(sorted(pinned))}.",
        )


def refuse(module: AnsibleModule, because: str) -> None:
    """Ends the module: nothing was written."""
    module.fail_json(
        msg=f"{because} Nothing was written. If this repository is signed with another key, compare its "
        "fingerprint with what the owner publishes and declare it: the setting that ends in "
        "_repository_key_fingerprints.",
        code="packages.key-refused",
    )


def holds_pinned_keys_alone(file: Path, pinned: set[str]) -> bool:
    """Whether a key file on this host holds no key that is not pinned."""
    try:
        return set(fingerprints(file.read_bytes())) <= pinned
    except (OSError, UnusableKeyError):
        return False


def stanza_of(params: dict, key: Path) -> str:
    """The source as it is to stand under /etc/apt."""
    stanza = source_stanza(params["url"], params["suite"], params["components"], f"Signed-By: {key}")
    return "# Managed by clusterctl.\n" + stanza


def key_files(name: str) -> list[Path]:
    """The key files that an earlier run wrote."""
    return sorted((ROOT / "etc/apt/keyrings").glob(f"clusterctl-{name}.*"))


def usable_key(module: AnsibleModule, proxies: Proxies, pinned: set[str]) -> bytes | None:
    """The repository's key, compared; None in check mode where it cannot be read yet."""
    if module.check_mode:
        try:
            key = read_key(module.params, proxies)
        except (OSError, ValueError):
            # An apply may first do what lets this host reach the source.
            return None
    else:
        key = get_key(module, proxies)
    require_pinned(module, key, pinned)
    return key


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
