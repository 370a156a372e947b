"""What makes a Debian answer as a rebuild of RHEL: its names, its RPM database, dnf, and no apt or dpkg."""

from __future__ import annotations

from pathlib import Path

from clusterlab import systems
from clusterlab.images.trees import ImageFile, pack
from clusterlab.sources import rhel_packages, rpm
from clusterlab.systems import RockyPersonality

ROOTFS = Path(__file__).parent / "rootfs" / "rocky"
# Debian's, of the same version as Rocky's dnf; what Docker needs of the system comes with it.
PACKAGES = ("dnf", "rpm", "iptables", "libdevmapper1.02.1", "libseccomp2")
NOT_THERE = ("python3-apt",)
BUILDERS = [Path(name) for name in (__file__, systems.__file__, rhel_packages.__file__, rpm.__file__)]
# apt cleans up at the end, and there is no apt then.
OPTIONS = ("--skip=cleanup/apt,cleanup/mmdebstrap",)
KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9"
ANCHORS = "/etc/pki/ca-trust/source/anchors"
DNF_CONFIGURATION = """[main]
gpgcheck=1
installonly_limit=3
clean_requirements_on_remove=True
best=True
skip_if_unavailable=False
"""
# Debian's own stays out of the way of those who ask, for the few programs of the lab that may need it.
REMOVE = """set -e
cd "$1"
rm -rf var/lib/apt var/cache/apt var/log/apt var/log/dpkg.log etc/apt etc/dpkg var/cache/debconf
rm -f usr/bin/apt usr/bin/apt-* usr/bin/dpkg usr/bin/dpkg-* usr/sbin/dpkg-* usr/bin/deb-systemd-*
rm -f usr/sbin/update-ca-certificates usr/sbin/update-initramfs etc/debian_version etc/issue.net
rm -f usr/lib/systemd/system/apt-daily* usr/lib/systemd/system/dpkg-db-backup*
rm -rf usr/lib/dpkg usr/lib/apt usr/share/doc/apt usr/local/share/ca-certificates
rm -f etc/systemd/system/timers.target.wants/apt-* etc/systemd/system/timers.target.wants/dpkg-*
rm -f etc/systemd/system/apt-daily.timer etc/systemd/system/apt-daily-upgrade.timer
mkdir -p usr/lib/clusterlab/debian
mv var/lib/dpkg usr/lib/clusterlab/debian/dpkg
"""


def hooks(system: RockyPersonality, directory: Path) -> list[str]:
    """Shell lines for mmdebstrap, with the root in ``$1``; what they read is made in ``directory``.

    Raises ClusterctlError where a package cannot be built.
    """
    packages = directory / "rpms"
    installed = [*rhel_packages.release(system), *rhel_packages.kernel(system.kernels[0])]
    rpm.build(installed, packages, "Rocky Enterprise Software Foundation")
    remove = directory / "remove-apt"
    remove.write_text(REMOVE)
    layer = directory / "rocky.tar"
    layer.write_bytes(pack([], names(system), ("/etc/yum.repos.d", "/var/lib/rpm", ANCHORS)))
    return [
        f'tar -C "$1" --keep-directory-symlink --no-overwrite-dir -xf {layer}',
        f'cp -r {packages} "$1"/var/tmp/rpms',
        'chroot "$1" sh -c "rpm --initdb && rpm -i --nosignature /var/tmp/rpms/*.rpm"',
        'rm -r "$1"/var/tmp/rpms',
        f'sh {remove} "$1"',
    ]


def names(system: RockyPersonality) -> list[ImageFile]:
    """The files that say which system this is, and where its RPM database is."""
    major = system.version_id.partition(".")[0]
    release = f"{system.name} release {system.version_id} ({system.codename})"
    lines = {
        "NAME": system.name,
        "VERSION": f"{system.version_id} ({system.codename})",
        "ID": "rocky",
        "ID_LIKE": "rhel centos fedora",
        "VERSION_ID": system.version_id,
        "PLATFORM_ID": f"platform:el{major}",
        "PRETTY_NAME": f"{system.name} {system.version_id} ({system.codename})",
        "CPE_NAME": f"cpe:/o:rocky:rocky:{major}::baseos",
        "ROCKY_SUPPORT_PRODUCT": f"Rocky-Linux-{major}",
        "ROCKY_SUPPORT_PRODUCT_VERSION": system.version_id,
        "REDHAT_SUPPORT_PRODUCT": system.name,
        "REDHAT_SUPPORT_PRODUCT_VERSION": system.version_id,
    }
    texts = {
        "/usr/lib/os-release": "\n".join(f'{key}="{value}"' for key, value in lines.items()),
        **{f"/etc/{name}": release for name in ("rocky-release", "redhat-release", "system-release")},
        "/etc/issue": "\\S\nKernel \\r on an \\m\n",
        "/etc/dnf/dnf.conf": DNF_CONFIGURATION,
        # Debian's rpm looks for its database in a home directory.
        "/etc/rpm/macros": "%_dbpath /var/lib/rpm",
    }
    return [ImageFile(path, f"{text.rstrip()}\n".encode()) for path, text in texts.items()]


def sources(base_url: str, key: bytes) -> list[ImageFile]:
    """The host's own repositories, as the depot serves them, and the key that signs their packages."""
    lines = []
    for name in ("BaseOS", "AppStream"):
        lines += [f"[{name.lower()}]", f"name=Rocky Linux $releasever - {name}"]
        lines += [f"baseurl={base_url}/rocky/$releasever/{name}/$basearch/os/"]
        lines += ["gpgcheck=1", "enabled=1", f"gpgkey=file://{KEY}", ""]
    return [
        ImageFile("/etc/yum.repos.d/rocky.repo", "\n".join(lines).encode()),
        ImageFile(KEY, key),
    ]
