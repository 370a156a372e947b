"""The resolver against brute force over the whole domain, and the compatibility data it reads."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.modules import container_engine_facts
from hypothesis import given, settings
from hypothesis import strategies as st

from clustercheck.expect import profiles
from clusterctl.cluster import compat_rows
from clusterctl.cluster.compat_rows import VARIABLES, compatibility
from clusterctl.cluster.resolver import (
    CompatibilityRow,
    conflicts,
    decided,
    holds,
    is_value,
    minimal_conflict,
    possible_values,
    solve,
    solve_preferred,
)

NAMES = ("driver", "fabric_manager", "gpu", "cuda", "capabilities")
DOMAINS = {
    "driver": ("580", "535.54.03", "570.26", "595"),
    "fabric_manager": ("none", "580", "570.26", "535.54.03"),
    "gpu": ("7.0", "8.0", "8.6", "9.0"),
    "cuda": ("none", "11.8", "12.9", "13.0"),
    "capabilities": ("none", "8.0", "7.0+PTX", "8.6 9.0"),
}
CONDITIONS = {
    "driver": (">= 570", "< 580", ">= 580.65.06", "535.*", ">= 525.60.13, < 570", "580", "not 595"),
    "fabric_manager": ("none", "not none", "as driver", "none | as driver"),
    "gpu": (">= 8.0", "< 9.0", "in capabilities", "8.0 | 8.6"),
    "cuda": ("none", ">= 12", "< 13", "12.* | 11.*", "not none"),
    "capabilities": ("none", "not none", "8.0"),
}


@st.composite
def conditions(draw, least: int, most: int) -> tuple[tuple[str, str], ...]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=least, max_size=most, unique=True))
    return tuple((name, draw(st.sampled_from(CONDITIONS[name]))) for name in names)


@st.composite
def problems(draw):
    domains = {
        name: tuple(draw(st.lists(st.sampled_from(values), min_size=1, unique=True)))
        for name, values in DOMAINS.items()
    }
    made = draw(st.lists(st.tuples(conditions(0, 2), conditions(1, 2), st.booleans()), max_size=8))
    rows = [
        CompatibilityRow(f"row-{number}", when, needs, "reason", "source", "setting" if declared else "")
        for number, (when, needs, declared) in enumerate(made)
    ]
    return domains, rows


def solutions(domains, rows) -> list[dict[str, str]]:
    """All of them, without any of the resolver's search."""
    every = (dict(zip(domains, values, strict=True)) for values in itertools.product(*domains.values()))
    return [one for one in every if all(row.is_satisfied(one) for row in rows)]


@settings(deadline=None)
@given(problems())
def test_it_says_yes_exactly_if_some_assignment_satisfies_every_row(problem) -> None:
    domains, rows = problem
    oracle, found = solutions(domains, rows), solve(domains, rows)
    assert (found is None) == (not oracle)
    assert found is None or found in oracle


@settings(deadline=None)
@given(problems())
def test_the_preferred_solution_is_the_first_of_all_and_what_is_decided_is_the_same_in_all(problem) -> None:
    domains, rows = problem
    oracle, found = solutions(domains, rows), solve_preferred(domains, rows)
    if not oracle:
        assert found is None
        return
    # The product counts its last variable fastest: the first solution is the first by the order of domains.
    assert found == oracle[0]
    shared = {name: found[name] for name in domains if len({one[name] for one in oracle}) == 1}
    assert decided(domains, rows, found) == shared
    for name in domains:
        assert set(possible_values(domains, rows, name)) == {one[name] for one in oracle}


@settings(deadline=None)
@given(problems())
def test_a_refusal_is_proved_by_rows_of_which_none_can_be_omitted(problem) -> None:
    domains, rows = problem
    if solutions(domains, rows):
        assert conflicts(domains, rows) == []
        return
    proof = minimal_conflict(domains, rows)
    assert solutions(domains, proof) == []
    for row in proof:
        assert solutions(domains, [other for other in proof if other is not row])
    every = conflicts(domains, rows)
    named = {row.id for conflict in every for row in conflict}
    assert solutions(domains, [row for row in rows if row.id not in named])
    for conflict in every:
        assert solutions(domains, conflict) == []


@pytest.mark.parametrize(
    ("condition", "value", "met"),
    [
        (">= 580.65.06", "580", True),  # a branch is as good as its newest version
        (">= 580.65.06", "580.65", False),
        (">= 580", "none", False),
        ("< 13", "none", False),
        ("< 581", "580.95.05", True),
        ("12.9.*", "12.9.1", True),
        ("12.9.*", "12.90", False),
        (">= 9.9, < 10", "9.17", True),
        (">= 9.9, < 10", "10.0", False),
        ("none | >= 9.6", "none", True),
        ("in built", "8.6", True),  # code for 8.0 runs on 8.6
        ("in built", "9.0", False),
        ("in ptx", "9.0", True),  # PTX runs on all that is newer
        ("in ptx", "7.0", False),
    ],
)
def test_conditions(condition: str, value: str, met: bool) -> None:
    assert holds(condition, value, {"built": "8.0", "ptx": "7.5+PTX"}) is met


def test_a_value_is_told_from_a_condition() -> None:
    assert is_value("debian 12")
    assert not any(map(is_value, (">= 12", "not none", "8.0 | 8.6", ">= 1, < 2")))


def test_every_row_has_its_source_and_names_known_variables() -> None:
    data = compatibility()
    assert len({row.id for row in data.rows}) == len(data.rows)
    for row in data.rows:
        assert row.variables <= set(VARIABLES), row.id
        assert len(row.source) > 10, row.id
        assert len(row.reason) > 10, row.id
        assert not row.origin
    for file in compat_rows.DIRECTORY.glob("*.yml"):
        assert yaml.safe_load(file.read_text())


def test_each_row_excludes_something_and_the_data_as_a_whole_allows_every_known_value() -> None:
    data = compatibility()
    # What images bring is in no catalogue: their values are those of the rows.
    domains = {
        **data.domains,
        "capabilities": ("none", "7.0", "9.0+PTX"),
        "os": (*data.domains["os"], "centos 7"),
    }
    domains |= {"cudnn": (*domains["cudnn"], "9.17", "9.5"), "driver": (*domains["driver"], "440.33")}
    domains["cuda"] = (*domains["cuda"], "8.0", "9.2", "10.2")
    domains["kernel"] = (*domains["kernel"], "2.6.32")
    for row in data.rows:
        violated = CompatibilityRow("not", row.needs, (("gpu", "never"),), "", "")
        holding = [CompatibilityRow("when", (), ((name, text),), "", "") for name, text in row.when]
        assert solve(domains, [violated, *holding]) is not None, f"{row.id} excludes nothing"
    for name in ("driver", "gpu", "os", "cuda", "paddle", "docker", "containerd", "toolkit", "kernel"):
        assert set(possible_values(data.domains, data.rows, name)) >= set(data.domains[name]) - {
            "none",
            "18.09",
        }


def test_the_known_facts() -> None:
    """What a person looks up: one line each."""
    data = compatibility()

    def possible(name: str, **known: str) -> set[str]:
        rows = [
            CompatibilityRow(f"known {key}", (), ((key, value),), "", "", "test")
            for key, value in known.items()
        ]
        domains = {
            key: tuple(dict.fromkeys((*values, *([known[key]] if key in known else []))))
            for key, values in data.domains.items()
        }
        return set(possible_values(domains, [*data.rows, *rows], name))

    assert possible("modules", gpu="7.0") == {"proprietary"}
    assert possible("modules", gpu="10.0") == {"open"}
    assert possible("driver", cuda="13.0", image_requires="none") == {"580", "590", "595"}
    assert possible("driver", gpu="7.0") == {"525", "535", "550", "570", "580"}
    assert possible("driver", source="distribution", os="debian 12") == {"535"}
    assert possible("cuda", gpu="10.0") == {"none", "12.8", "12.9", "13.0", "13.1"}
    assert possible("cuda", paddle="cu126") == {"12.6"}
    assert possible("fabric_manager", nvswitch="yes", driver="580") == {"580"}
    assert possible("fabric_manager", nvswitch="yes", source="distribution", os="debian 12") == set()
    assert possible("gpu", capabilities="8.0 9.0") == {"8.0", "8.6", "8.9", "9.0"}
    assert "20.10" not in possible("docker", gpu_mode="cdi", engine="docker")


OLD_KERNELS = {"525", "535", "550", "570", "580", "590", "595"}


@pytest.mark.parametrize(
    ("known", "drivers"),
    [
        ({"kernel": "3.10.0-1160.el7"}, {"525", "535", "550"}),
        ({"kernel": "5.15.0-204-generic"}, OLD_KERNELS),
        ({"kernel": "6.8.0-151-generic"}, OLD_KERNELS - {"525"}),
        ({"kernel": "6.14.0-37-generic"}, OLD_KERNELS - {"525"}),
        ({"kernel": "6.17.0-8-generic"}, {"535", "570", "580", "590", "595"}),
        # Ubuntu's and Debian's own packages are patched for their kernels.
        ({"kernel": "6.17.0-8-generic", "source": "distribution", "os": "ubuntu 24.04"}, OLD_KERNELS),
    ],
)
def test_the_driver_branches_that_build_for_a_kernel(known: dict[str, str], drivers: set[str]) -> None:
    assert values_with("driver", {"source": "cuda", **known}) == drivers


@pytest.mark.parametrize(
    ("driver", "kernel", "modules", "fits"),
    [
        ("525.147.05", "6.5.0-1024", "open", True),
        ("525.147.05", "6.8.0-31", "open", False),
        ("535.247.01", "6.15.3", "open", False),
        ("535.261.03", "6.15.3", "proprietary", True),
        ("550.163.01", "6.14.11", "open", True),
        ("550.163.01", "6.15.3", "open", False),
        ("570.148.08", "6.15.3", "open", False),
        ("570.153.02", "6.15.3", "open", True),
        ("570.153.02", "6.15.3", "proprietary", False),
        ("570.169", "6.15.3", "proprietary", True),
        ("575.51.03", "6.15.3", "open", False),
        ("575.57.08", "6.15.3", "open", True),
        ("575.64.05", "6.17.4", "open", False),
        ("580.65.06", "6.16.12", "open", True),
        ("580.65.06", "6.17.4", "open", False),
        ("580.82.07", "6.17.4", "open", True),
        ("590.44.01", "6.17.4", "proprietary", True),
    ],
)
def test_the_driver_versions_that_build_for_a_kernel(
    driver: str, kernel: str, modules: str, fits: bool
) -> None:
    known = {"source": "cuda", "driver": driver, "kernel": kernel}
    assert (modules in values_with("modules", known)) is fits


@pytest.mark.parametrize(
    ("toolkit", "engine", "fit"),
    [
        ("1.18.1", "docker", {"25.0", "26.1", "27.5", "28.2", "28.5", "29.1", "29.2"}),
        ("1.19.1", "docker", {"26.1", "27.5", "28.2", "28.5", "29.1", "29.2"}),
        ("1.11.0", "docker", set()),
        ("1.18.1", "containerd", {"1.7.15", "1.7.28", "2.0.5", "2.1.4", "2.2.1"}),
        ("1.20.0", "containerd", {"1.7.28", "2.0.5", "2.1.4", "2.2.1"}),
    ],
)
def test_the_engines_that_read_the_cdi_specification_of_a_toolkit(
    toolkit: str, engine: str, fit: set[str]
) -> None:
    known = {"gpu_mode": "cdi", "toolkit": toolkit, "engine": engine}
    assert values_with(engine, known) - {"none"} == fit


def values_with(name: str, known: dict[str, str]) -> set[str]:
    """The values of a variable that the data allows with these of others."""
    data = compatibility()
    rows = [
        CompatibilityRow(f"known {key}", (), ((key, value),), "", "", "test") for key, value in known.items()
    ]
    domains = dict(data.domains)
    for key, value in known.items():
        for each in (key, "fabric_manager") if key == "driver" else (key,):
            domains[each] = tuple(dict.fromkeys((*domains[each], value)))
    return set(possible_values(domains, [*data.rows, *rows], name))


# Left open in a drawn problem: few enough that all their combinations can be tried.
MAX_COMBINATIONS = 3000
EXACT = {
    "driver": ("535.247.01", "550.163.01", "570.153.02", "580.65.06", "580.95.05"),
    "kernel": ("6.1.0-41-amd64", "6.8.0-151-generic", "6.15.3", "6.17.4"),
    "docker": ("20.10.24", "25.0.5", "26.1.5"),
    "containerd": ("1.6.20", "1.7.16", "2.2.1"),
    "toolkit": ("1.17.8", "1.19.1"),
    "cuda": ("11.8", "12.9.1", "13.0"),
    "capabilities": ("7.0", "8.0 9.0+PTX"),
}


@st.composite
def declared_stacks(draw):
    """What a site may declare: a value of most variables, so that the others can be tried out."""
    data = compatibility()
    domains = {name: (*values, *EXACT.get(name, ())) for name, values in data.domains.items()}
    domains["fabric_manager"] = (*domains["fabric_manager"], *EXACT["driver"])
    order = draw(st.permutations(list(domains)))
    open_names, combinations = [], 1
    for name in order:
        if combinations * len(domains[name]) > MAX_COMBINATIONS:
            break
        open_names.append(name)
        combinations *= len(domains[name])
    declared = {
        name: draw(st.sampled_from(values)) for name, values in domains.items() if name not in open_names
    }
    if draw(st.booleans()) and "driver" in declared and "fabric_manager" in declared:
        declared["fabric_manager"] = declared["driver"]
    return domains, declared


@settings(deadline=None, max_examples=60)
@given(declared_stacks())
def test_on_the_data_itself_a_solution_satisfies_every_row_and_a_refusal_has_a_proof(problem) -> None:
    domains, declared = problem
    data = compatibility()
    rows = [
        *data.rows,
        *(CompatibilityRow(name, (), ((name, value),), "", "", "x") for name, value in declared.items()),
    ]
    narrowed = {name: (declared[name],) if name in declared else values for name, values in domains.items()}
    found = solve_preferred(domains, rows)
    if found is not None:
        assert [row.id for row in rows if not row.is_satisfied(found)] == []
        assert found == {name: found[name] for name in domains}
        return
    assert solutions(narrowed, data.rows) == []
    proof = minimal_conflict(domains, rows)
    assert solve(domains, proof) is None
    for row in proof:
        assert solve(domains, [other for other in proof if other is not row]) is not None


def test_rows_and_what_the_roles_decide_by_themselves_agree() -> None:
    """What runs with a node's own Python cannot read this program's data: these facts stand twice."""
    data = compatibility()
    (cdi,) = [row for row in data.rows if row.id == "cdi-docker"]
    for docker in set(data.domains["docker"]) - {"none"}:
        assert holds(dict(cdi.needs)["docker"], docker, {}) == (
            container_engine_facts.cdi_support(docker) != "never"
        )


def test_every_profile_has_a_known_compute_capability() -> None:
    data = compatibility()
    for name in profiles.names():
        for model in profiles.load(name).gpu_models:
            assert data.capability_of(model) in data.domains["gpu"], model


def test_the_table_of_the_documentation_is_that_of_the_data(repository: Path) -> None:
    variants = yaml.safe_load((compat_rows.DIRECTORY / "paddle.yml").read_text())["variants"]
    text = (repository / "docs/paddle.md").read_text()
    for name, built in variants.items():
        cells = (name, built["cuda"], built["cudnn"], built["nccl"] or "")
        assert f"| {' | '.join(cells)} |".replace("  |", " |") in text
