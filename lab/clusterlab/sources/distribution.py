"""The subset of Debian that lab nodes install from, downloaded by apt without touching this machine's apt."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from clusterctl.errors import EXIT_INCOMPLETE, ClusterctlError
from clusterlab.images import debian
from clusterlab.process import call
from clusterlab.sources import deb

PACKAGES = Path(__file__).with_name("distribution-packages.txt")
CODENAMES = {"debian12": "bookworm", "debian13": "trixie"}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


# The lists and some 100 MB of packages; each connection that stalls ends sooner by itself.
LONGEST_S = 900.0
STALLED_S = 30
_SETTINGS = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}


class DistributionError(ClusterctlError):
    """Debian's packages could not be had (``lab.distribution``)."""


def wanted(os: str) -> list[str]:
    """Names in distribution-packages.txt for that release."""
    names = []
    for line in PACKAGES.read_text().splitlines():
        name, _, release = line.split("#", 1)[0].partition("@")
        if name.strip() and release.strip() in ("", os):
            names.append(name.strip())
    return names


def download(names: Iterable[str], os: str, directory: Path) -> list[Path]:
    """Download the packages and everything they depend on into the directory.

    Raises DistributionError with apt's own words.
    """
    if not KEYRING.exists():
        raise DistributionError(
            f"{KEYRING} is missing",
            code="lab.distribution",
            where=str(KEYRING),
            hint="apt-get install debian-archive-keyring",
        )
    state, cache = directory / "apt/state", directory / "apt/cache"
    for path in (state / "lists/partial", cache / "archives/partial"):
        path.mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    sources = directory / "apt/sources.list"
    sources.write_text("".join(f"{line}\n" for line in signed(debian.sources(os))))
    options = _options(
        {
            "Dir::State": state,
            "Dir::State::status": state / "status",
            "Dir::Cache": cache,
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::Etc::trusted": "/dev/null",
            "Dir::Etc::trustedparts": "/dev/null",
            "Dir::Log": directory / "apt",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "",
            "APT::Get::List-Cleanup": "false",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Acquire::http::Timeout": STALLED_S,
            "Acquire::https::Timeout": STALLED_S,
            "DPkg::Post-Invoke": "",
            "Debug::NoLocking": "true",
        }
    )
    _apt([*options, "update"])
    _apt([*options, "--yes", "--no-install-recommends", "--download-only", "install", *names])
    return sorted((cache / "archives").glob("*.deb"))


def stanzas(files: Iterable[Path]) -> dict[str, str]:
    """Control stanzas by file name."""
    return {path.name: deb.stanza_of(path) for path in files}


def signed(lines: Iterable[str]) -> list[str]:
    """Lines of sources.list that trust Debian's key alone, on a machine of another distribution too."""
    return [line.replace("deb ", f"deb [arch=amd64 signed-by={KEYRING}] ", 1) for line in lines]


def _options(values: dict[str, object]) -> list[str]:
    return [f"-o{key}={value}" for key, value in values.items()]


def _apt(arguments: list[str]) -> None:
    command = ["apt-get", "-q", *arguments]
    hint = f"Is {debian.mirror()} reachable? Another mirror can be named in {debian.MIRROR_VARIABLE}."
    done = call(
        command, timeout_s=LONGEST_S, check=False, variables=_SETTINGS, code="lab.distribution", hint=hint
    )
    output = (done.stderr + done.stdout).decode(errors="replace").splitlines()
    lines = [line for line in output if line.startswith(("E:", "W:", "Err:"))]
    # apt-get update ends with 0 where it could fetch nothing, and warns.
    if done.returncode != 0 or any("Failed to fetch" in line for line in lines):
        reason = " ".join(lines[-2:])[:600] or f"exit code {done.returncode}"
        raise DistributionError(
            f"packages of Debian cannot be read: {reason}",
            code="lab.distribution",
            where=debian.mirror(),
            hint=hint,
            exit_code=EXIT_INCOMPLETE,
        )
