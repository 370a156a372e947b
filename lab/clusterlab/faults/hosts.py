"""Faults of a host that are two scripts, or a file that is laid over another: a row each."""

from __future__ import annotations

from dataclasses import replace

from clusterlab.faults.on_host import KEPT, covering, scripted
from clusterlab.names import SCRATCH

# Never the machine's own disk: a file system in memory over the directory, with all that was in there.
SMALL_DISK = "/var/lib/clusterctl"
_FILL_DISK = f"""
if [ "$(findmnt -nr -o SOURCE --mountpoint {SMALL_DISK})" = small-disk ]; then exit 0; fi
mkdir -p {SMALL_DISK} /run/small-disk
mount -t tmpfs -o size=16m,mode=0755 small-disk /run/small-disk
cp -a {SMALL_DISK}/. /run/small-disk/
if dd if=/dev/zero of=/run/small-disk/core bs=4k 2> /dev/null; then
    echo '/run/small-disk does not fill up' >&2
    exit 1
fi
mount --bind /run/small-disk {SMALL_DISK}
umount /run/small-disk
"""
_FREE_DISK = f"""
for place in {SMALL_DISK} /run/small-disk; do
    while [ "$(findmnt -nr -o SOURCE --mountpoint $place)" = small-disk ]; do umount $place; done
done
"""

FEW_INODES = "/var/tmp"  # noqa: S108 - the node's own
_USE_INODES = f"""
mount -t tmpfs -o size=256m,nr_inodes=16,mode=1777 few-inodes {FEW_INODES}
until ! touch {FEW_INODES}/$(cat /proc/sys/kernel/random/uuid) 2> /dev/null; do :; done
"""
_FREE_INODES = (
    f'if [ "$(findmnt -nr -o SOURCE --mountpoint {FEW_INODES})" = few-inodes ]; then umount {FEW_INODES}; fi'
)

# Programs that have a file open there continue to write: the file system itself is not touched.
READ_ONLY = "/var/log"

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the node's own
# In memory like the mount itself: both are new after a reboot.
_SIZE = "/run/shm-size.before-fault"
_SHRINK = f"""
[ -e {_SIZE} ] || findmnt --noheadings --bytes --output SIZE {SHARED_MEMORY} | tr -d ' ' > {_SIZE}
mount -o remount,size=64m {SHARED_MEMORY}
"""
_GROW = f"""
[ -e {_SIZE} ] || exit 0
mount -o remount,size=$(cat {_SIZE}) {SHARED_MEMORY}
rm {_SIZE}
"""

# Kept mounted elsewhere: cleared, it is the same file system with all that is on it.
_ASIDE = f"{KEPT}/scratch"
_MOUNT_AGAIN = f"""
if findmnt --mountpoint {_ASIDE} > /dev/null; then
    findmnt --mountpoint {SCRATCH} > /dev/null || mount --bind {_ASIDE} {SCRATCH}
    umount {_ASIDE}
fi
"""

# An address for documentation (RFC 5737), at which no server is.
NO_SERVER = "192.0.2.53"
RESOLV_CONF = "/etc/resolv.conf"
# The old file is on the node: an injection that is killed can be cleared, and so can one before a reboot.
_OTHER_DNS = f"""
grep -q {NO_SERVER} {RESOLV_CONF} || cp {RESOLV_CONF} {RESOLV_CONF}.before-fault
echo 'nameserver {NO_SERVER}' > {RESOLV_CONF}
"""
# A reboot writes the file again: then only what was kept is left to remove.
_OLD_DNS = f"""
if grep -q {NO_SERVER} {RESOLV_CONF}; then cp {RESOLV_CONF}.before-fault {RESOLV_CONF}; fi
rm -f {RESOLV_CONF}.before-fault
"""

_DEVICES = "/dev/nvidia[0-9]*"
_MODES = f"{KEPT}/device-modes"
_CLOSE_DEVICES = f"""
mkdir -p {KEPT}
[ -e {_MODES} ] || {{ stat -c '%a %n' {_DEVICES} > {_MODES}.new; mv {_MODES}.new {_MODES}; }}
chmod 0660 {_DEVICES}
"""
# A device that is gone has no mode to restore: when it comes again, the driver makes its file.
_OPEN_DEVICES = f"""
if [ -e {_MODES} ]; then
    while read -r mode file; do
        if [ -e "$file" ]; then chmod "$mode" "$file"; fi
    done < {_MODES}
    rm {_MODES}
fi
"""

# A release of branch 580 that the depot does not serve: what is installed cannot be it.
LOADED_DRIVER = "580.65.06"
_MODULE = "/run/clusterlab/kernel/modules/nvidia"
_LOAD_OTHER = f"""
mkdir -p {KEPT}
cp -p {_MODULE} {KEPT}/module
sed 's/"version": "[0-9.]*"/"version": "{LOADED_DRIVER}"/' {KEPT}/module > {_MODULE}
clusterlab-hardware refresh
"""

OTHER_SYSTEM = "Debian GNU/Linux 11 (bullseye)"
_OS_RELEASE = "/usr/lib/os-release"
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"

# What the BMC says; it is the lab's own.
IPMITOOL = "/usr/bin/ipmitool"
_ECC = "Memory DIMM_A1 | Uncorrectable ECC | Asserted"

# Where systemd-pstore moves a dump at the boot after a crash; in memory, so that a reboot undoes it.
CRASHES = "/var/lib/systemd/pstore"
_CRASH = f"""
mkdir -p {CRASHES}
if [ "$(findmnt -nr -o SOURCE --mountpoint {CRASHES})" != lab-crash ]; then
    mount -t tmpfs -o size=1m lab-crash {CRASHES}
fi
mkdir -p {CRASHES}/1/001
{{
    echo 'Panic#1 Part1'
    echo '<0>[ 4711.000000] Kernel panic - not syncing: Fatal hardware error!'
}} > {CRASHES}/1/001/dmesg-efi_pstore-1
"""
_NO_CRASH = f'if [ "$(findmnt -nr -o SOURCE --mountpoint {CRASHES})" = lab-crash ]; then umount {CRASHES}; fi'

# A page of memory that the kernel is to fetch from somebody who never answers: to lock it is to wait for it.
# The numbers are those of userfaultfd, UFFDIO_API and UFFDIO_REGISTER [linux/userfaultfd.h].
_WAIT_FOREVER = """
systemctl is-active --quiet stuck-process || systemd-run --quiet --unit=stuck-process --collect \\
    --property=KillSignal=SIGKILL \\
    python3 -c 'import ctypes, fcntl, mmap, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
faults = libc.syscall({"x86_64": 323, "aarch64": 282}[platform.machine()], os.O_CLOEXEC)
if faults < 0:
    raise OSError(ctypes.get_errno(), "userfaultfd")
fcntl.ioctl(faults, 0xC018AA3F, bytearray(struct.pack("=QQQ", 0xAA, 0, 0)))
page = mmap.mmap(-1, mmap.PAGESIZE)
place = ctypes.addressof(ctypes.c_char.from_buffer(page))
fcntl.ioctl(faults, 0xC020AA00, bytearray(struct.pack("=QQQQ", place, mmap.PAGESIZE, 1, 0)))
libc.mlock(ctypes.c_void_p(place), ctypes.c_size_t(mmap.PAGESIZE))
'
"""
_WAIT_NO_MORE = "if systemctl is-active --quiet stuck-process; then systemctl stop stuck-process; fi"

# Children that have ended, of a parent that does not ask how.
_LEAVE_ZOMBIES = """
systemctl is-active --quiet zombies || systemd-run --quiet --unit=zombies --collect \\
    python3 -c 'import os, signal
for _ in range(3):
    if os.fork() == 0:
        os._exit(0)
signal.pause()
'
"""
_COLLECT_ZOMBIES = "if systemctl is-active --quiet zombies; then systemctl stop zombies; fi"

FAULTS = (
    # As of a supply whose cable is out.
    covering(
        "power-supply-failed",
        "the node's BMC reports a power supply without input, until the node reboots",
        place=IPMITOOL,
        content=f"sed 's/^PS2 .*detected$/&, Power Supply AC lost/' {IPMITOOL}",
        caught_by=("power-supplies",),
    ),
    covering(
        "fan-failed",
        "the node's BMC reports a fan that stands still, until the node reboots",
        place=IPMITOOL,
        content=f"sed 's/^FAN2 .*/FAN2             | 31h | cr  | 29.2 | 0 RPM/' {IPMITOOL}",
        caught_by=("bmc-sensors",),
    ),
    covering(
        "bmc-event",
        "the node's BMC has logged an uncorrectable memory error, until the node reboots",
        place=IPMITOOL,
        content=f"""sed "s@echo 'SEL has no entries'@date -u +'1 | %m/%d/%Y | %T | {_ECC}'@" {IPMITOOL}""",
        caught_by=("bmc-events",),
    ),
    # As where a file server does not answer.
    scripted(
        "process-stuck",
        "a process of the node is in uninterruptible sleep, until the node reboots",
        inject=_WAIT_FOREVER,
        clear=_WAIT_NO_MORE,
        caught_by=("stuck-processes",),
    ),
    # As of a container without an init of its own.
    replace(
        scripted(
            "zombies",
            "three processes of the node have ended, and their parent does not collect them",
            inject=_LEAVE_ZOMBIES,
            clear=_COLLECT_ZOMBIES,
            caught_by=("stuck-processes",),
        ),
        verdict="warning",
    ),
    # As after a machine check.
    scripted(
        "kernel-crashed",
        "the kernel has left the record of a panic, until the node reboots",
        inject=_CRASH,
        clear=_NO_CRASH,
        caught_by=("crash-records",),
    ),
    # As by an operating system's image without the daemon.
    replace(
        scripted(
            "persistence-off",
            "nvidia-persistenced is stopped and persistence mode off, until the node reboots",
            inject="systemctl stop nvidia-persistenced.service",
            clear="systemctl start nvidia-persistenced.service",
            caught_by=("gpu-persistence",),
        ),
        verdict="warning",
    ),
    scripted(
        "docker-stopped",
        "Docker is stopped, until the node reboots",
        inject="systemctl stop docker.socket docker.service",
        clear="systemctl start docker.socket docker.service",
        caught_by=("all-reduce",),
    ),
    scripted(
        "disk-full",
        f"{SMALL_DISK} is on a full file system, until the node reboots",
        inject=_FILL_DISK,
        clear=_FREE_DISK,
        caught_by=("disk-space", "all-reduce"),
    ),
    # The kernel does so after errors of a disk.
    scripted(
        "disk-read-only",
        f"{READ_ONLY} is on a file system that has become read-only, until the node reboots",
        inject=f"mount --bind {READ_ONLY} {READ_ONLY}\nmount -o remount,bind,ro {READ_ONLY}\n",
        clear=f"if findmnt --mountpoint {READ_ONLY} > /dev/null; then umount --lazy {READ_ONLY}; fi",
        caught_by=("disk-space",),
    ),
    scripted(
        "inodes-full",
        f"{FEW_INODES} is on a file system without free inodes, until the node reboots",
        inject=_USE_INODES,
        clear=_FREE_INODES,
        caught_by=("disk-space",),
    ),
    # As Docker gives a container, where NCCL and data loaders need more.
    scripted(
        "shm-small",
        f"{SHARED_MEMORY} has 64m only, until the node reboots",
        inject=_SHRINK,
        clear=_GROW,
        caught_by=("shared-memory",),
    ),
    # As after a boot before its server was there.
    scripted(
        "mount-gone",
        f"{SCRATCH}, which the settings declare, is not mounted, until the node reboots",
        inject=f"mkdir -p {_ASIDE}\nmount --bind {SCRATCH} {_ASIDE}\numount {SCRATCH}\n",
        clear=_MOUNT_AGAIN,
        caught_by=("mounts",),
    ),
    # As one that its server exports read-only.
    scripted(
        "mount-read-only",
        f"{SCRATCH}, which the settings declare, is mounted read-only, until the node reboots",
        inject=f"mount -o remount,bind,ro {SCRATCH}",
        clear=f"if findmnt --mountpoint {SCRATCH} > /dev/null; then mount -o remount,bind,rw {SCRATCH}; fi",
        caught_by=("mounts",),
    ),
    # As one that was moved, or is behind a new firewall.
    scripted(
        "dns-broken",
        "the node's name server does not answer, until the node reboots",
        inject=_OTHER_DNS,
        clear=_OLD_DNS,
        caught_by=("name-service",),
    ),
    # As by a udev rule or the driver's NVreg_DeviceFileMode.
    scripted(
        "device-files-closed",
        "only root may open the GPUs' device files, until the node reboots",
        inject=_CLOSE_DEVICES,
        clear=_OPEN_DEVICES,
        caught_by=("container-user",),
    ),
    # As after an upgrade without a reboot.
    scripted(
        "driver-library-mismatch",
        f"the loaded driver is {LOADED_DRIVER}, unlike its library: nvidia-smi fails, until the node reboots",
        inject=_LOAD_OTHER,
        clear=f"if [ -e {KEPT}/module ]; then mv {KEPT}/module {_MODULE}; clusterlab-hardware refresh; fi",
        caught_by=("gpu-driver",),
    ),
    # As where a GPU's firmware hangs.
    covering(
        "driver-hung",
        "nvidia-smi does not answer, until the node reboots",
        place="/usr/bin/nvidia-smi",
        content="echo '#!/bin/sh'\necho 'exec sleep 600'",
        caught_by=("gpu-driver",),
    ),
    # Switched off in earnest, they would be for the whole machine.
    covering(
        "cpu-offline",
        "only the first CPU of the node is online, until it reboots",
        place="/sys/devices/system/cpu/online",
        content="echo 0",
        caught_by=("numa",),
    ),
    # As modules that failed their test when the machine started.
    covering(
        "memory-missing",
        "half of the node's memory is not there, until it reboots",
        place="/proc/meminfo",
        content="awk '/^Mem(Total|Free|Available):/ { $2 = int($2 / 2) } { print }' /proc/meminfo",
        caught_by=("memory",),
    ),
    # Written there, it would be the setting of the whole machine. Any choice is replaced by another.
    covering(
        "huge-pages-skew",
        "transparent huge pages are set otherwise than on the other nodes, until the node reboots",
        place=_HUGE_PAGES,
        content=f"""case $(cat {_HUGE_PAGES}) in
*'[never]'*) echo '[always] madvise never' ;;
*) echo 'always madvise [never]' ;;
esac""",
        caught_by=("huge-pages",),
    ),
    # The kernel is the machine's own and cannot be another: the release that the node names can.
    covering(
        "os-skew",
        f"the node says that it runs {OTHER_SYSTEM}, until it reboots",
        place=_OS_RELEASE,
        content=f"sed 's|^PRETTY_NAME=.*|PRETTY_NAME=\"{OTHER_SYSTEM}\"|' {_OS_RELEASE}",
        caught_by=("os-alike",),
    ),
)
