"""What a validation measured counts, for the same GPUs only."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.resources import files as resources

import pytest
import yaml

from clustercheck.expect import profiles
from clustercheck.jobs import models
from clustercheck.model import Coverage, Figure, Judged, JudgedPart, Part, Result, Scope, Subject, Verdict
from clustercheck.result.document import Document
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.report import files
from clusterctl.runs.store import RunStore
from clusterctl.sizing import measured

BEYOND = JudgedPart(Part.CEILING, 900, "s", "m", 0, Verdict.NOT_RUN, -0.1, "beyond physics")
A100 = profiles.load("hgx-a100-80gb")
L40S = profiles.load("l40s-48gb")
NODES = {name: {"gpus": [{"model": "NVIDIA A100-SXM4-80GB"}] * 8} for name in ("gpu01", "gpu02")}


def figure(metric="bert_base_bf16_per_rank", value=1000.0, parts=(), **conditions):
    stated = {"nodes": ["gpu01", "gpu02"], "ranks": 16, "batch": 32, "nccl": True, **conditions}
    return Judged(Figure(metric, value, "sequences/s", "m", conditions=stated), parts)


def document(*figures, check="training-throughput", nodes=NODES, simulated=False):
    result = Result(check, Scope.GROUP, Subject(), Verdict.PASS, figures=figures)
    return Document(
        run="20261120-validate",
        started="2026-11-20T19:57:00Z",
        finished="2026-11-20T19:58:12Z",
        cluster="mysite",
        suite="standard",
        coverage=Coverage(1, 1, 0, 0, 0),
        culprits=(),
        results=(result,),
        environment={"nodes": nodes},
        simulated=simulated,
    )


def part(found):
    return None if found is None else found.part


def test_the_part_of_the_peak_follows_from_the_layers_of_bert():
    found = measured.in_document(document(figure()), A100, "bf16")
    # 6 x 85 million parameters, and 12 x 12 layers x 768 x 128 of attention, a token; 128 tokens.
    work = 128 * (6 * 84_934_656 + 12 * 12 * 768 * 128)
    assert part(found) == pytest.approx(1000 * work / 312e12)
    assert found.origin == "measured"
    assert "run 20261120-validate" in found.source
    assert "1000 sequences/s" in found.source


def test_each_precision_has_its_own_figure():
    both = document(
        figure(value=500), figure("bert_base_tf32_per_rank", 400), figure("bert_base_amp_fp16_per_rank", 900)
    )
    slow, tf32 = (part(measured.in_document(both, A100, p)) for p in ("bf16", "tf32"))
    assert tf32 / slow == pytest.approx(400 / 500 * 312 / 156)
    assert part(measured.in_document(both, A100, "amp")) == part(measured.in_document(both, A100, "fp16"))
    assert measured.in_document(both, A100, "fp32") is None


@pytest.mark.parametrize(
    "said",
    [
        document(figure(), simulated=True),
        document(figure(nccl=False)),
        document(figure(), check="training-numerics"),
        document(figure(value=7000.0)),  # 1.5 of the peak
        document(figure(value=0.1)),  # less than a ten-thousandth of it
        document(figure("resnet50_bf16_per_rank")),
        document(figure(), nodes={**NODES, "gpu02": {"gpus": [{"model": "NVIDIA L40S"}]}}),
        document(figure(), nodes={"gpu01": NODES["gpu01"]}),
        document(figure(), nodes={**NODES, "gpu02": {"gpus": None}}),
        document(figure(), nodes={**NODES, "gpu02": {"gpus": math.inf}}),
        document(figure(), nodes=None),
        document(figure(nodes=[])),
        document(figure(nodes=["gpu01", ["gpu02"]])),
        document(figure(nodes=None)),
        document(figure(parts=(BEYOND,))),
        document(),
    ],
)
def test_what_does_not_say_it_of_such_gpus_says_nothing(said):
    assert measured.in_document(said, A100, "bf16") is None


def test_other_gpus_are_not_taken_for_these():
    assert measured.in_document(document(figure()), L40S, "bf16") is None


def written(store, result):
    run = store.create("validate", [])
    files.write_result(run, replace(result, run=run.id))
    store.finish(run, 0, {})


def test_the_newest_run_that_can_be_read_counts(tmp_path, monkeypatch):
    site = ClusterDirectory(tmp_path)
    store = RunStore(site)
    assert measured.last_measured(site, A100, "bf16") is None
    for value in (700.0, 1000.0):
        written(store, document(figure(value=value)))
    newest = part(measured.in_document(document(figure()), A100, "bf16"))
    assert part(measured.last_measured(site, A100, "bf16")) == newest
    written(store, replace(document(), suite="quick"))
    damaged = store.create("validate", [])
    damaged.path(files.RESULT).write_text('{"bert_base_bf16_per_rank"', encoding="utf-8")
    store.finish(damaged, 0, {})
    store.create("apply", [])
    loaded = []
    load = files.load
    monkeypatch.setattr(files, "load", lambda run: loaded.append(run.id) or load(run))
    assert part(measured.last_measured(site, A100, "bf16")) == newest
    assert loaded[0] == damaged.id
    assert len(loaded) == 2  # those without the figure are not read


def test_the_sizes_are_those_that_the_jobs_train():
    """BERT-base on GPUs, in every suite and by the defaults of its model."""
    suites = yaml.safe_load((resources("clustercheck") / "running" / "suites.yml").read_text("utf-8"))
    trained = [
        job["arguments"]["on_gpu"]["models"]["bert_base"]
        for suite in suites.values()
        for name, job in suite["jobs"].items()
        if name in ("training_paddle", "training_torch")
    ]
    assert trained
    assert {(one["length"], "sizes" in one) for one in trained} == {(measured.LENGTH, False)}
    defaults = models.bert.__kwdefaults__
    assert (defaults["layers"], defaults["hidden"]) == (measured.LAYERS, measured.HIDDEN)
