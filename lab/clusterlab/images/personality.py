"""What makes a Debian answer as another system: its names, its kernels as packages, and the kernel's name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clusterlab import systems
from clusterlab.images import rocky
from clusterlab.images.trees import ImageFile, pack
from clusterlab.process import call
from clusterlab.sources import deb, ubuntu_kernel
from clusterlab.systems import PERSONALITIES, RPM_PERSONALITIES, Personality

ROOTFS = Path(__file__).parent / "rootfs" / "personality"
UNAME = Path(__file__).with_name("uname.c")
LIBRARY = "/usr/lib/clusterlab/libuname.so"
COMPILER = "gcc"
UNPACK = 'tar -C "$1" --keep-directory-symlink --no-overwrite-dir -xf'
BUILDERS = [
    Path(name)
    for name in (__file__, systems.__file__, ubuntu_kernel.__file__, deb.__file__)
] + [UNAME]  # fmt: skip


def rootfs(system: str) -> list[Path]:
    """What is laid over the base image besides what every node has."""
    if system in RPM_PERSONALITIES:
        return [ROOTFS, rocky.ROOTFS]
    return [ROOTFS] if system in PERSONALITIES else []


def packages(system: str, usual: Sequence[str]) -> tuple[str, ...]:
    """Debian's packages of the base image; `usual` are those of every node."""
    if system not in RPM_PERSONALITIES:
        return tuple(usual)
    return (*(name for name in usual if name not in rocky.NOT_THERE), *rocky.PACKAGES)


def options(system: str) -> tuple[str, ...]:
    """Options of mmdebstrap."""
    return rocky.OPTIONS if system in RPM_PERSONALITIES else ()


def recipe(system: str) -> list[Path]:
    """What decides about the personality's part of the base image, for a content hash."""
    if system in RPM_PERSONALITIES:
        return [*BUILDERS, *rocky.BUILDERS]
    return BUILDERS if system in PERSONALITIES else []


def hooks(system: str, directory: Path) -> list[str]:
    """Shell lines for mmdebstrap, with the root in ``$1``; what they read is made in ``directory``.

    Raises ClusterctlError where a package or the library cannot be built.
    """
    if system in RPM_PERSONALITIES:
        return [*rocky.hooks(RPM_PERSONALITIES[system], directory), *_kernel_name(directory)]
    if system not in PERSONALITIES:
        return []
    personality = PERSONALITIES[system]
    kernel = directory / "kernel"
    kernel.mkdir()
    for package in ubuntu_kernel.kernel_packages(personality.kernels[0]):
        deb.build(package, kernel)
    layer = directory / "names.tar"
    layer.write_bytes(pack([], names(personality)))
    return [
        f'cp -r {kernel} "$1"/var/tmp/kernel',
        'chroot "$1" sh -c "dpkg -i /var/tmp/kernel/*.deb"',
        'rm -r "$1"/var/tmp/kernel',
        f"{UNPACK} {layer}",
        f'ln -sf {personality.id} "$1"/etc/dpkg/origins/default',
        *_kernel_name(directory),
    ]


def _kernel_name(directory: Path) -> list[str]:
    """The hook by which programs hear the personality's kernel; it is the last one."""
    library = directory / "libuname.so"
    build_library(library)
    files = [
        ImageFile(LIBRARY, library.read_bytes()),
        ImageFile("/etc/ld.so.preload", f"{LIBRARY}\n".encode()),
    ]
    layer = directory / "preload.tar"
    layer.write_bytes(pack([], files))
    return [f"{UNPACK} {layer}"]


def names(personality: Personality) -> list[ImageFile]:
    """The files that say which system this is."""
    family = personality.id.capitalize()
    release = {
        "PRETTY_NAME": personality.name,
        "NAME": family,
        "VERSION_ID": personality.version_id,
        "VERSION": personality.title,
        "VERSION_CODENAME": personality.codename,
        "ID": personality.id,
        "ID_LIKE": "debian",
        "UBUNTU_CODENAME": personality.codename,
    }
    quoted = {"PRETTY_NAME", "NAME", "VERSION_ID", "VERSION"}
    lines = [f'{key}="{value}"' if key in quoted else f"{key}={value}" for key, value in release.items()]
    lsb = {
        "DISTRIB_ID": family,
        "DISTRIB_RELEASE": personality.version_id,
        "DISTRIB_CODENAME": personality.codename,
        "DISTRIB_DESCRIPTION": f'"{personality.name}"',
    }
    texts = {
        "/usr/lib/os-release": "\n".join(lines),
        "/etc/lsb-release": "\n".join(f"{key}={value}" for key, value in lsb.items()),
        "/etc/debian_version": personality.debian_version,
        "/etc/issue": f"{personality.name} \\n \\l\n",
        "/etc/issue.net": personality.name,
        f"/etc/dpkg/origins/{personality.id}": f"Vendor: {family}\nParent: Debian",
    }
    return [ImageFile(path, f"{text}\n".encode()) for path, text in texts.items()]


def build_library(target: Path, source: Path = UNAME) -> None:
    """Build what gives programs the personality's kernel name. Raises ClusterctlError."""
    call(
        [
            COMPILER,
            "-shared",
            "-fPIC",
            "-O2",
            "-nostdlib",
            "-fno-stack-protector",
            "-o",
            str(target),
            str(source),
        ],
        code="lab.bootstrap-failed",
        hint=f"A personality needs a C compiler on this machine: apt-get install {COMPILER}",
    )
