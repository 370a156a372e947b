"""The few templates that must be read before Ansible runs: addresses, counts, the image's reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from clusterctl.cluster.secret_files import decrypt_value
from clusterctl.errors import ClusterctlError

if TYPE_CHECKING:
    import jinja2

DEEPEST = 20
VAULT_KEY = "__ansible_vault"
UNSAFE_KEY = "__ansible_unsafe"
LOOK_UP = "look_up_of_clusterctl"


class HiddenText(str):
    """A decrypted value, which messages do not quote."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(an encrypted value)"


def is_template(value: object) -> bool:
    """True for text that Ansible would evaluate."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


class Variables:
    """The variables of one host, evaluated when asked for, and only those asked for."""

    def __init__(self, values: Mapping[str, Any], context: Mapping[str, Any], owner: str) -> None:
        self._values = values
        self._context = context
        self._owner = owner

    def value(self, name: str, default: Any = None) -> Any:
        """The variable with its templates evaluated; ``default`` where it is not set or is null.

        Raises ClusterctlError (``inventory.template``) where a template cannot be evaluated here.
        """
        raw = self._values.get(name)
        return default if raw is None else self._evaluated(name, raw, 0)

    def _evaluated(self, name: str, raw: Any, depth: int) -> Any:
        if isinstance(raw, Mapping):
            if UNSAFE_KEY in raw:
                return raw[UNSAFE_KEY]
            if VAULT_KEY in raw:
                raw = self._decrypted(name, str(raw[VAULT_KEY]))
                return self._rendered(name, raw, depth) if is_template(raw) else HiddenText(raw)
            return {key: self._evaluated(name, value, depth) for key, value in raw.items()}
        if isinstance(raw, list):
            return [self._evaluated(name, value, depth) for value in raw]
        return self._rendered(name, raw, depth) if is_template(raw) else raw

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

    def _rendered(self, name: str, text: str, depth: int) -> Any:
        import jinja2  # noqa: PLC0415 - 50 ms that most calls do not need

        if depth >= DEEPEST:
            raise self._refusal(name, "is a template that needs itself")

        def look_up(wanted: str) -> Any:
            if wanted in self._context:
                return self._context[wanted]
            raw = self._values.get(wanted)
            return jinja2.Undefined(name=wanted) if raw is None else self._evaluated(wanted, raw, depth + 1)

        try:
            return _evaluate(text, look_up)
        except jinja2.TemplateError as error:
            raise self._refusal(name, f"cannot be evaluated here: {error.message}") from None
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            raise self._refusal(name, f"cannot be evaluated here: {error}") from None

    def _refusal(self, name: str, because: str, hint: str = "") -> ClusterctlError:
        return ClusterctlError(
            f"the variable {name} of {self._owner} {because}",
            code="inventory.template",
            where=f"{self._owner}: {name}",
            hint=hint or "Write its value out; clusterctl evaluates plain Jinja, without Ansible's plugins.",
        )


def _evaluate(text: str, look_up: Callable[[str], Any]) -> Any:
    """A lone ``{{ expression }}`` keeps its type; anything longer is text, as with Ansible."""
    from jinja2 import Undefined, nodes  # noqa: PLC0415

    environment = _environment()
    body = environment.parse(text).body
    if len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1:
        inner = text.strip().removeprefix("{{").removesuffix("}}").strip("-+")
        found = environment.compile_expression(inner, undefined_to_none=False)(**{LOOK_UP: look_up})
        return str(found) if isinstance(found, Undefined) else found  # a strict undefined raises here
    return environment.from_string(text).render({LOOK_UP: look_up})


@cache
def _environment() -> jinja2.Environment:
    from jinja2 import StrictUndefined, Undefined  # noqa: PLC0415
    from jinja2.runtime import Context  # noqa: PLC0415
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415
    from jinja2.utils import missing  # noqa: PLC0415

    class LazyContext(Context):
        """Names are looked up when a template uses them, so that one bad variable harms no other."""

        def resolve_or_missing(self, key: str) -> Any:
            known = super().resolve_or_missing(key)
            if known is not missing or LOOK_UP not in self.parent:
                return known
            found = self.parent[LOOK_UP](key)
            return missing if isinstance(found, Undefined) else found

    class Environment(ImmutableSandboxedEnvironment):
        """A template reaches values, and nothing else."""

        context_class = LazyContext

    return Environment(undefined=StrictUndefined, keep_trailing_newline=True)
