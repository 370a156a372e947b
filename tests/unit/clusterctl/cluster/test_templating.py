"""Templates in settings: evaluated in a process of its own, which no template outlives or fills."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from clusterctl.cluster import templating
from clusterctl.cluster.template_process import TemplateFailedError, TemplateProcess
from clusterctl.cluster.templating import Variables
from clusterctl.errors import ClusterctlError

NESTED_LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
CONTEXT = {"groups": {"registry": ["reg01"]}, "hostvars": {"reg01": {"port": 5000}}, "group_names": ["a"]}


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[TemplateProcess]:
    own = TemplateProcess(cpu_limit_s=0)
    monkeypatch.setattr(templating, "PROCESS", own)
    yield own
    own.close()


@pytest.mark.parametrize("bad", ["\0", "\ud800", ["a", {"b": "\udfff"}], {"\0": 1}, "{{ '\\ud800' }}"])
def test_what_no_program_can_be_given_is_refused(bad: object) -> None:
    with pytest.raises(ClusterctlError, match=r"NUL character|surrogate") as caught:
        value(bad)
    assert caught.value.code == "settings.value"


def value(text: object, **others: object) -> object:
    return Variables({"asked": text, **others}, CONTEXT, "gpu01").value("asked")


def refusal(text: object, **others: object) -> str:
    with pytest.raises(ClusterctlError) as caught:
        value(text, **others)
    assert (caught.value.code, caught.value.exit_code) == ("inventory.template", 2)
    return caught.value.what


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ 1 + 1 }}", 2),
        ("{{ other }}", "first second"),
        ("{{ [other, 2.5, none, true] }}", ["first second", 2.5, None, True]),
        ("{{ {'a': other} }}", {"a": "first second"}),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ [1, 2] | map('string') }}", ["1", "2"]),
        ("a {{ other }} b\n", "a first second b\n"),
        ("{{ not_set | default('x') }}", "x"),
        ("{{ groups['registry'] | first }}:{{ hostvars[groups['registry'][0]].port }}", "reg01:5000"),
        ("{{ group_names }}", ["a"]),
        ({"key": ["{{ other }}"]}, {"key": ["first second"]}),
        ({"__ansible_unsafe": "{{ other }}"}, "{{ other }}"),
        ("no template", "no template"),
        ("a comment{# is none #}", "a comment"),
    ],
)
def test_a_template_has_the_value_that_ansible_gives_it(text: object, expected: object) -> None:
    assert value(text, other="{{ first }} second", first="first") == expected


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("{{ not_set }}", "'not_set' is undefined"),
        ("{{ ''.__class__ }}", "unsafe"),
        ("{{ [] | no_such_filter }}", "No filter named"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        ("{% for i in [1] %}" * 30 + "{% endfor %}" * 30, "nested blocks"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "recursion"),
        ("{{ 'x' * 10**10 }}", "too much memory"),
        ("{{ asked }}", "needs itself"),
        ("{{ 1 }}" * 20_000, "more than 65536 characters"),
    ],
)
def test_what_cannot_be_evaluated_is_a_refusal(text: str, because: str) -> None:
    assert because in refusal(text)
    assert value("{{ 1 + 1 }}") == 2


def test_the_variable_that_is_at_fault_is_named(process: TemplateProcess) -> None:
    assert refusal("{{ other }}", other="{{ 1 / 0 }}").startswith("the variable other of gpu01")
    assert value("{{ other }}", other=3) == 3


def test_an_endless_template_ends_by_its_limit_and_is_not_tried_again(process: TemplateProcess) -> None:
    assert value("{{ 1 + 1 }}") == 2, "the process runs"
    assert "takes too long" in refusal("{{ other }}", other=NESTED_LOOPS)
    assert process._process is None, "it has ended with the template"
    assert "takes too long" in refusal(NESTED_LOOPS)
    assert process._process is None, "nothing was started to try it again"
    assert value("{{ 1 + 1 }}") == 2, "others are evaluated by a new process"


def test_an_answer_that_is_too_long_is_not_read(process: TemplateProcess) -> None:
    assert refusal("{{ 'x' * (2 * 10**7) }}").endswith("its value has more than 16777216 bytes")
    assert value("{{ 1 + 1 }}") == 2


@pytest.mark.parametrize("levels", [2, 15, 16])
def test_a_value_that_is_nested_too_deep_is_a_refusal(process: TemplateProcess, levels: int) -> None:
    """Whatever walks through it would not end as an error of the template."""
    names = {f"v{n}": "{{ " + "[" * 61 + f"v{n + 1}" + "]" * 61 + " }}" for n in range(levels)}
    assert "nested" in refusal("{{ v0 }}", **names, **{f"v{levels}": 1})
    assert value("{{ [[1]] }}") == [[1]]


def test_a_process_that_was_killed_is_started_again(process: TemplateProcess) -> None:
    assert value("{{ 1 }}") == 1
    assert process._process is not None
    process._process.kill()
    process._process.wait()
    assert value("{{ 2 }}") == 2


def test_a_process_that_is_ended_meanwhile_is_not_called_a_limit_of_the_template(
    process: TemplateProcess,
) -> None:
    def killed(_name: str) -> object:
        assert process._process is not None
        process._process.kill()
        return 1

    with pytest.raises(TemplateFailedError, match=r"^the process that evaluates it ended by signal 9$"):
        process.evaluate("{{ other }}", killed, {})
    assert process.evaluate("{{ other }}", lambda _name: 2, {}) == 2, "it was not the template's fault"


def test_many_threads_evaluate_without_mixing_their_answers(process: TemplateProcess) -> None:
    found: dict[int, object] = {}

    def evaluate(number: int) -> None:
        found[number] = [value("{{ other }}", other="{{ own }}", own=number) for _ in range(20)]

    threads = [threading.Thread(target=evaluate, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number] * 20 for number in range(8)}


def test_large_values_of_the_inventory_are_sent_once(
    process: TemplateProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda to, data: sent.append(len(data)) or write(to, data))
    big = {"hostvars": {f"gpu{number}": {"pad": "x" * 1000} for number in range(100)}}
    for _ in range(3):
        assert Variables({"a": "{{ hostvars['gpu7'].pad }}"}, big, "gpu01").value("a") == "x" * 1000
    assert 100_000 < sum(sent) < 200_000


def test_no_process_is_started_without_a_template(process: TemplateProcess) -> None:
    assert value({"a": ["plain", 7]}) == {"a": ["plain", 7]}
    assert process._process is None


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ({"__ansible_vault": "x"}, "pa{{S3CR S3CRETB}}"),
        ("{{ groups[site_sec] }}", "S3CRETB"),
        ("{{ groups[site_other] }}", "S3CRETB"),
        ("{{ [1] | map(site_sec) | list }}", "S3CRETB"),
        ("{{ [1] | select(site_all.deep[0]) | list }}", "S3CRETB"),
    ],
)
def test_no_reason_quotes_what_was_decrypted(
    monkeypatch: pytest.MonkeyPatch, text: object, secret: str
) -> None:
    monkeypatch.setattr(templating, "decrypt_value", lambda _: secret)
    vaulted = {"__ansible_vault": "x"}
    others = {"site_sec": vaulted, "site_other": "{{ site_sec }}", "site_all": {"deep": [vaulted]}}
    told = refusal(text, **others)
    assert "S3CRET" not in told
    assert "cannot be evaluated here: (not shown: it uses an encrypted value)" in told


def test_a_value_that_is_made_of_encrypted_ones_is_quoted_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templating, "decrypt_value", lambda _: "S3CRET")
    others = {"site_sec": {"__ansible_vault": "x"}, "site_other": "{{ site_sec }}", "site_plain": "y"}
    made = value("x{{ site_other }}", **others)
    assert (made, repr(made)) == ("xS3CRET", "(an encrypted value)")
    assert repr(value("x{{ site_plain }}", **others)) == "'xy'"
    assert "no attribute 'y'" in refusal("{{ groups[site_plain] }}", **others)


def test_a_header_that_gives_jinja_other_marks_is_refused() -> None:
    assert "other marks" in refusal("#jinja2: variable_start_string:'[['\n[[ ansible_hostname ]]")
