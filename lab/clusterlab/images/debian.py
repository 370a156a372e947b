"""Debian root file systems by mmdebstrap."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from clusterlab.process import call

SUITES = {"debian12": "bookworm", "debian13": "trixie"}
MIRROR_VARIABLE = "CLUSTERCTL_LAB_MIRROR"
LONGEST_S = 900.0
OPTIONS = (
    "--variant=minbase",
    '--aptopt=Acquire::Languages "none"',
    "--aptopt=Acquire::Retries 3",
    # Whoever loses power here builds the image, or the node, again.
    "--dpkgopt=force-unsafe-io",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)


def mirror() -> str:
    """Debian's archive, or the mirror that the environment names in CLUSTERCTL_LAB_MIRROR."""
    return os.environ.get(MIRROR_VARIABLE, "http://deb.debian.org/debian")


def temporary_directory() -> Path:
    """Where root file systems are unpacked: a gigabyte and more, and /tmp may be memory."""
    return Path(os.environ.get("TMPDIR", "/var/tmp"))  # noqa: S108


def sources(system: str) -> list[str]:
    """Lines for sources.list: release and updates; security where the mirror is Debian's own."""
    suite = SUITES[system]
    lines = [f"deb {mirror()} {suite} main", f"deb {mirror()} {suite}-updates main"]
    if mirror().endswith("deb.debian.org/debian"):
        lines.append(f"deb {mirror()}-security {suite}-security main")
    return lines


def recipe(system: str, packages: Sequence[str]) -> list[str]:
    """What decides the contents of a root file system with ``packages``, for a content hash."""
    return [*OPTIONS, *packages, *sources(system)]


def bootstrap(
    system: str,
    packages: Sequence[str],
    target: Path,
    *,
    hooks: Sequence[str] = (),
    options: Sequence[str] = (),
) -> None:
    """Write the root file system of ``system`` with ``packages`` to ``target``, a tar file.

    ``options`` are mmdebstrap's, besides the usual ones. ``hooks`` are shell lines run before it is packed,
    with the root in ``$1``. Raises ClusterctlError (``lab.bootstrap-failed``).
    """
    command = [
        "mmdebstrap",
        "--quiet",
        *OPTIONS,
        *options,
        f"--include={','.join(packages)}",
        *_proxy_options(),
        *(f"--customize-hook={hook}" for hook in hooks),
        SUITES[system],
        str(target),
        *sources(system),
    ]
    call(
        command,
        timeout_s=LONGEST_S,
        variables={"TMPDIR": str(temporary_directory())},
        code="lab.bootstrap-failed",
        hint=f"Is {mirror()} reachable? Another mirror can be named in {MIRROR_VARIABLE}.",
    )


def _proxy_options() -> list[str]:
    """The proxy that this machine's apt uses: mmdebstrap does not read it by itself."""
    answer = call(["apt-config", "dump", "--format", "%f=%v%n", "Acquire::http::Proxy"], check=False).stdout
    proxy = answer.decode().strip().partition("=")[2]
    return [f'--aptopt=Acquire::http::Proxy "{proxy}"'] if proxy else []
