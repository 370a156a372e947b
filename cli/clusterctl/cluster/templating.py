"""The few templates that must be read before Ansible runs: addresses, counts, the image's reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.parse.plain_text import shortened
from clusterctl.cluster.secret_files import decrypt_value
from clusterctl.cluster.template_process import NOT_SET, PROCESS, TemplateFailedError
from clusterctl.errors import ClusterctlError

DEEPEST = 20
JINJA_HEADER = "#jinja2:"
MAX_TEMPLATE = 65_536
VAULT_KEY = "__ansible_vault"
UNSAFE_KEY = "__ansible_unsafe"
# Facts, and Ansible's own variables; but these the inventory alone sets.
FACT, HOSTVARS = "ansible_", "hostvars"
OF_CONNECTION = frozenset({"ansible_host", "ansible_port", "ansible_user"})


class HiddenText(str):
    """A decrypted value, which messages do not quote."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(an encrypted value)"


def _unusable(value: object) -> str:
    """What no program can be given, in a text or in the texts of lists and mappings; empty if nothing."""
    if isinstance(value, str):
        surrogate = any("\ud800" <= letter <= "\udfff" for letter in value)
        return "a NUL character" if "\0" in value else "half of a character (a surrogate)" * surrogate
    if isinstance(value, Mapping):
        return next(filter(None, map(_unusable, (*value, *value.values()))), "")
    return next(filter(None, map(_unusable, value)), "") if isinstance(value, list) else ""


def is_template(value: object) -> bool:
    """True for text that Ansible would evaluate."""
    return isinstance(value, str) and any(mark in value for mark in ("{{", "{%", "{#"))


class Variables:
    """The variables of one host, evaluated when asked for, and only those asked for."""

    def __init__(self, values: Mapping[str, Any], context: Mapping[str, Any], owner: str) -> None:
        self._values = values
        self._context = context
        self._owner = owner

    def value(self, name: str, default: Any = None) -> Any:
        """The variable with its templates evaluated; ``default`` where it is not set or is null.

        Raises ClusterctlError (``inventory.template``) where a template cannot be evaluated here, and
        (``settings.value``) for a NUL character, which can be given to no program.
        """
        raw = self._values.get(name)
        value = default if raw is None else self._evaluated(name, raw, 0, set())
        if bad := _unusable(value):
            raise ClusterctlError(
                f"{name} of {self._owner} holds {bad}",
                code="settings.value",
                where=f"{self._owner}: {name}",
                hint="Remove it: no program can be given one.",
            )
        return value

    def _evaluated(self, name: str, raw: Any, depth: int, encrypted: set[str]) -> Any:
        """The value; the names of encrypted values that it is made of are added to ``encrypted``."""
        if isinstance(raw, Mapping):
            if UNSAFE_KEY in raw:
                return raw[UNSAFE_KEY]
            if VAULT_KEY in raw:
                encrypted.add(name)
                raw = self._decrypted(name, str(raw[VAULT_KEY]))
                return self._rendered(name, raw, depth, {name}) if is_template(raw) else HiddenText(raw)
            return {key: self._evaluated(name, value, depth, encrypted) for key, value in raw.items()}
        if isinstance(raw, list):
            return [self._evaluated(name, value, depth, encrypted) for value in raw]
        if isinstance(raw, str) and raw.startswith(JINJA_HEADER):
            raise self._refusal(
                name, f"begins with {JINJA_HEADER}, which gives Jinja other marks", "Remove it."
            )
        if not is_template(raw):
            return raw
        used: set[str] = set()
        value = self._rendered(name, raw, depth, used)
        encrypted |= used
        return value

    def _decrypted(self, name: str, encrypted: str) -> str:
        try:
            return decrypt_value(encrypted)
        except ValueError as error:
            raise self._refusal(
                name,
                f"is encrypted, and clusterctl itself needs it: {error}",
                "Set ANSIBLE_VAULT_PASSWORD_FILE to the file with the vault's password, or "
                "ANSIBLE_VAULT_IDENTITY_LIST to NAME@FILE.",
            ) from None

    def _rendered(self, name: str, text: str, depth: int, encrypted: set[str]) -> Any:
        if depth >= DEEPEST:
            raise self._refusal(name, "is a template that needs itself")
        if len(text) > MAX_TEMPLATE:
            raise self._refusal(name, f"is a template of more than {MAX_TEMPLATE} characters")

        def look_up(wanted: str) -> Any:
            return self._named(name, wanted, depth, encrypted)

        try:
            value = PROCESS.evaluate(text, look_up, self._context)
        except TemplateFailedError as error:
            because = "(not shown: it uses an encrypted value)" if encrypted else str(error)
            raise self._refusal(name, f"cannot be evaluated here: {because}") from None
        return HiddenText(value) if encrypted and isinstance(value, str) else value

    def _named(self, name: str, wanted: str, depth: int, encrypted: set[str]) -> Any:
        """What ``wanted`` is in the template of ``name``."""
        raw = self._values.get(wanted)
        return NOT_SET if raw is None else self._evaluated(wanted, raw, depth + 1, encrypted)

    def _refusal(self, name: str, because: str, hint: str = "") -> ClusterctlError:
        return ClusterctlError(
            f"the variable {name} of {self._owner} {because}",
            code="inventory.template",
            where=f"{self._owner}: {name}",
            hint=hint or "Write its value out; clusterctl evaluates plain Jinja, without Ansible's plugins.",
        )


class DeclaredVariables(Variables):
    """The same, where a node must have no say: what Ansible learns from hosts, or while it runs, is refused.

    Also where a filter would give it a default as long as nothing is known of the host.
    """

    def __init__(self, values: Mapping[str, Any], context: Mapping[str, Any], owner: str) -> None:
        super().__init__(values, {key: value for key, value in context.items() if key != HOSTVARS}, owner)

    def _named(self, name: str, wanted: str, depth: int, encrypted: set[str]) -> Any:
        is_fact = wanted.startswith(FACT) and wanted not in OF_CONNECTION
        if is_fact or wanted == HOSTVARS or self._values.get(wanted) is None:
            raise self._refusal(
                name,
                f"uses {shortened(wanted, 80)}, which a host could choose: Ansible knows it only later",
                "It is part of a path on this machine. Write it out, or use only variables that the "
                "inventory sets for this host.",
            )
        return super()._named(name, wanted, depth, encrypted)
