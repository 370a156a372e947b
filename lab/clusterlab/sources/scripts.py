"""Maintainer scripts, as debhelper and dkms would write them."""

from __future__ import annotations


def service(unit: str, *, start: bool) -> dict[str, str]:
    """Scripts of a package with a systemd unit; start: enabled and started at installation."""
    begin = (
        f"""    deb-systemd-helper unmask {unit} >/dev/null || true
    if deb-systemd-helper --quiet was-enabled {unit}; then
        deb-systemd-helper enable {unit} >/dev/null || true
    fi
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        if [ -n "$2" ]; then action=restart; else action=start; fi
        deb-systemd-invoke $action {unit} >/dev/null || true
    fi
"""
        if start
        else """    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
    fi
"""
    )
    return {
        "postinst": f'#!/bin/sh\nset -e\nif [ "$1" = configure ]; then\n{begin}fi\n',
        "prerm": (
            '#!/bin/sh\nset -e\nif [ "$1" = remove ] && [ -d /run/systemd/system ]; then\n'
            f"    deb-systemd-invoke stop {unit} >/dev/null || true\nfi\n"
        ),
        "postrm": (
            '#!/bin/sh\nset -e\nif [ "$1" = remove ] && [ -d /run/systemd/system ]; then\n'
            "    systemctl --system daemon-reload >/dev/null || true\nfi\n"
            'if [ "$1" = purge ] && [ -x /usr/bin/deb-systemd-helper ]; then\n'
            f"    deb-systemd-helper purge {unit} >/dev/null || true\n"
            f"    deb-systemd-helper unmask {unit} >/dev/null || true\nfi\n"
        ),
    }


def dkms(module: str, version: str) -> dict[str, str]:
    """Scripts that build a DKMS module for the running and the newest kernel that has headers."""
    return {
        "postinst": f"""#!/bin/sh
set -e
if [ "$1" = configure ]; then
    dkms add -m {module} -v {version}
    newest=$(ls /lib/modules 2>/dev/null | sort -V | tail -n 1)
    for kernel in $(printf '%s\\n' "$(uname -r)" "$newest" | sort -u); do
        if [ -e "/lib/modules/$kernel/build" ]; then
            dkms install -m {module} -v {version} -k "$kernel"
        else
            echo "Module build for kernel $kernel was skipped since the"
            echo "kernel headers for this kernel do not seem to be installed."
        fi
    done
fi
""",
        "prerm": f"""#!/bin/sh
set -e
dkms remove -m {module} -v {version} --all || true
""",
    }


KERNEL_HEADERS = """#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /etc/kernel/header_postinst.d ]; then
    run-parts --arg=@KERNEL@ /etc/kernel/header_postinst.d
fi
"""

DKMS_HEADER_HOOK = """#!/bin/sh
# Simulated by clusterlab: build modules for a kernel whose headers have just come.
exec dkms autoinstall -k "$1"
"""
