"""Debian packages for a bundle: those that are named with all that they need, in a tree that apt reads.

The tree holds the sources' own signed indexes as they are, and of their packages only the wanted ones: who
trusts a source's key trusts the tree, and nothing is signed again. apt itself resolves, fetches and verifies.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from clusterctl.cluster.state_files import replace_file
from clusterctl.content import shared_module
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.bundle import require_inside

LONGEST_S = 7200.0
STALLED_S = 60
CONFIGURATION = "apt.conf"
_URI = re.compile(r"'([^']+)' (\S+) ([0-9]+)")


@dataclass(frozen=True)
class PackageRequest:
    """Packages, where they come from (a file of apt's sources), and for which machines.

    ``no_proxy`` names hosts, domains and networks that are asked without the proxy.
    """

    sources: Path
    names: tuple[str, ...]
    architecture: str = "amd64"
    proxy: str = ""
    no_proxy: str = ""


def tree(wanted: PackageRequest, work: Path) -> Path:
    """Download the packages below ``work``: the tree's root, a directory per host. Resumes when interrupted.

    Raises ClusterctlError (``images.packages``).
    """
    try:
        return _tree(wanted, work)
    finally:
        # A proxy's address may hold a password, and this lies on the medium.
        (work / CONFIGURATION).unlink(missing_ok=True)


def _tree(wanted: PackageRequest, work: Path) -> Path:
    _configure(wanted, work)
    _apt(["update"], wanted, work)
    # To a machine with nothing on it: what the nodes have comes along, and nothing is forgotten.
    install = ["--yes", "install", "--", *wanted.names]
    # Asked as if nothing had come yet: apt leaves out what it has.
    nowhere = f"-oDir::Cache::archives={work / 'none' / 'archives'}"
    listed = _URI.findall(_apt([nowhere, "--print-uris", *install], wanted, work))
    _apt(["--download-only", *install], wanted, work)
    root = work / "tree"
    shutil.rmtree(root, ignore_errors=True)
    for uri, name, _ in listed:
        _place(work / "cache" / "archives" / name, root, uri)
    for uri, file in _indexes(wanted, work):
        _place(file, root, uri)
        if not uri.endswith(("InRelease", "Release", "Release.gpg")):
            found = hashlib.sha256(file.read_bytes()).hexdigest()
            _place(file, root, f"{uri.rpartition('/')[0]}/by-hash/SHA256/{found}")
    return root


def _indexes(wanted: PackageRequest, work: Path) -> Iterator[tuple[str, Path]]:
    """Each index that apt has, and the signed list that it belongs to, with the address that it came from."""
    asked = _apt(["indextargets", "--format", "$(URI)\t$(METAKEY)\t$(FILENAME)"], wanted, work)
    done = set()
    for line in asked.splitlines():
        uri, key, name = line.split("\t")
        file, mangled = Path(name), key.replace("/", "_")
        if not file.is_file() or not uri.endswith(key) or not file.name.endswith(mangled):
            continue
        yield uri, file
        for signed in ("InRelease", "Release", "Release.gpg"):
            beside = file.with_name(file.name.removesuffix(mangled) + signed)
            address = uri.removesuffix(key) + signed
            if beside.is_file() and address not in done:
                done.add(address)
                yield address, beside


def _place(file: Path, root: Path, uri: str) -> None:
    """Put a file where its address says, below its host."""
    address = urlsplit(uri)
    target = root / require_inside(f"{address.hostname or 'local'}/{unquote(address.path).lstrip('/')}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def _configure(wanted: PackageRequest, work: Path) -> None:
    """Give apt a directory of its own: it neither reads nor changes what this machine has."""
    state, cache = work / "state", work / "cache"
    nowhere = work / "none" / "archives" / "partial"
    for path in (state / "lists" / "partial", cache / "archives" / "partial", nowhere):
        path.mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    nothing = work / "nothing"
    nothing.mkdir(exist_ok=True)
    # apt tells the two forms of sources by their endings.
    deb822 = wanted.sources.suffix == ".sources"
    parts = work / "parts"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir()
    shutil.copyfile(wanted.sources, parts / f"wanted{'.sources' if deb822 else '.list'}")
    values = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": cache,
        "Dir::Etc::main": "/dev/null",
        "Dir::Etc::parts": nothing,
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": parts,
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": nothing,
        "Dir::Etc::trusted": "/dev/null",
        "Dir::Etc::trustedparts": nothing,
        "Dir::Log": work,
        "APT::Architecture": wanted.architecture,
        "APT::Architectures": wanted.architecture,
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::GzipIndexes": "false",
        "Acquire::Retries": 3,
        "Acquire::http::Timeout": STALLED_S,
        "Acquire::https::Timeout": STALLED_S,
        "Debug::NoLocking": "true",
    }
    lines = [f'{key} "{value}";\n' for key, value in values.items()]
    if wanted.proxy:
        text = wanted.sources.read_text(encoding="utf-8", errors="replace")
        direct = shared_module("no_proxy").direct_hosts(text, wanted.no_proxy)
        lines += [f'Acquire::{scheme}::Proxy "{wanted.proxy}";\n' for scheme in ("http", "https")]
        lines += [
            f'Acquire::{scheme}::Proxy::{host} "DIRECT";\n' for scheme in ("http", "https") for host in direct
        ]
    # A proxy's address may hold a password.
    replace_file(work / CONFIGURATION, "".join(lines), mode=0o600)


def _apt(arguments: Sequence[str], wanted: PackageRequest, work: Path) -> str:
    # Named there, and not by options: those come after this machine's own configuration has been read.
    ours = {"APT_CONFIG": str(work / CONFIGURATION), "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    # apt itself knows names and domains of it: a source may redirect to one.
    ours |= {"no_proxy": wanted.no_proxy} if wanted.no_proxy else {}
    environment = {**{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}, **ours}
    try:
        done = subprocess.run(
            ["apt-get", "-q", *arguments], capture_output=True, text=True, errors="replace",
            timeout=LONGEST_S, stdin=subprocess.DEVNULL, env=environment, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise _refusal("this machine has no apt-get", wanted) from None
    except subprocess.TimeoutExpired:
        raise _refusal(f"apt did not end within {LONGEST_S / 3600:.0f} h", wanted) from None
    lines = [
        line for line in (done.stderr + done.stdout).splitlines() if line.startswith(("E:", "W:", "Err:"))
    ]
    # `apt-get update` ends with 0 where it could fetch nothing, and warns.
    if done.returncode != 0 or any("Failed to fetch" in line for line in lines):
        raise _refusal(" ".join(lines[-2:])[:600] or f"apt ended with {done.returncode}", wanted)
    return done.stdout


def _refusal(because: str, wanted: PackageRequest) -> ClusterctlError:
    return ClusterctlError(
        f"the packages for the bundle cannot be had: {because}",
        code="images.packages",
        where=str(wanted.sources),
        hint="Are the names right, and the sources reached? Each source names its key: signed-by=/PATH.",
        exit_code=EXIT_CLUSTER_BAD,
    )
