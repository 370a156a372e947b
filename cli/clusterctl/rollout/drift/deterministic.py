"""Which settings have the same value whenever they are evaluated, as far as their own text shows.

A template that reads anything else (a file, the environment, the clock, this run) may have another value one
day, and no digest of settings shows it. Jinja and Ansible know many ways to read: only templates that hold
nothing but known parts count as deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from clusterctl.cluster.templating import UNSAFE_KEY, VAULT_KEY, is_template

if TYPE_CHECKING:
    from jinja2 import nodes

# What Ansible offers to every template and the digest covers; of its own variables those that hosts declare.
COVERED = frozenset(
    {"groups", "group_names", "inventory_hostname", "inventory_hostname_short", "inventory_dir",
     "inventory_file", "loop"}
)  # fmt: skip
CONNECTION = frozenset(
    {"ansible_host", "ansible_port", "ansible_user", "ansible_ssh_host", "ansible_ssh_port"}
)
# Ansible's own, also if a host declares one of that name.
RESERVED = frozenset(
    {"vars", "environment", "play_hosts", "role_name", "role_names", "role_path", "omit", "hostvars"}
)
FILTERS = frozenset(
    {"abs", "b64decode", "b64encode", "basename", "bool", "capitalize", "combine", "count", "d",
     "default", "dict2items", "difference", "dirname", "extract", "first", "flatten", "float",
     "format", "from_json", "from_yaml", "indent", "int", "intersect", "items", "items2dict",
     "join", "last", "length", "list", "lower", "map", "max", "min", "product", "quote",
     "regex_escape", "regex_findall", "regex_replace", "regex_search", "reject", "rejectattr",
     "replace", "reverse", "round", "select", "selectattr", "sort", "split", "string", "sum",
     "ternary", "title", "to_json", "to_yaml", "trim", "union", "unique", "upper", "zip"}
)  # fmt: skip
TESTS = frozenset(
    {"all", "any", "boolean", "contains", "defined", "divisibleby", "eq", "equalto", "even",
     "false", "falsy", "ge", "gt", "in", "integer", "iterable", "le", "lt", "mapping", "match",
     "ne", "none", "number", "odd", "regex", "search", "sequence", "string", "subset", "superset",
     "true", "truthy", "undefined", "version"}
)  # fmt: skip
# Filters whose argument names another filter or test: which are allowed, and the argument's position.
BY_NAME = {"map": (FILTERS, 0), "select": (TESTS, 0), "reject": (TESTS, 0), "selectattr": (TESTS, 1),
          "rejectattr": (TESTS, 1)}  # fmt: skip
METHODS = frozenset(
    {"endswith", "get", "items", "join", "keys", "lower", "replace", "rstrip", "lstrip", "split",
     "startswith", "strip", "upper", "values"}
)  # fmt: skip
# Of Jinja's syntax: values, operators, conditions and loops. No import, no macro, no call of a name.
SYNTAX = frozenset(
    {"Template", "Output", "TemplateData", "Const", "List", "Tuple", "Dict", "Pair", "Keyword",
     "Slice", "CondExpr", "Compare", "Operand", "And", "Or", "Not", "Add", "Sub", "Mul", "Div",
     "FloorDiv", "Mod", "Pow", "Neg", "Pos", "Concat", "If", "For", "Assign"}
)  # fmt: skip


def is_deterministic(value: Any, settings: frozenset[str]) -> bool:
    """Returns whether a setting has the same value each time; ``settings`` are the names of all hosts'."""
    if isinstance(value, Mapping):
        if UNSAFE_KEY in value:
            return True
        # The encrypted text may be a template.
        return VAULT_KEY not in value and all(
            is_deterministic(part, settings) for pair in value.items() for part in pair
        )
    if isinstance(value, list):
        return all(is_deterministic(part, settings) for part in value)
    return not is_template(value) or _is_deterministic_template(value, settings)


@cache
def _is_deterministic_template(text: str, settings: frozenset[str]) -> bool:
    from jinja2 import Environment, TemplateSyntaxError, nodes  # noqa: PLC0415 - 50 ms that many need not pay

    # A first line of that form changes the meaning of the rest.
    if text.startswith("#jinja2:"):
        return False
    try:
        tree = Environment(autoescape=False).parse(text)  # noqa: S701 - nothing is rendered
        own = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
        return not any(map(_is_reserved, own)) and _TemplateChecker(settings | own).is_deterministic(tree)
    except (TemplateSyntaxError, RecursionError):
        return False


def _is_reserved(name: str) -> bool:
    return name in RESERVED or name.startswith("ansible_")


def _short(name: str) -> str:
    return name.removeprefix("ansible.builtin.")


class _TemplateChecker:
    """Walks the syntax tree of one template; ``_names`` are settings, and the template's own variables."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def is_deterministic(self, node: nodes.Node) -> bool:
        """Returns whether all of this part is known to be deterministic."""
        kind = type(node).__name__
        check = getattr(self, f"_{kind.lower()}", None)
        return check(node) if check else kind in SYNTAX and self._parts(node)

    def _parts(self, node: nodes.Node, skip: Sequence[object] = ()) -> bool:
        skipped = {id(part) for part in skip}
        return all(self.is_deterministic(part) for part in node.iter_child_nodes() if id(part) not in skipped)

    def _covers(self, name: object) -> bool:
        """Returns whether the digest of inputs covers the value of a name."""
        if not isinstance(name, str) or (_is_reserved(name) and name not in CONNECTION):
            return False
        return name in COVERED or name in self._names

    def _name(self, node: nodes.Name) -> bool:
        return node.ctx != "load" or self._covers(node.name)

    def _getattr(self, node: nodes.Getattr) -> bool:
        return self._member(node, node.attr)

    def _getitem(self, node: nodes.Getitem) -> bool:
        return self._member(node, getattr(node.arg, "value", None)) and self.is_deterministic(node.arg)

    def _member(self, node: nodes.Getattr | nodes.Getitem, key: object) -> bool:
        """Accepts a setting of another host (``hostvars[HOST].NAME``), and public members of other values."""
        host = node.node
        all_hosts = getattr(host, "node", None) if _is_member(host) else None
        if _is_hostvars(all_hosts):
            return self._covers(key) and self._parts(host, skip=[all_hosts])
        return not str(key).startswith("_") and self.is_deterministic(host)

    def _call(self, node: nodes.Call) -> bool:
        """Accepts a known method of a text, list or mapping."""
        called = node.node
        named = type(called).__name__ == "Getattr" and getattr(called, "attr", "") in METHODS
        return named and not (node.dyn_args or node.dyn_kwargs) and self._parts(node)

    def _test(self, node: nodes.Test) -> bool:
        return _short(node.name) in TESTS and not (node.dyn_args or node.dyn_kwargs) and self._parts(node)

    def _filter(self, node: nodes.Filter) -> bool:
        name, arguments = _short(node.name), list(node.args)
        if name not in FILTERS or node.dyn_args or node.dyn_kwargs:
            return False
        if name in BY_NAME:
            known, place = BY_NAME[name]
            named = [_short(str(getattr(one, "value", ""))) for one in arguments[place : place + 1]]
            if not set(named) <= known:
                return False
            if named == ["extract"]:
                name, arguments = "extract", arguments[1:]
        if name == "extract" and len(arguments) == 2 and _is_hostvars(arguments[0]):
            return self._covers(getattr(arguments[1], "value", None)) and self._parts(
                node, skip=arguments[:1]
            )
        return self._parts(node)


def _is_member(node: nodes.Node) -> bool:
    return type(node).__name__ in ("Getattr", "Getitem")


def _is_hostvars(node: object) -> bool:
    return type(node).__name__ == "Name" and getattr(node, "name", "") == "hostvars"
