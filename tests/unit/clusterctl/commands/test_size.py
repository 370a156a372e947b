"""`clusterctl size` as a person and as a program call it."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from tests.support.tree import ROOT

from clusterctl import main
from clusterctl.sizing import table
from clusterctl.sizing.shape import presets

SEEDS = ("--parameters", "6.5B")
HOSTS = """
all:
  vars: {hardware_profile: hgx-a100-80gb, hardware_gpu_count: 8}
  children:
    gpu_nodes:
      hosts: {gpu01: {}, gpu02: {}}
"""


@pytest.fixture(autouse=True)
def _nowhere(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")


def size(*words: str) -> int:
    return main.run(["size", *words])


def sized(capsys, *words: str) -> dict:
    size(*words, "--json")
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_what_does_not_fit_says_what_would(capsys):
    assert size(*SEEDS, "--gpu", "l40s-48gb", "--gpus", "1") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "does not train with adam on 1 x l40s-48gb: 16 bytes x 6.5 billion parameters are 104 GB" in said
    assert "training on 4 such GPUs: --gpus 4" in said
    assert "LoRA (rank 16, queries and values; full recomputation): 14.0 GiB, fits one GPU" in said
    assert "inference of 1 sequence: 13.1 GiB, fits one GPU" in said


def test_it_is_said_why_nothing_fits_although_the_memory_would_do(capsys):
    assert size("--model", "bert-base", "--gpu", "l40s", "--gpus", "64", "--global-batch", "1") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "bert-base fits 64 x l40s-48gb, but no parallelism that fits can divide a global batch of 1" in said
    )
    assert "does not train" not in said and "LoRA" not in said
    assert "- a multiple of 4: --global-batch - training on 1 such GPU: --gpus 1" in said
    assert size("--model", "bert-base", "--gpu", "l40s", "--gpus", "64", "--global-batch", "4") == 0
    capsys.readouterr()
    assert size("--parameters", "7B", "--sequence", "1000000", "--gpu", "l40s", "--gpus", "16") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "(104.3 GiB) before activations; 691.2 GiB are usable, but no parallelism divides all of it." in said
    )
    assert size(*SEEDS, "--gpu", "l40s", "--gpus", "1") == 1
    assert "divides" not in capsys.readouterr().out


def test_what_fits_is_chosen_with_days_and_the_source(capsys):
    assert size(*SEEDS, "--gpu", "hgx-a100-80gb", "--gpus", "16") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert 'Choose: sharding 1. In Paddle: group_sharded_parallel(level="os")' in said
    assert "- data parallel: the optimizer states alone need 72.6 GiB" in said
    assert "130 billion tokens take" in said
    assert "40% of the peak (assumed; published: Llama 3 405B" in said


def test_what_days_assume_of_the_network_is_in_the_table_and_for_programs(capsys):
    words = (*SEEDS, "--gpu", "hgx-a100-80gb", "--gpus", "16")
    assumed = sized(capsys, *words)["assumptions"]
    assert len(assumed) == 2 and "Across nodes" in assumed[1]
    size(*words)
    said = " ".join(capsys.readouterr().out.split())
    assert all(sentence in said for sentence in assumed)
    assert sized(capsys, *SEEDS, "--gpu", "l40s", "--gpus", "1")["assumptions"] == []


@pytest.mark.parametrize(
    ("words", "of_adapters"),
    [
        (("--gpu", "hgx-a100-80gb", "--gpus", "16"), False),
        (("--gpu", "l40s", "--gpus", "1"), True),
        (("--gpu", "hgx-a100-80gb", "--gpus", "16", "--global-batch", "1"), False),
    ],
    ids=["fits", "does not fit", "batch not divided"],
)
def test_whose_formulas_they_are_is_below_the_table_and_for_programs(capsys, words, of_adapters):
    sources = sized(capsys, *SEEDS, *words)["sources"]
    assert list(sources) == ["states", "activations", "lora", "operations"]
    assert "1910.02054" in sources["states"] and "2205.05198" in sources["activations"]
    assert "6ND" in sources["operations"] and "2203.15556" in sources["operations"]
    size(*SEEDS, *words)
    said = " ".join(capsys.readouterr().out.split())
    assert all(source in said for of, source in sources.items() if of != "lora")
    assert (sources["lora"] in said) is of_adapters is ("- LoRA (rank 16" in said)


@pytest.mark.parametrize("model", sorted(presets()))
def test_it_fits_80_columns(capsys, model):
    size("--model", model, "--gpu", "h100-sxm5-80gb", "--gpus", "1024")
    size("--list-models")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= table.WIDTH


def test_json_has_all_of_it(capsys):
    found = sized(capsys, *SEEDS, "--gpu", "hgx-a100-80gb", "--gpus", "16")
    assert found["type"] == "size"
    assert found["states_bytes"]["total"] == 104_000_000_000
    assert found["activations_bytes"]["none"] > found["activations_bytes"]["full"]
    assert found["chosen"]["kind"] == "sharding 1"
    for option in found["options"]:
        parts = option["bytes_per_gpu"]
        assert abs(parts.pop("total") - sum(parts.values())) <= 4  # each is rounded
        assert option["fits"] is (option["days"] is not None) is not option["why_not"]
    assert (found["utilisation"]["part"], found["utilisation"]["origin"]) == (0.4, "assumed")


@pytest.mark.parametrize(
    ("words", "keys", "expected"),
    [
        (("--tokens", "1.4T"), ("tokens",), 1.4e12),
        (("--mfu", "0.55"), ("utilisation", "part"), 0.55),
        (("--mfu", "0.55"), ("utilisation", "origin"), "given"),
        (("--sequence", "4096"), ("training", "sequence"), 4096),
        (("--micro-batch", "2"), ("training", "micro_batch"), 2),
        (("--precision", "amp"), ("training", "bytes_per_parameter"), 18),
        (("--optimizer", "sgd"), ("training", "bytes_per_parameter"), 8),
        (("--per-node", "4"), ("per_node",), 4),
        (("--recompute", "full"), ("chosen", "recompute"), "full"),
        (("--sequence-parallel",), ("training", "sequence_parallel"), True),
        (("--layers", "30"), ("model", "layers"), 30),
        (("--vocabulary", "32000"), ("model", "vocabulary"), 32000),
        (("--heads", "64"), ("model", "heads"), 64),
        (("--global-batch", "64"), ("chosen", "micro_batches"), 4),
    ],
)
def test_each_option_counts(capsys, words, keys, expected):
    found = sized(capsys, *SEEDS, "--gpu", "hgx-a100-80gb", "--gpus", "16", *words)
    for key in keys:
        found = found[key]
    assert found == expected


def test_days_shrink_as_utilisation_grows(capsys):
    given = ("--model", "llama-7b", "--gpu", "hgx-a100-80gb", "--gpus", "64", "--tokens", "1T")
    half, whole = (sized(capsys, *given, "--mfu", part)["chosen"]["days"] for part in ("0.5", "1"))
    assert half == pytest.approx(2 * whole)


@pytest.mark.parametrize("text", ["6.5e9", "6500M", "6.5b", " 6.5B "])
def test_numbers_are_read_as_people_write_them(capsys, text):
    found = sized(capsys, "--parameters", text, "--gpu", "l40s", "--gpus", "1")
    assert found["model"]["parameters"] == 6_500_000_000


@pytest.mark.parametrize(
    "words",
    [
        ("--parameters", "much"),
        ("--parameters", "0"),
        ("--parameters", "nan"),
        ("--parameters", "-6.5B"),
        ("--parameters", "1e99"),
        ("--parameters", "11T"),
        ("--parameters", "9" * 400),
        (*SEEDS, "--mfu", "0"),
        (*SEEDS, "--mfu", "1e-320"),
        (*SEEDS, "--mfu", "0.00009"),
        (*SEEDS, "--mfu", "nan"),
        (*SEEDS, "--mfu", "1.1"),
        (*SEEDS, "--gpus", "0"),
        (*SEEDS, "--gpus", "1000000"),
        (*SEEDS, "--sequence", "99999999"),
        (*SEEDS, "--limit", "gpu01"),
        ("--model", "llama-7b", "--layers", "3"),
    ],
)
def test_numbers_are_bounded_and_options_that_contradict_are_refused(capsys, words):
    assert size(*words, "--gpu", "l40s") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Error: " in said.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "size.model"),
        (("--model", "llama"), "size.model"),
        (("--parameters", "65B", "--layers", "32", "--hidden", "4096"), "size.shape"),
        ((*SEEDS,), "size.gpu"),
        ((*SEEDS, "--gpu", "a100"), "size.gpu"),
        ((*SEEDS, "--gpu", "l40s", "--gpus", "12"), "size.gpus"),
        ((*SEEDS, "--gpu", "v100-pcie-16gb", "--precision", "bf16"), "size.precision"),
    ],
)
def test_errors_have_their_code_and_a_hint(capsys, words, code):
    assert size(*words) == 2
    said = capsys.readouterr().err
    assert f"code:  {code}" in said
    assert "hint:  " in said


def test_a_cluster_s_own_gpus_and_what_was_measured_on_them(tmp_path, capsys, monkeypatch):
    (tmp_path / "hosts.yml").write_text(HOSTS, encoding="utf-8")
    asked = []
    monkeypatch.setattr(
        "clusterctl.commands.size.last_measured",
        lambda directory, profile, precision: asked.append((directory.root, profile.name, precision)),
    )
    assert main.run(["-C", str(tmp_path), "size", *SEEDS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gpu"]["profile"], found["gpus"], found["per_node"]) == ("hgx-a100-80gb", 16, 8)
    assert asked == [(tmp_path, "hgx-a100-80gb", "bf16")]


def test_a_kind_of_gpu_needs_no_cluster_but_one_that_is_named_must_be_there(tmp_path, capsys):
    assert size(*SEEDS, "--gpu", "hgx-a100-80gb") == 0
    assert main.run(["-C", str(tmp_path / "none"), "size", *SEEDS, "--gpu", "hgx-a100-80gb"]) == 2
    assert main.run(["-C", str(tmp_path / "none"), "size", *SEEDS]) == 2
    assert capsys.readouterr().err.count("cluster.not-found") == 2


def test_the_public_models_as_json(capsys):
    assert size("--list-models", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == list(presets())
    assert all(line["type"] == "model" and line["source"] for line in lines)


def test_the_page_shows_what_is_printed(capsys):
    page = (ROOT / "docs" / "paddle.md").read_text(encoding="utf-8")
    shown = re.findall(
        r"^```sh\n(clusterctl size .*)\n```\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    assert shown
    for line, expected in shown:
        main.run(shlex.split(line)[1:])
        assert capsys.readouterr().out == expected


def test_the_page_s_figures_of_bert_base_are_those_of_its_commands(capsys):
    page = (ROOT / "docs" / "paddle.md").read_text(encoding="utf-8")
    section = page.partition("### The memory of this BERT-base\n")[2].partition("\n#")[0]
    lines = re.findall(r"^clusterctl (.*)", section.replace("\\\n", ""), re.MULTILINE)
    calls = [shlex.split(line)[1:] for line in lines]

    def totals(optimizer: str) -> tuple[float, ...]:
        found = []
        for words in calls:
            (option,) = sized(capsys, *words, "--optimizer", optimizer)["options"]
            found.append(option["bytes_per_gpu"]["total"])
        return tuple(found)

    def saved(optimizer: str) -> list[str]:
        exact, *others = totals(optimizer)
        return [f"{100 - 100 * other / exact:.0f}" for other in others]

    assert all("momentum" in words for words in calls)
    gib = [f"{total / (1 << 30):.1f}" for total in totals("momentum")]
    amp, again = saved("momentum")
    words = " ".join(section.split())
    assert f"{gib[0]}, {gib[1]} and {gib[2]} GiB: {amp} % less by AMP, {again} % less by recomp" in words
    assert f"`--optimizer adam` it is {' and '.join(saved('adam'))} %, with `sgd` " in words
    assert f"with `sgd` {' and '.join(saved('sgd'))} %" in words
    assert f"[{amp} % for this BERT-base](#the-memory-of-this-bert-base)" in page
