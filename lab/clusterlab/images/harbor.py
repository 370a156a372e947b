"""The stand-in Harbor's installers: tarballs of the real one's shape, with images that the lab makes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from clusterlab import simulated
from clusterlab.cache import cache_root, content_hash, locked, scratch
from clusterlab.images import debian, trees
from clusterlab.images.debian import bootstrap, recipe
from clusterlab.images.storage import CREATED
from clusterlab.images.trees import ImageFile, pack
from clusterlab.progress import LabProgress

SIMULATED = Path(simulated.__path__[0]) / "harbor"
INSTALLER = SIMULATED / "installer"
IMAGE = SIMULATED / "image"
API = SIMULATED / "api"
TOKENS = SIMULATED / "tokens.py"
IN_IMAGE = "/usr/lib/clusterlab/harbor"
PACKAGES = ("nginx-light", "docker-registry", "python3-minimal", "python3-yaml", "openssl", "ca-certificates")
# Of two series, so that there is a step to make from one to the other.
VERSIONS = ("v2.14.4", "v2.15.2")
NAMES = (
    "prepare", "harbor-log", "registry-photon", "harbor-registryctl", "harbor-db", "harbor-core",
    "harbor-portal", "harbor-jobservice", "redis-photon", "nginx-photon", "trivy-adapter-photon",
)  # fmt: skip
BUILDERS = [Path(module) for module in (__file__, debian.__file__, trees.__file__)]
# Fast rather than small: it travels over a bridge of this machine.
GZIP_LEVEL = 1


@dataclass(frozen=True)
class Installer:
    """One release, as a file that the depot serves."""

    version: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Installers:
    """All releases, and the directory that they lie in; the newest is the last."""

    directory: Path
    releases: tuple[Installer, ...]

    @property
    def newest(self) -> Installer:
        """What a new lab installs."""
        return self.releases[-1]


def ensure_installers(progress: LabProgress) -> Installers:
    """The installers, built where the cache does not have them. Raises ClusterctlError."""
    home = (
        cache_root()
        / "harbor"
        / content_hash([*recipe("debian12", PACKAGES), INSTALLER, IMAGE, API, TOKENS, *BUILDERS])
    )
    record = home / "installers.json"
    with locked("harbor"):
        if not record.is_file():
            home.mkdir(parents=True, exist_ok=True)
            with progress.step("building the simulated Harbor's installers"), scratch("harbor") as directory:
                releases = _build(directory, home)
            record.write_text(json.dumps(releases) + "\n", encoding="utf-8")
    found = json.loads(record.read_text(encoding="utf-8"))
    return Installers(home, tuple(Installer(**one) for one in found))


def _build(directory: Path, home: Path) -> list[dict[str, str]]:
    root = directory / "root.tar"
    layer = directory / "layer.tar"
    layer.write_bytes(_programs())
    bootstrap("debian12", PACKAGES, root, hooks=[f'tar -C "$1" -xf {layer}'])
    digest = _digest(root)
    releases = []
    for version in VERSIONS:
        images = directory / f"harbor.{version}.tar.gz"
        _write_images(images, root, digest, version)
        name = f"harbor-offline-installer-{version}.tgz"
        # Images are packed already.
        with tarfile.open(directory / name, "w:gz", compresslevel=0) as archive:
            for member, content in _files(version).items():
                entry = tarfile.TarInfo(f"harbor/{member}")
                entry.size, entry.mode = len(content), 0o755 if content.startswith(b"#!") else 0o644
                archive.addfile(entry, io.BytesIO(content))
            archive.add(images, f"harbor/{images.name}")
        images.unlink()
        releases.append({"version": version, "file": name, "sha256": _digest(directory / name)})
        (directory / name).chmod(0o644)
        (directory / name).replace(home / name)
    return releases


def _programs() -> bytes:
    """What is laid over Debian: the programs of the image, and the API's."""
    paths = [SIMULATED / "__init__.py", TOKENS, *sorted(API.glob("*.py"))]
    return pack(
        [IMAGE], [ImageFile(f"{IN_IMAGE}/{path.relative_to(SIMULATED)}", path.read_bytes()) for path in paths]
    )


def _files(version: str) -> dict[str, bytes]:
    """The installer's own files for one release, by name."""
    series = version.removeprefix("v").rpartition(".")[0]
    found = {}
    for path in sorted(INSTALLER.iterdir()):
        text = path.read_text(encoding="utf-8").replace("@VERSION@", version).replace("@SERIES@", series)
        found[path.name] = text.encode()
    return found


def _write_images(target: Path, root: Path, digest: str, version: str) -> None:
    """An archive for `docker load`: one image of one layer, under every name that Harbor's images have."""
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": CREATED,
            "config": {
                "Entrypoint": ["/usr/bin/harbor-part"],
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
                        f"HARBOR_VERSION={version}"],
                "Labels": {"org.clusterctl.simulated": "true"},
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": CREATED, "created_by": "clusterctl lab"}],
        }
    ).encode()  # fmt: skip
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    tags = [f"goharbor/{image}:{version}" for image in NAMES]
    manifest = json.dumps([{"Config": name, "RepoTags": tags, "Layers": ["layer.tar"]}]).encode()
    with (
        gzip.open(target, "wb", compresslevel=GZIP_LEVEL) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for member, content in ((name, config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        archive.add(root, "layer.tar")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
