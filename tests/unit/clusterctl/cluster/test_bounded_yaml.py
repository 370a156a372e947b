"""YAML of others as plain values: what JSON has, texts for the rest, no form fails or takes hours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from clusterctl.cluster import bounded_yaml, lock, state_reading
from clusterctl.cluster.bounded_file import UnusableFileError
from clusterctl.errors import ClusterctlError

# Each ends PyYAML's own constructor in another error.
FORMS = (
    '!!int ""', '!!float "_"', '!!bool "x"', '!!timestamp "x"', "1" + ":1" * 5000 + ".5", "2001-99-99", "_",
    '!!binary "a"', "!!omap [1]", "!!set {[1]: }", "{[1]: 2}", "{{a: b}: c}", "!x y", "!!int [1]",
    "!!python/object:os.system x", "{<<: 1}", "{=: 1}", "9999-12-31t23:59:59-23:59", "9" * 5000,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: [1, -2, 0.5, 1.5e+3, true, false, ~]", {"a": [1, -2, 0.5, 1500.0, True, False, None]}),
        ("a: 'true'\nb: \"1\"\nc: !!str 1", {"a": "true", "b": "1", "c": "1"}),
        ("[2026-12-01, 010, 0x10, 1_000, 1:30, yes, .inf, 12.9.1]",
         ["2026-12-01", "010", "0x10", "1_000", "1:30", "yes", ".inf", "12.9.1"]),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("1: one", {1: "one"}),
    ],
)  # fmt: skip
def test_scalars_are_those_of_json_and_texts(text: str, value: Any) -> None:
    assert bounded_yaml.load(text) == value
    # Longer texts are read by another loader.
    assert bounded_yaml.load(f"{text}\n{'# more' * bounded_yaml.MAX_EXPLAINED}") == value


@pytest.mark.parametrize("form", FORMS)
def test_no_form_ends_in_another_error(form: str) -> None:
    for text in (form, f"schema: 1\nx: {form}\n"):
        try:
            bounded_yaml.load(text)
        except yaml.YAMLError as error:
            assert str(error)
        with pytest.raises(ClusterctlError) as refused:
            lock.parse(text, Path("a lock"))
        assert refused.value.code == "images.lock-unreadable"
        with pytest.raises(UnusableFileError):
            state_reading.parse_yaml(text, TypeAdapter(dict[str, dict[str, bool]]))


@pytest.mark.parametrize("form", ["%YAML 1.3\n---\n{}", "%YAML 1.3\n---\n[1]\n{}", "%YAML 1.1\n---\n{}"])
@pytest.mark.parametrize("depth", [30, 1500, 3000])
def test_a_directive_does_not_lift_the_limits(form: str, depth: int) -> None:
    text = form.format("[" * depth + "]" * depth)
    if "1.1" in form and depth < bounded_yaml.MAX_DEPTH:
        assert bounded_yaml.load(text)
        return
    with pytest.raises(yaml.YAMLError):
        bounded_yaml.load(text)


def test_long_numbers_and_keys_of_one_hash_take_no_time() -> None:
    assert bounded_yaml.load("x: 1" + ":1" * 1_000_000)["x"].startswith("1:1:1")
    found = bounded_yaml.load("".join(f"{(2**61 - 1) * number}: 0\n" for number in range(1, 1000)))
    assert sum(isinstance(key, int) for key in found) < 5


@pytest.mark.parametrize("depth", [66, 900, 5000])
def test_aliases_that_are_too_deep_are_refused(depth: int) -> None:
    chain = "".join(f"- &a{number} [*a{number - 1}]\n" for number in range(1, depth))
    with pytest.raises(yaml.YAMLError):
        bounded_yaml.load(f"- &a0 []\n{chain}")
