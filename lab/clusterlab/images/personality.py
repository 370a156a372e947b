"""What makes a Debian answer as another system: its names, its kernels as packages, and the kernel's name."""

from __future__ import annotations

from pathlib import Path

from clusterlab import systems
from clusterlab.images.trees import ImageFile, pack
from clusterlab.process import call
from clusterlab.sources import deb, ubuntu_kernel
from clusterlab.systems import PERSONALITIES, Personality

ROOTFS = Path(__file__).parent / "rootfs" / "personality"
UNAME = Path(__file__).with_name("uname.c")
LIBRARY = "/usr/lib/clusterlab/libuname.so"
COMPILER = "gcc"
BUILDERS = [
    Path(name)
    for name in (__file__, systems.__file__, ubuntu_kernel.__file__, deb.__file__)
] + [UNAME]  # fmt: skip


def rootfs(system: str) -> list[Path]:
    """What is laid over the base image besides what every node has."""
    return [ROOTFS] if system in PERSONALITIES else []


def recipe(system: str) -> list[Path]:
    """What decides about the personality's part of the base image, for a content hash."""
    return BUILDERS if system in PERSONALITIES else []


def hooks(system: str, directory: Path) -> list[str]:
    """Shell lines for mmdebstrap, with the root in ``$1``; what they read is made in ``directory``.

    Raises ClusterctlError where a package or the library cannot be built.
    """
    if system not in PERSONALITIES:
        return []
    personality = PERSONALITIES[system]
    packages = directory / "kernel"
    packages.mkdir()
    for package in ubuntu_kernel.kernel_packages(personality.kernels[0]):
        deb.build(package, packages)
    library = directory / "libuname.so"
    build_library(library)
    layer = directory / "names.tar"
    layer.write_bytes(pack([], [*names(personality), ImageFile(LIBRARY, library.read_bytes())]))
    preload = directory / "preload.tar"
    preload.write_bytes(pack([], [ImageFile("/etc/ld.so.preload", f"{LIBRARY}\n".encode())]))
    unpack = 'tar -C "$1" --keep-directory-symlink --no-overwrite-dir -xf'
    return [
        f'cp -r {packages} "$1"/var/tmp/kernel',
        'chroot "$1" sh -c "dpkg -i /var/tmp/kernel/*.deb"',
        'rm -r "$1"/var/tmp/kernel',
        f"{unpack} {layer}",
        f'ln -sf {personality.id} "$1"/etc/dpkg/origins/default',
        f"{unpack} {preload}",
    ]


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
