"""A signed repository of RPMs in a directory: packages, repodata, streams of a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterlab.process import call
from clusterlab.sources import rpm, signing


@dataclass(frozen=True)
class Stream:
    """A stream of a module: its packages, and the profiles' packages by name."""

    packages: Sequence[rpm.RpmPackage]
    profiles: Mapping[str, Sequence[str]]


def publish(
    directory: Path,
    packages: Sequence[rpm.RpmPackage],
    key: signing.SigningKey,
    vendor: str,
    *,
    module: str = "",
    streams: Mapping[str, Stream] | None = None,
) -> None:
    """Build the packages into the directory, sign each of them, index them and sign the index.

    module: the name of the module whose `streams` these are. Raises ClusterctlError where a program fails.
    """
    made = rpm.build(packages, directory, vendor)
    signing.sign_rpms(key, made)
    _run(["createrepo_c", "--quiet", str(directory)])
    if streams:
        document = directory.parent / f".{directory.name}-modules.yaml"
        document.write_text(modules(module, streams), encoding="utf-8")
        _run(["modifyrepo_c", "--mdtype=modules", str(document), str(directory / "repodata")])
        document.unlink()
    signing.detach_sign(key, directory / "repodata/repomd.xml")


def modules(module: str, streams: Mapping[str, Stream]) -> str:
    """modules.yaml of one module: its streams with their profiles and packages."""
    lines = []
    for name, stream in streams.items():
        lines += ["---", "document: modulemd", "version: 2", "data:", f"  name: {module}"]
        lines += [f'  stream: "{name}"', "  version: 20251101000000", "  context: c0ffee00"]
        lines += ["  arch: x86_64", f"  summary: {module} {name}", f"  description: {rpm.SIMULATED!r}"]
        lines += ["  license: {module: [MIT]}", "  profiles:"]
        lines += [f"    {one}: {{rpms: [{', '.join(rpms)}]}}" for one, rpms in stream.profiles.items()]
        lines += ["  artifacts:", "    rpms:", *(f"    - {one.nevra}" for one in stream.packages), "..."]
    return "\n".join(lines) + "\n"


def _run(command: list[str]) -> None:
    call(command, timeout_s=rpm.LONGEST_S, code=rpm.FAILED, hint=rpm.HINT)
