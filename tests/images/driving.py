"""How the tests of images call clusterctl, and read what it says."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result
from tests.support.registries import (
    Made,
    Proxy,
    Running,
    bytes_of,
    cluster_directory,
    put_image,
    put_index,
)

from clusterctl.cluster.inventory import forget_cached
from clusterctl.errors import ClusterctlError
from clusterctl.main import cli

MB = 1 << 20


def call(directory: Path, *arguments: str) -> Result:
    forget_cached()
    return CliRunner().invoke(cli, ["-C", str(directory), *arguments], standalone_mode=False)


def good(result: Result) -> Result:
    assert result.exception is None, result.exception
    assert result.return_value in (0, None), result.output
    return result


def error(result: Result) -> ClusterctlError:
    assert isinstance(result.exception, ClusterctlError), result.exception or result.output
    return result.exception


def records(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def mirror(directory: Path, to: Running | Proxy, *more: str) -> Result:
    return call(directory, "images", "mirror", "--to", f"http://{to.host}", "--json", *more)


def put_list(source: Running) -> dict[str, Made]:
    """A list of two platforms' images at t/many:1, by platform; their tags there are the architectures."""
    made = {
        f"linux/{name}": put_image(source.host, "t/many", name, [bytes_of(name, MB)], architecture=name)
        for name in ("amd64", "arm64")
    }
    put_index(source.host, "t/many", "1", made)
    return made


def spooled(directory: Path) -> list[str]:
    spool = directory / ".clusterctl/images/spool"
    own = ("journal.jsonl", "lock")
    return sorted(p.name for p in spool.iterdir() if p.name not in own) if spool.is_dir() else []


def journal(directory: Path) -> list[dict]:
    file = directory / ".clusterctl/images/spool/journal.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def site(tmp_path: Path, host: str, *names: str, **more: object) -> Path:
    """A cluster whose images come from ``host``: NAME is t/NAME:1 there."""
    images = [{"source": f"http://{host}/t/{name}:1", "target": f"mirrored/{name}"} for name in names]
    return cluster_directory(tmp_path / "site", images, **more)


def locked_site(tmp_path: Path, host: str, *names: str, **more: object) -> Path:
    """The same, and what its images are is locked."""
    directory = site(tmp_path, host, *names, **more)
    good(call(directory, "lock"))
    return directory
