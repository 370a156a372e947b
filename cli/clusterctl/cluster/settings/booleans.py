"""Which words are a boolean setting: those of which Ansible's `bool` filter makes what they say."""

from __future__ import annotations

# Not y, n, t and f: YAML reads them as text, modules as a boolean, and the filter makes False of them.
TRUE = ("yes", "on", "1", "true")
FALSE = ("no", "off", "0", "false")


def is_true(value: object) -> bool:
    """Whether a boolean setting is true, as roles have it."""
    return str(value).lower() in TRUE
