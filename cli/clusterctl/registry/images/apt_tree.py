"""Debian packages for a bundle: those that are named with all that they need, in a tree that apt reads.

The tree holds the sources' own signed indexes as they are, and of their packages only the wanted ones: who
trusts a source's key trusts the tree, and nothing is signed again. apt itself resolves, fetches and verifies.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote, urlsplit

import httpx

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, read_trusted
from clusterctl.cluster.state_files import replace_file
from clusterctl.cluster.trust import find_objection, find_objection_on_way
from clusterctl.content import shared_module
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.bundle import claimed_twice, require_inside
from clusterctl.registry.images.spool import disk
from clusterctl.registry.images.unbundling import digest_of_file
from clusterctl.registry.oci.hidden import HiddenSecrets
from clusterctl.registry.oci.loopback import guard_proxy

LONGEST_S = 7200.0
STALLED_S = 60
CONFIGURATION = "apt.conf"
# apt takes a source's Release file up to this size, and its other indexes as long as that one says.
MAX_RELEASE_BYTES = 10_000_000
# But none may fill the disk: the longest of Debian's, unpacked, have some 60 MB.
MAX_INDEX_BYTES = 1 << 30
OF_THE_LIMIT = re.compile(rf"received signal {signal.SIGXFSZ:d}|File too large")
# Of what apt says: a line of some 200 bytes for each package or index.
MAX_OUTPUT_BYTES = 32 << 20
# Of a file of apt's sources: those of distributions have some kB.
MAX_SOURCES_BYTES = 1 << 20
# What apt says in English, which it is asked for.
OF_A_FULL_DISK = ("No space left on device", "have enough free space", "Disk quota exceeded")
# What is asked of each index: its address, its key in the signed list, and its file here.
FORMAT = "$(URI)\t$(METAKEY)\t$(FILENAME)"
KEY = "-----BEGIN PGP"
# `[signed-by=/A,/B]` of a line, and the field `Signed-By: /A` with the lines that continue it.
_SIGNED_BY_OPTION = re.compile(r"signed-by\s*\+?=\s*([^\]\s]+)", re.IGNORECASE)
_SIGNED_BY_FIELD = re.compile(r"^signed-by:((?:.*)(?:\n[ \t].*)*)", re.IGNORECASE | re.MULTILINE)
_URI = re.compile(r"'([^'\n]+)' (\S+) ([0-9]+)")


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

    What lies in ``work`` is believed (apt compares no digest of what it has), and some of it removed: where
    there is a link, or what others could have written, all of it is fetched again.

    Raises ClusterctlError (``images.packages``, ``images.no-space``).
    """
    try:
        sources = read_trusted(wanted.sources, None, MAX_SOURCES_BYTES)
    except (OSError, UnusableFileError) as error:
        raise _refusal(f"the sources cannot be read: {describe_unusable(error)}", wanted) from None
    for key in keyrings(sources.decode(errors="surrogateescape")):
        try:
            because = find_objection_on_way(Path(key))
        except OSError as error:
            because = error.strerror or str(error)
        if because:
            raise _refusal(f"the key {one_line(key)} of the sources is not trusted: {because}", wanted)
    with disk(work, "a package"):
        if os.path.lexists(work) and not _is_ours(work):
            shutil.rmtree(work)
        for path in (*reversed(work.parents[:2]), work):  # whatever the umask: they are refused else
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with disk(work, "a package"):
            return _tree(wanted, sources, work)
    finally:
        # A proxy's address may hold a password.
        (work / CONFIGURATION).unlink(missing_ok=True)


def keyrings(sources: str) -> list[str]:
    """The files with keys that sources name, in either form of apt's; a fingerprint or a key is none."""
    lines = [line for line in sources.splitlines() if not line.lstrip().startswith("#")]
    values = [value for line in lines for value in _SIGNED_BY_OPTION.findall(line)]
    values += _SIGNED_BY_FIELD.findall("\n".join(lines))
    words = (word.strip('"') for value in values if KEY not in value for word in re.split(r"[\s,]+", value))
    return list(dict.fromkeys(word for word in words if word.startswith("/")))


def _is_ours(work: Path) -> bool:
    """Whether it has only files and directories that nobody else could have written."""
    below = (Path(top) / name for top, *names in os.walk(work) for name in chain(*names))
    return all(
        (path.is_dir() or path.is_file()) and not path.is_symlink() and not find_objection(path)
        for path in (work, *below)
    )


def _tree(wanted: PackageRequest, sources: bytes, work: Path) -> Path:
    _configure(wanted, sources, work)
    _apt(["update"], wanted, work, MAX_INDEX_BYTES)
    # To a machine with nothing on it: what the nodes have comes along, and nothing is forgotten.
    install = ["--yes", "install", "--", *wanted.names]
    # Asked as if nothing had come yet: apt leaves out what it has.
    nowhere = f"-oDir::Cache::archives={work / 'none' / 'archives'}"
    listed = listed_packages(_apt([nowhere, "--print-uris", *install], wanted, work))
    if in_place := next((uri for uri, _ in listed if uri.startswith("file:")), ""):
        hint = "Write copy:/PATH instead of file:/PATH in the sources: apt then brings the packages here."
        raise _refusal(f"apt reads {one_line(in_place)} where it lies, and keeps no copy", wanted, hint)
    _apt(["--download-only", *install], wanted, work)
    lists = work / "state" / "lists"
    indexes = listed_indexes(_apt(["indextargets", "--format", FORMAT], wanted, work), lists)
    root = work / "tree"
    shutil.rmtree(root, ignore_errors=True)
    packages = [(uri, work / "cache" / "archives" / name) for uri, name in listed]
    for place, file in places_of(packages, indexes).items():
        _place(file, root / place)
    return root


def listed_packages(text: str) -> list[tuple[str, str]]:
    """Address and file name of each package in what `apt-get --print-uris` prints.

    Raises ClusterctlError (``images.packages``) for a name that is a path.
    """
    found = [(uri, name) for uri, name, _ in _URI.findall(text)]
    for uri, name in found:
        if "/" in name or name in (".", ".."):
            raise _unexpected(f"apt names a package's file {one_line(name)}", uri)
    return found


def listed_indexes(text: str, lists: Path) -> Iterator[tuple[str, Path]]:
    """Each index that apt has in ``lists``, and the signed list that it belongs to, with their addresses.

    ``text`` is what `apt-get indextargets` prints. Raises ClusterctlError (``images.packages``).
    """
    done = set()
    for line in text.splitlines():
        uri, key, name = (*line.split("\t"), "", "")[:3]
        file, mangled = Path(name), key.replace("/", "_")
        if not key or not _is_in(file, lists):
            continue
        if not uri.endswith(key) or not file.name.endswith(mangled):
            continue
        yield uri, file
        for signed in ("InRelease", "Release", "Release.gpg"):
            beside = file.with_name(file.name.removesuffix(mangled) + signed)
            address = uri.removesuffix(key) + signed
            if beside.is_file() and address not in done:
                done.add(address)
                yield address, beside


def _is_in(file: Path, directory: Path) -> bool:
    """Whether a file lies there, in no directory below."""
    try:
        return file.parent.resolve() == directory.resolve() and file.is_file()
    except (OSError, ValueError):
        return False  # no name of a file at all


def place_of(uri: str) -> PurePosixPath:
    """Where the file of an address lies in a tree: below its host.

    Raises ClusterctlError (``images.packages``, ``images.bundle``).
    """
    try:
        address = urlsplit(uri)
        host = address.hostname or "local"
    except ValueError as error:
        raise _unexpected(f"an address of a source cannot be read: {error}", uri) from None
    return require_inside(f"{host}/{unquote(address.path).lstrip('/')}")


def places_of(
    packages: Iterable[tuple[str, Path]], indexes: Iterable[tuple[str, Path]]
) -> dict[PurePosixPath, Path]:
    """Where each file lies in a tree, by its address; an index also by its digest.

    Raises ClusterctlError (``images.packages``, ``images.bundle``) where two would lie in one place.
    """
    found: dict[PurePosixPath, Path] = {}
    by_digest: dict[PurePosixPath, Path] = {}
    for is_index, (uri, file) in [*((False, one) for one in packages), *((True, one) for one in indexes)]:
        place = place_of(uri)
        if found.setdefault(place, file) != file:
            raise _unexpected("two of its files have one address", uri)
        if is_index and not uri.endswith(("InRelease", "Release", "Release.gpg")):
            by_digest[place.parent / "by-hash" / "SHA256" / digest_of_file(file)] = file
    found = by_digest | found
    twice = claimed_twice(list(found))
    if twice is not None:
        raise _unexpected("one of its files lies where another needs a directory", str(twice))
    return found


def _place(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def _configure(wanted: PackageRequest, sources: bytes, work: Path) -> None:
    """Give apt a directory of its own: it neither reads nor changes what this machine has."""
    state, cache = work / "state", work / "cache"
    nowhere = work / "none" / "archives" / "partial"
    for path in (state / "lists" / "partial", cache / "archives" / "partial", nowhere):
        path.mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    # What lies there apt would read as its own settings, and those name commands.
    nothing, parts = work / "nothing", work / "parts"
    for path in (nothing, parts):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    # apt tells the two forms of sources by their endings.
    deb822 = wanted.sources.suffix == ".sources"
    (parts / f"wanted{'.sources' if deb822 else '.list'}").write_bytes(sources)
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
        "Acquire::MaxReleaseFileSize": MAX_RELEASE_BYTES,
        "Acquire::http::Timeout": STALLED_S,
        "Acquire::https::Timeout": STALLED_S,
        "Debug::NoLocking": "true",
    }
    lines = [f'{key} "{value}";\n' for key, value in values.items()]
    if wanted.proxy:
        proxies = shared_module("no_proxy")
        direct = proxies.direct_hosts(sources.decode(errors="replace"), wanted.no_proxy)
        proxy = proxies.quoted(wanted.proxy)
        lines += [f'Acquire::{scheme}::Proxy "{proxy}";\n' for scheme in ("http", "https")]
        lines += [
            f'Acquire::{scheme}::Proxy::{host} "DIRECT";\n' for scheme in ("http", "https") for host in direct
        ]
    # A proxy's address may hold a password.
    replace_file(work / CONFIGURATION, "".join(lines), mode=0o600)


def _apt(
    arguments: Sequence[str], wanted: PackageRequest, work: Path, longest_file: int | None = None
) -> str:
    # Named there, and not by options: those come after this machine's own configuration has been read.
    ours = {"APT_CONFIG": str(work / CONFIGURATION), "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    # apt itself knows names and domains of it: a source may redirect to one.
    ours |= {"no_proxy": wanted.no_proxy} if wanted.no_proxy else {}
    environment = {**{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}, **ours}
    program = shutil.which("apt-get")
    if program is None:
        raise _refusal("this machine has no apt-get", wanted)
    # apt connects later, and by itself: who listens then is not seen.
    guard_proxy(wanted.proxy, httpx.URL(wanted.proxy).host)
    command = [program, "-q", *arguments]
    if longest_file:
        command = shared_module("file_limit").with_file_limit(command, longest_file)
    try:
        # Where the packages lie: a disk that is full is then that one.
        with tempfile.TemporaryFile(dir=work) as output, tempfile.TemporaryFile(dir=work) as errors:
            done = subprocess.run(
                command, stdout=output, stderr=errors,
                timeout=LONGEST_S, stdin=subprocess.DEVNULL, env=environment, check=False,
            )  # fmt: skip
            said, complaints = _text_of(output, wanted), _text_of(errors, wanted)
    except subprocess.TimeoutExpired:
        raise _refusal(f"apt did not end within {LONGEST_S / 3600:.0f} h", wanted) from None
    if longest_file and (done.returncode == -signal.SIGXFSZ or OF_THE_LIMIT.search(complaints + said)):
        raise _too_large(
            f"an index of a source has more than {longest_file} bytes when it is unpacked", wanted
        )
    if any(words in complaints + said for words in OF_A_FULL_DISK):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    # "File has unexpected size (N != BOUND)", or "Writing more data than expected (N > BOUND)".
    if re.search(rf"(!=|>) {MAX_RELEASE_BYTES}\)", complaints + said):
        raise _too_large(f"a source's Release file has more than {MAX_RELEASE_BYTES} bytes", wanted)
    lines = [line for line in (complaints + said).splitlines() if line.startswith(("E:", "W:", "Err:"))]
    # `apt-get update` ends with 0 where it could fetch nothing, and warns.
    if done.returncode != 0 or any("Failed to fetch" in line for line in lines):
        raise _refusal(one_line(" ".join(lines[-2:]), 600) or f"apt ended with {done.returncode}", wanted)
    return said


def _text_of(stream: IO[bytes], wanted: PackageRequest) -> str:
    stream.seek(0)
    found = stream.read(MAX_OUTPUT_BYTES + 1)
    if len(found) > MAX_OUTPUT_BYTES:
        raise _too_large(f"apt lists more than {MAX_OUTPUT_BYTES} bytes of packages and indexes", wanted)
    hidden = HiddenSecrets()
    hidden.add_address(wanted.proxy)
    return hidden.mask(found.decode(errors="replace"))


def _unexpected(because: str, uri: str) -> ClusterctlError:
    return ClusterctlError(
        f"the packages for the bundle cannot be had: {because}",
        code="images.packages",
        where=one_line(uri),
        hint="Is that source what it should be?",
        exit_code=EXIT_CLUSTER_BAD,
    )


def _too_large(because: str, wanted: PackageRequest) -> ClusterctlError:
    return _refusal(
        because, wanted,
        "No setting raises this limit. Name fewer sources in the file for --apt-sources: only the suites and "
        "components that the packages are in, or a smaller mirror.",
    )  # fmt: skip


def _refusal(
    because: str,
    wanted: PackageRequest,
    hint: str = "Are the names right, and the sources reached? Each source names its key: signed-by=/PATH.",
) -> ClusterctlError:
    return ClusterctlError(
        f"the packages for the bundle cannot be had: {because}",
        code="images.packages",
        where=str(wanted.sources),
        hint=hint,
        exit_code=EXIT_CLUSTER_BAD,
    )
