"""What ssh and sudo report when a host is not reached, as codes and plain words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clustercheck.parse.plain_text import one_line

UNREACHABLE = "host.unreachable"
KEY_UNKNOWN = "host.key-unknown"
KEY_CHANGED = "host.key-changed"
LOGIN_REFUSED = "host.login-refused"
ADDRESS_UNKNOWN = "host.address-unknown"
SUDO_PASSWORD = "host.sudo-password"  # noqa: S105 - a code
SUDO_REFUSED = "host.sudo-refused"


@dataclass(frozen=True)
class Sign:
    """``pattern`` is what OpenSSH or sudo prints; ``means`` a clause for people, which may name {node} and
    the pattern's group {0}. Without it the program's own last line is quoted."""

    code: str
    pattern: str
    means: str = ""

    def search(self, text: str) -> re.Match[str] | None:
        """Where ``text`` has it."""
        return re.search(self.pattern, text, re.IGNORECASE | re.MULTILINE)


NOT_PINNED = "its host key is not pinned; run: clusterctl hosts scan"
OTHER_KEY = "its host key is not the pinned one; if it was re-imaged: clusterctl hosts replace {node}"
# The first that is found applies.
OF_SSH: tuple[Sign, ...] = (
    Sign(KEY_UNKNOWN, r"No \S+ host key is known", NOT_PINNED),
    Sign(
        KEY_CHANGED,
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed|Offending [^\n]{1,40} key in",
        OTHER_KEY,
    ),
    Sign(
        LOGIN_REFUSED,
        r"Permission denied \(((?:publickey|password|gssapi|keyboard|hostbased)[^)\n]{0,200})\)",
        "SSH refused our login ({0})",
    ),
    Sign(LOGIN_REFUSED, r"Too many authentication failures", "SSH refused our login (too many keys tried)"),
    Sign(ADDRESS_UNKNOWN, r"Could not resolve hostname ([^:\s]+)", "the name {0} cannot be resolved"),
    Sign(
        UNREACHABLE,
        r"timed out during banner",
        "it accepts the connection but does not respond: it hangs",
    ),
    Sign(UNREACHABLE, r"Connection refused", "its SSH port refuses connections"),
    Sign(UNREACHABLE, r"(?:Connection|Operation) timed out", "it does not answer"),
    Sign(UNREACHABLE, r"No route to host", "there is no route to it"),
    Sign(UNREACHABLE, r"Network is unreachable", "its network is unreachable"),
    Sign(
        UNREACHABLE,
        r"Connection (?:reset|closed by)|Broken pipe|port 22: Interrupted",
    ),
)
OF_SUDO: tuple[Sign, ...] = (
    Sign(
        SUDO_PASSWORD,
        r"Missing sudo password|sudo: a password is required|a terminal is required to read the password"
        r"|Incorrect sudo password|Sorry, try again|Timeout [^\n]{1,40} privilege"
        r"|Duplicate become password prompt",
    ),
    Sign(
        SUDO_REFUSED,
        r"is not in the sudoers file|is not allowed to (?:execute|run sudo)|may not run sudo",
    ),
)
# ssh's own words for a connection, or a session over it, that was lost or refused.
LOST = re.compile(
    r"^(mux_client_|Connection (to \S+ )?closed|Shared connection to|client_loop: |Timeout, server "
    r"|kex_exchange_|packet_write_|ssh: |Connection reset by)",
    re.MULTILINE,
)
# sudo's last word; what it prints at the end of its input comes before the reason.
REFUSED_BY_SUDO = re.compile(r"^sudo: (?!no password was provided)(.+)$", re.MULTILINE)

# Codes of the stable states of `hosts scan`; in all other states the host is unreachable.
CODES_OF_STATES = {
    "ok": "",
    "no-shell": "",
    "unpinned": KEY_UNKNOWN,
    "key-changed": KEY_CHANGED,
    "key-revoked": KEY_CHANGED,
    "auth": LOGIN_REFUSED,
    "dns": ADDRESS_UNKNOWN,
}


def patterns_of(code: str) -> str:
    """A regular expression for all that ``code`` is known by."""
    return "|".join(sign.pattern for sign in (*OF_SSH, *OF_SUDO) if sign.code == code)


def code_of_state(state: str) -> str:
    """The code of a state of `hosts scan`; empty if the host was logged in to."""
    return CODES_OF_STATES.get(state, UNREACHABLE)


def code_of(stderr: str) -> str:
    """The code of what ssh reports."""
    return next((sign.code for sign in OF_SSH if sign.search(stderr)), UNREACHABLE)


def reason(stderr: str, node: str) -> str:
    """Why ssh failed, in plain words; its own last line if they are not known."""
    for sign in OF_SSH:
        found = sign.search(stderr)
        if found and sign.means:
            return one_line(sign.means.format(*found.groups(), node=node))
    lines = [line for line in stderr.splitlines() if line.strip()]
    return f"SSH: {one_line(lines[-1])}" if lines else "the SSH connection was lost"
