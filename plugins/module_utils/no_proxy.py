# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Which hosts are reached without the site's proxy. Pure: nodes and clusterctl itself decide by it."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

URL = re.compile(r"https?://[^\s\"',]+")


def is_direct(host: str, no_proxy: str) -> bool:
    """Whether ``no_proxy`` names the host, a domain of it, or a network of its address.

    ``no_proxy`` is a list with commas: `mirror01, .example.org, 10.0.0.0/8`. Names are not resolved.
    """
    for entry in (one.strip().lstrip("*.") for one in no_proxy.split(",")):
        if entry and (host == entry or host.endswith("." + entry) or _in_network(host, entry)):
            return True
    return False


def direct_hosts(text: str, no_proxy: str) -> list[str]:
    """The hosts of the URLs in a text that are reached without the proxy: apt takes names alone for that."""
    hosts = {host for url in URL.findall(text) if (host := _host_of(url))}
    return sorted(host for host in hosts if is_direct(host, no_proxy))


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # a bracket that is not closed
        return ""


def _in_network(host: str, network: str) -> bool:
    try:
        return "/" in network and ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def quoted(url: str) -> str:
    """A proxy's URL as it may stand between quotes in apt's configuration, where none can be written."""
    return re.sub(r'["\s]', lambda found: f"%{ord(found[0]):02X}", url)
