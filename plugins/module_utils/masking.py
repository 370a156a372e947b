# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Passwords in addresses and settings, kept out of what people and logs read."""

from __future__ import annotations

import re
from typing import Any

MASK = "***"
USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s'\"<>]*@")
SECRET_KEY = re.compile(r"token|passw|secret|credential", re.IGNORECASE)


def mask_urls(text: str) -> str:
    """The text with the user and password of every URL in it masked."""
    return USERINFO.sub(rf"\1{MASK}@", text)


def mask_values(value: Any, name: str = "") -> Any:
    """Settings with URLs masked, and values whose name says that they are secret."""
    if isinstance(value, dict):
        return {key: mask_values(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [mask_values(inner, name) for inner in value]
    if isinstance(value, str):
        return MASK if SECRET_KEY.search(name) else mask_urls(value)
    return value
