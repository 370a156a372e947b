# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Passwords in addresses and settings, kept out of what people and logs read."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

MASK = "***"
# Quotes may stand in a password as they are (RFC 3986); what follows another address in the same word is
# masked too.
USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s]*@")
# What the controller removes of a text before it shows it: clustercheck.parse.plain_text has the same.
# Sequences as a whole (CSI; OSC, DCS, SOS, PM and APC up to their terminator; two characters), ECMA-48.
_SEQUENCES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,16}[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]{0,16}[0-~]"
)
# Then lone controls (C0 but tab and newline, DEL, C1), line separators, what changes the direction of text
# or is invisible (Unicode's Bidi_Control, zero-width characters, tags), and halves of surrogate pairs.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
SECRET_KEY = re.compile(r"token|passw|secret|credential", re.IGNORECASE)


def mask_urls(text: str) -> str:
    """The text with the user and password of every URL in it masked."""
    return USERINFO.sub(rf"\1{MASK}@", text)


def without_login(url: str) -> str:
    """An address without its user and password, as apt prints it."""
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/]*@", r"\1", url)


def secret_forms(secret: str, user: str = "") -> frozenset[str]:
    """A secret in any form in which it is sent, quoted or shown; with its user also both as they are sent."""
    found = {secret, " ".join(secret.split()), quote(secret), quote(secret, safe=""), quote_plus(secret)}
    found |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    found |= {repr(secret)[1:-1], repr(secret.encode())[2:-1]}
    if user and secret:
        found |= secret_forms(base64.b64encode(f"{user}:{secret}".encode()).decode())
    return frozenset(found - {""})


def forms_in_auth_file(path: str) -> frozenset[str]:
    """The secrets in a Docker client's file of credentials, in all their forms; none where it has none."""
    try:
        auths = json.loads(Path(path).read_text(encoding="utf-8"))["auths"]
        entries = list(auths.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return frozenset()
    found: frozenset[str] = frozenset()
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        sent = str(entry.get("auth") or "")
        try:
            user, _, secret = base64.b64decode(sent).decode().partition(":")
        except ValueError:
            user, secret = "", ""
        found |= secret_forms(sent) | secret_forms(secret, user)
        for name in ("password", "identitytoken", "registrytoken"):
            found |= secret_forms(str(entry.get(name) or ""), str(entry.get("username") or ""))
    return found


def forms_in_url(url: str) -> frozenset[str]:
    """The password in an address, as a proxy's, in all its forms; none where it has none."""
    try:
        parts = urlsplit(url)
        return secret_forms(unquote(parts.password or ""), unquote(parts.username or ""))
    except ValueError:
        return frozenset()


def mask_forms(text: str, forms: Iterable[str], mask: str = MASK) -> str:
    """What a program or server says, without these secrets, the longest first: one may be part of another.

    Masked before and after it is cleaned, which may put together what stood apart.
    """
    ordered = sorted(forms, key=len, reverse=True)
    if not ordered:
        return text
    for form in ordered:
        text = _without(form, text, mask)
    text = _CONTROLS.sub("", _SEQUENCES.sub("", text))
    for form in ordered:
        text = _without(form, text, mask)
    return text


def _without(form: str, text: str, mask: str) -> str:
    """The text with a form masked, also where other white space stands in it: that becomes one space."""
    words = form.split()
    if len(words) < 2:
        return text.replace(form, mask)
    return re.sub(r"\s+".join(map(re.escape, words)), lambda _: mask, text)


def mask_answer(text: str, addresses: Iterable[Any]) -> str:
    """What a server or program says, without the passwords of these addresses; other values do not count."""
    forms = {form for one in addresses if isinstance(one, str) for form in forms_in_url(one)}
    return mask_forms(mask_urls(text), forms)


def mask_values(value: Any, name: str = "") -> Any:
    """Settings with URLs masked, and values whose name says that they are secret."""
    if isinstance(value, dict):
        return {key: mask_values(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [mask_values(inner, name) for inner in value]
    if isinstance(value, str):
        return MASK if SECRET_KEY.search(name) else mask_urls(value)
    return value
