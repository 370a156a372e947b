"""Whether versions fit together: rows that each say what requires what, searched exhaustively. Pure.

A problem is a finite domain for each variable and a list of rows. What `solve` returns satisfies every row;
if it returns nothing, no assignment does, and `minimal_conflict` has the rows that prove it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from clusterctl.cluster.compatibility import at_least, version

NONE = "none"
Domains = Mapping[str, tuple[str, ...]]
Clause = tuple[str, str]
OPERATORS = (">=", "<", "not", "as", "in")
RELATIONS = ("as", "in")
CAPABILITY = re.compile(r"([0-9]+)\.([0-9]+)(\+PTX)?")


@dataclass(frozen=True)
class CompatibilityRow:
    """If all of ``when`` holds, all of ``needs`` must. Both map a variable to a condition (see `holds`).

    ``source`` is where it is known from. ``origin`` is the setting, image or node that declares it, empty for
    a row of the compatibility data.
    """

    id: str
    when: tuple[tuple[str, str], ...]
    needs: tuple[tuple[str, str], ...]
    reason: str
    source: str
    origin: str = ""

    @cached_property
    def variables(self) -> frozenset[str]:
        """Every variable that the row mentions."""
        conditions = (*self.when, *self.needs)
        related = {name for _, text in conditions for name in _related(text)}
        return frozenset(name for name, _ in conditions) | related

    def is_satisfied(self, assignment: Mapping[str, str]) -> bool:
        """Whether an assignment of all its variables satisfies the row."""
        return not all(holds(text, assignment[name], assignment) for name, text in self.when) or all(
            holds(text, assignment[name], assignment) for name, text in self.needs
        )


def holds(condition: str, value: str, assignment: Mapping[str, str]) -> bool:
    """Whether a value meets a condition.

    Alternatives stand between ``|``, clauses of one between commas. A clause is a bound (``>= 12.8``), a
    value (``none``), leading numbers (``535.*``), ``not VALUE``, ``as VARIABLE`` (the same version) or
    ``in VARIABLE`` (a compute capability that code built for those of the variable runs on).
    """
    return any(
        all(_clause_holds(operator, operand, value, assignment) for operator, operand in clauses)
        for clauses in _parse(condition)
    )


def is_value(condition: str) -> bool:
    """Whether a condition is a value alone."""
    alternatives = _parse(condition)
    return len(alternatives) == len(alternatives[0]) == 1 and alternatives[0][0] == ("", condition)


def _clause_holds(operator: str, operand: str, value: str, assignment: Mapping[str, str]) -> bool:
    numbers = version(value)
    if operator == "not":
        met = value != operand
    elif operator == "as":
        met = value == assignment[operand]
    elif operator == "in":
        met = _runs(assignment[operand], value)
    elif operator == ">=":
        met = at_least(value, operand)
    elif operator == "<":
        met = bool(numbers) and numbers < version(operand)
    elif operand.endswith(".*"):
        prefix = version(operand.removesuffix(".*"))
        met = numbers[: len(prefix)] == prefix
    else:
        met = value == operand
    return met


def _runs(built_for: str, capability: str) -> bool:
    """Whether code for ``8.0 9.0+PTX`` runs on a GPU: the same major version, or by its PTX on newer ones."""
    gpu = version(capability)
    built = CAPABILITY.findall(built_for)
    return any(
        (gpu[:1] == (int(major),) and gpu[1:2] >= (int(minor),))
        or (ptx != "" and gpu >= (int(major), int(minor)))
        for major, minor, ptx in built
    )


@cache
def _parse(condition: str) -> tuple[tuple[Clause, ...], ...]:
    return tuple(
        tuple(_clause(word.strip()) for word in alternative.split(","))
        for alternative in condition.split("|")
    )


def _clause(text: str) -> Clause:
    operator, _, operand = text.partition(" ")
    return (operator, operand) if operator in OPERATORS else ("", text)


def _related(condition: str) -> Iterator[str]:
    for clauses in _parse(condition):
        yield from (operand for operator, operand in clauses if operator in RELATIONS)


def solve(domains: Domains, rows: Iterable[CompatibilityRow]) -> dict[str, str] | None:
    """An assignment that satisfies every row; None if there is none.

    Every variable of a row must have a domain, and no domain may be empty.
    """
    narrowed, undecided = _narrow(domains, rows)
    if narrowed is None:
        return None
    if not undecided:
        return {name: values[0] for name, values in narrowed.items()}
    open_variables = {name for row in undecided for name in row.variables if len(narrowed[name]) > 1}
    variable = min(sorted(open_variables), key=lambda name: len(narrowed[name]))
    for value in narrowed[variable]:
        found = solve({**narrowed, variable: (value,)}, undecided)
        if found is not None:
            return found
    return None


def solve_preferred(domains: Domains, rows: Sequence[CompatibilityRow]) -> dict[str, str] | None:
    """The solution whose values come first in their domains, the first variable being the most important."""
    found = solve(domains, rows)
    if found is None:
        return None
    chosen = dict(domains)
    for name, values in domains.items():
        for value in values:
            better = found if value == found[name] else solve({**chosen, name: (value,)}, rows)
            if better is not None:
                found, chosen[name] = better, (value,)
                break
    return found


def decided(
    domains: Domains, rows: Sequence[CompatibilityRow], solution: Mapping[str, str]
) -> dict[str, str]:
    """The variables that have the same value in every solution, as in this one."""
    return {
        name: value
        for name, value in solution.items()
        if not (others := tuple(one for one in domains[name] if one != value))
        or solve({**domains, name: others}, rows) is None
    }


def possible_values(domains: Domains, rows: Sequence[CompatibilityRow], name: str) -> tuple[str, ...]:
    """The values that a variable has in some solution."""
    return tuple(value for value in domains[name] if solve({**domains, name: (value,)}, rows) is not None)


def minimal_conflict(domains: Domains, rows: Sequence[CompatibilityRow]) -> tuple[CompatibilityRow, ...]:
    """Of unsatisfiable rows, some that are already unsatisfiable and none of which can be omitted."""
    # Rows of the data first: with few of them left, variables that nothing declares drop out of the search.
    kept = sorted(rows, key=lambda row: row.origin != "")
    for row in tuple(kept):
        without = [other for other in kept if other is not row]
        if solve(domains, without) is None:
            kept = without
    return tuple(kept)


def conflicts(domains: Domains, rows: Sequence[CompatibilityRow]) -> list[tuple[CompatibilityRow, ...]]:
    """Minimal conflicts until the rest can be satisfied; none if all rows can be."""
    found: list[tuple[CompatibilityRow, ...]] = []
    rest = list(rows)
    while solve(domains, rest) is None:
        conflict = minimal_conflict(domains, rest)
        found.append(conflict)
        dropped = [row for row in conflict if not row.origin] or list(conflict)
        rest = [row for row in rest if row not in dropped]
    return found


def _narrow(
    domains: Domains, rows: Iterable[CompatibilityRow]
) -> tuple[dict[str, tuple[str, ...]] | None, list[CompatibilityRow]]:
    """The domains without values that a row excludes in which nothing else is undecided, and the other rows.

    The domains are None if one of them would be empty.
    """
    narrowed, undecided = dict(domains), list(rows)
    while True:
        pending: list[CompatibilityRow] = []
        for row in undecided:
            free = [name for name in row.variables if len(narrowed[name]) > 1]
            if len(free) > 1:
                pending.append(row)
                continue
            name = free[0] if free else next(iter(row.variables))
            others = {other: narrowed[other][0] for other in row.variables}
            left = tuple(v for v in narrowed[name] if row.is_satisfied({**others, name: v}))
            if not left:
                return None, []
            narrowed[name] = left
        if len(pending) == len(undecided):
            return narrowed, pending
        undecided = pending
