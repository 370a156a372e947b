"""What the training and inference programs make of a framework's work: on a small one of numpy, two ranks."""

from __future__ import annotations

import contextlib
import re
import sys
from types import SimpleNamespace

import numpy
import pytest
from tests.support.threaded_ranks import World, run_ranks, tensor

from clustercheck.jobs import inference, models, training

CHOSEN = {
    "precisions": ["fp32", "bf16", "amp_fp16"],
    "steps": 6,
    "warmup": 2,
    "models": {"resnet50": {"batch": 4, "side": 3, "sizes": {"classes": 5}}},
}
STEP_S = 0.001  # as the World times


class Linear:
    """A model: one matrix, from pixels to classes. ``wrapped`` it averages its gradients over the ranks."""

    def __init__(self, seed):
        self.weights = tensor(numpy.random.default_rng(seed).standard_normal((27, 5)) / 9)
        self.wrapped = None

    def __call__(self, inputs):
        self.inputs = numpy.asarray(inputs).reshape(len(inputs), -1)
        return self.inputs @ self.weights

    def eval(self):
        """Nothing of it differs in use."""


class Loss:
    """A value that knows its gradient."""

    def __init__(self, value, model, gradient):
        self._value, self._model, self._gradient = value, model, gradient

    def __mul__(self, scale):
        return Loss(self._value * scale, self._model, self._gradient * scale)

    def backward(self):
        wrapped = self._model.wrapped
        self._model.gradient = wrapped.mean(self._gradient) if wrapped else self._gradient

    def detach(self):
        return self._value

    def __float__(self):
        return float(self._value)


class Framework:
    """Softmax, its gradient, and steps down it. ``off`` of precision and call is added to losses."""

    precisions = ("fp32", "bf16")

    def __init__(self, off=lambda precision, call: 0.0):
        self._off, self._calls, self._precision, self.model = off, 0, "fp32", None

    tensor = staticmethod(numpy.asarray)

    def host(self, value):
        return float(value) if isinstance(value, Loss) else numpy.asarray(value)

    def no_grad(self):
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def computing(self, precision):
        self._precision = precision
        yield

    def flat(self, model):
        return model.weights.reshape(-1)

    def forget_peak_memory(self):
        """A processor's is not counted."""

    def peak_memory_bytes(self):
        return None

    def cross_entropy(self, outputs, labels):
        self._calls += 1
        parts = numpy.exp(outputs - outputs.max(axis=1, keepdims=True))
        parts /= parts.sum(axis=1, keepdims=True)
        value = -numpy.log(parts[range(len(labels)), labels]).mean() + self._off(self._precision, self._calls)
        parts[range(len(labels)), labels] -= 1
        return Loss(value, self.model, self.model.inputs.T @ parts / len(labels))

    def stepper(self, model, rate):
        def apply():
            model.weights -= 20 * rate * model.gradient

        return apply


@pytest.fixture(autouse=True)
def small_models(monkeypatch):
    def build(nn, name, sizes, seed):
        nn.model = Linear(seed)
        return nn.model

    monkeypatch.setattr(models, "build", build)


class Exchanging(World):
    def data_parallel(self, model):
        model.wrapped = self
        return model


def trained(world_class=Exchanging, off=lambda precision, call: 0.0, **changes):
    def job(world):
        ours = world_class(world.rank, world._meeting, world.size)
        return training.run(ours, Framework(off), {"seed": 1, "on_cpu": {**CHOSEN, **changes}})

    return run_ranks(job, 2)


def test_a_correct_training_passes_with_its_figures_and_names_omitted_cases():
    found = trained()
    for verdict in found:
        assert (verdict["ok"], verdict["because"]) == (True, "")
        assert verdict["not_done"] == {"resnet50 amp_fp16": "numpy on cpu does not support amp_fp16"}
        for case in verdict["cases"]:
            assert len(case["losses"]) == 8
            assert case["losses"] == sorted(case["losses"], reverse=True)
            assert (case["step_s"], case["samples_per_s"]) == (STEP_S, pytest.approx(4 / STEP_S))
            assert (case["repeat_difference"], case["fp32_difference"]) == (0.0, 0.0)
            assert case["initial_sha256"] != case["parameters_sha256"]
    ours, theirs = ([case["parameters_sha256"] for case in verdict["cases"]] for verdict in found)
    assert ours == theirs
    assert found[0]["cases"][0]["losses"] != found[1]["cases"][0]["losses"]  # each has its own data


def test_a_scaled_loss_is_the_same_training(monkeypatch):
    monkeypatch.setattr(Framework, "precisions", ("fp32", "amp_fp16"))
    exact, scaled = trained(precisions=["fp32", "amp_fp16"])[0]["cases"]
    assert scaled["losses"] == pytest.approx(exact["losses"], rel=1e-6)


def test_gradients_that_are_not_exchanged_are_found():
    class Forgets(World):
        def data_parallel(self, model):
            return model

    for verdict in trained(Forgets, precisions=["fp32"]):
        assert verdict["ok"] is False
        assert "resnet50 in fp32: the ranks' parameters differ" in verdict["because"]


@pytest.mark.parametrize(
    ("off", "words"),
    [
        (lambda precision, call: 0.5 * (precision == "bf16"), r"in bf16: the first loss .* from float32's"),
        (lambda precision, call: 0.5 * (call == 1), r"in fp32: the first loss .* from a second computation"),
        (lambda precision, call: float("nan"), "in fp32: the loss is not a number"),
    ],
    ids=["far from float32", "different twice", "not a number"],
)
def test_a_loss_that_is_wrong_is_found(off, words):
    for verdict in trained(off=off):
        assert verdict["ok"] is False
        assert re.search(f"resnet50 {words}", verdict["because"])


REQUESTS = {
    "requests": 20,
    "warmup": 2,
    "models": {n: {"shape": [1, 3, 3, 3]} for n in ("ocr_det", "ocr_rec")},
}


def asked(monkeypatch, answers=lambda name: 1.0):
    """Inference of both models by two ranks: their verdicts, and whose model was called, call by call."""
    calls = []

    class Counted(Linear):
        def __init__(self, name, seed):
            super().__init__(seed)
            self._name = name

        def __call__(self, inputs):
            calls.append(self._name)
            return super().__call__(inputs) * answers(self._name)

    monkeypatch.setattr(models, "build", lambda nn, name, sizes, seed: Counted(name, seed))
    paddle = SimpleNamespace(PaddleFramework=lambda world: Framework())
    monkeypatch.setitem(sys.modules, "frameworks.paddle", paddle)
    return run_ranks(lambda world: inference.run(world, {"seed": 1, "on_cpu": REQUESTS}), 2), calls


def test_inference_is_timed_by_request_and_answers_alike_everywhere(monkeypatch):
    (one, other), calls = asked(monkeypatch)
    assert one == other
    assert (one["ok"], one["because"]) == (True, "")
    for case in one["cases"]:
        assert (case["p50_s"], case["p99_s"], case["max_s"]) == (STEP_S, STEP_S, STEP_S)
        assert case["output_std"] > 0
        assert calls.count(case["model"]) == 2 * (20 + 2)


def test_an_answer_that_is_no_number_is_found(monkeypatch):
    for verdict in asked(monkeypatch, lambda name: float("nan") if name == "ocr_rec" else 1.0)[0]:
        assert (verdict["ok"], verdict["because"]) == (False, "ocr_rec returned values that are not finite")
        assert verdict["cases"][1]["output_mean"] is None
