"""The lab's training image: Debian, Python and paddlepaddle (CPU), as storage that a registry serves.

It never passes through this machine's container engine: nodes get it from a registry, as at a real site.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from clusterctl.errors import EXIT_INCOMPLETE, ClusterctlError
from clusterctl.interpreter import python_command
from clusterlab.cache import cache_root, content_hash, locked, scratch
from clusterlab.images import debian, storage
from clusterlab.images.debian import bootstrap, recipe
from clusterlab.images.storage import store_image
from clusterlab.process import call
from clusterlab.progress import LabProgress

REQUIREMENTS = Path(__file__).with_name("training-requirements.txt")
PACKAGES = ("python3", "libgomp1", "ca-certificates", "procps", "iproute2", "iputils-ping")
REPOSITORY = "paddlepaddle/paddle"
MOST_BYTES = 1_200_000_000
LONGEST_S = 900.0
# What Debian 12's Python is, for pip on a machine whose Python may be another.
PYTHON = "3.11"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
# What the image's programs find in a GPU's place: the lab's nodes have none that compute.
DEVICE = Path(__file__).parents[1] / "simulated" / "device" / "clusterlab_device.py"
BUILDERS = [Path(module) for module in (__file__, debian.__file__, storage.__file__)]
PACKAGE_DIRECTORY = f"/usr/local/lib/python{PYTHON}/dist-packages"


@dataclass(frozen=True)
class TrainingImage:
    """Where the image lies on this machine, and its name in the depot's registry."""

    storage: Path
    repository: str
    tag: str
    digest: str


def paddle_version() -> str:
    """The pinned version of paddlepaddle."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    pinned = next(line for line in lines if line.startswith("paddlepaddle=="))
    return pinned.removeprefix("paddlepaddle==").split()[0]


def ensure_training_image(progress: LabProgress) -> TrainingImage:
    """The training image, built where the cache does not have it. Raises ClusterctlError."""
    home = _home()
    record = home / "image.json"
    with locked("training"):
        if not record.is_file():
            shutil.rmtree(home, ignore_errors=True)
            with progress.step(f"building the training image (paddlepaddle {paddle_version()})"):
                digest = _build(home / "registry")
            record.write_text(json.dumps({"digest": digest}) + "\n", encoding="utf-8")
    digest = json.loads(record.read_text(encoding="utf-8"))["digest"]
    return TrainingImage(home / "registry", REPOSITORY, paddle_version(), digest)


def training_is_cached() -> bool:
    """Whether the training image needs no building."""
    return (_home() / "image.json").is_file()


def _home() -> Path:
    key = content_hash([*recipe("debian12", PACKAGES), REQUIREMENTS, DEVICE, *BUILDERS])
    return cache_root() / "training" / key


# Compiled ahead: a container starts from a read-only image, and would compile all of paddle each time.
_HOOK = (
    'mkdir -p "$1{packages}" && cp -a {built}/. "$1{packages}/"'
    ' && if [ -d "$1{packages}/bin" ]; then mv "$1{packages}"/bin/* "$1/usr/local/bin/"; fi'
    ' && cp {device} "$1{packages}/"'
    ' && chroot "$1" python3 -m compileall -q {packages}'
)


def _build(target: Path) -> str:
    with scratch("training") as directory:
        built = directory / "packages"
        call(
            [
                *python_command("-m", "pip", "install", "--quiet", "--no-compile", "--require-hashes"),
                "--target", str(built), "--python-version", PYTHON, "--implementation", "cp",
                "--only-binary=:all:", *(f"--platform={platform}" for platform in PLATFORMS),
                "-r", str(REQUIREMENTS),
            ],
            timeout_s=LONGEST_S,
            code="lab.pip-failed",
            hint="Is the Python package index reachable, and does this Python have pip?",
        )  # fmt: skip
        tar = directory / "root.tar"
        hook = _HOOK.format(packages=PACKAGE_DIRECTORY, built=built, device=DEVICE)
        bootstrap("debian12", PACKAGES, tar, hooks=[hook])
        size = tar.stat().st_size
        if size > MOST_BYTES:
            raise ClusterctlError(
                f"the training image is {size / 1e9:.2f} GB unpacked, over {MOST_BYTES / 1e9:.1f} GB",
                code="lab.image-too-large",
                where=str(REQUIREMENTS),
                exit_code=EXIT_INCOMPLETE,
            )
        temporary = directory / "registry"
        digest = store_image(temporary, REPOSITORY, paddle_version(), tar, _config())
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.rename(target)
    return digest


def _config() -> dict[str, object]:
    """The container's configuration, as the image format has it."""
    return {
        "Env": [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONUNBUFFERED=1",
            "LANG=C.UTF-8",
            f"CLUSTERCTL_DEVICE_BACKEND={DEVICE.stem}",
        ],
        "Cmd": ["python3"],
        "WorkingDir": "/",
        "Labels": {
            "org.opencontainers.image.title": "Paddle on CPU, for clusterctl's lab",
            "org.opencontainers.image.version": paddle_version(),
            "org.clusterctl.framework": "paddle",
            "org.clusterctl.framework.version": paddle_version(),
            "org.clusterctl.framework.device": "cpu",
        },
    }
