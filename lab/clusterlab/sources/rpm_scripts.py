"""Scriptlets of RPMs, as the macros of systemd and the packages of dkms modules write them."""

from __future__ import annotations


def service(unit: str, *, restart: bool = False) -> dict[str, str]:
    """Scriptlets of a package with a systemd unit, which RHEL's presets leave disabled.

    restart: an upgrade restarts it where it runs.
    """
    again = f"    [ $1 -lt 1 ] || systemctl try-restart {unit} || :\n" if restart else ""
    return {
        "post": "if [ -d /run/systemd/system ]; then\n    systemctl daemon-reload || :\nfi\n",
        "preun": (
            "if [ $1 -eq 0 ] && [ -d /run/systemd/system ]; then\n"
            f"    systemctl --no-reload disable --now {unit} || :\nfi\n"
        ),
        "postun": (f"if [ -d /run/systemd/system ]; then\n    systemctl daemon-reload || :\n{again}fi\n"),
    }


def dkms(module: str, version: str) -> dict[str, str]:
    """Scriptlets that build a module for the running kernel."""
    which = f"-m {module} -v {version} -q"
    return {
        "post": f"dkms add {which} || :\ndkms build {which} || :\ndkms install {which} --force || :\n",
        "preun": f"dkms remove {which} --all || :\n",
    }
