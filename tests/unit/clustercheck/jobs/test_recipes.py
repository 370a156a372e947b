"""What is compared of ways to train: on a small framework of numpy, one rank."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from tests.support.threaded_ranks import run_ranks

from clustercheck.jobs import models, recipes

SIZES = {"classes": 5, "vocabulary": 9}
MODEL = {"recipes": ["fp32", "tf32", "amp", "accumulation", "recomputation"], "batch": 8, "length": 4}
CHOSEN = {"steps": 4, "warmup": 1, "models": {"bert_base": {**MODEL, "sizes": SIZES}}}


class Layers:
    """The one layer of the model; ``again`` counts how often it is computed in a backward pass."""

    def __init__(self) -> None:
        self.weights = numpy.random.default_rng(1).standard_normal((4, 5)) / 4


class Classifier:
    def __init__(self) -> None:
        self.layers: Any = Layers()
        self.gradient = numpy.zeros((4, 5))

    def __call__(self, words: Any) -> Any:
        self.inputs = numpy.asarray(words, dtype="float64") / 9
        return self.inputs @ self.layers.weights


class Value:
    """A loss: its backward pass adds to the gradient of its model."""

    def __init__(self, value: float, gradient: Any, model: Classifier) -> None:
        self.value, self._gradient, self._model = value, gradient, model

    def __truediv__(self, count: float) -> Value:
        return Value(self.value / count, self._gradient / count, self._model)

    def backward(self) -> None:
        self._model.gradient = self._model.gradient + self._gradient

    def detach(self) -> float:
        return self.value


class Numpy:
    """``off`` of the precision is a part by which losses are wrong."""

    precisions: tuple[str, ...] = ("fp32", "amp_fp16")

    def __init__(self, off: Callable[[str], float]) -> None:
        self._off, self.precision, self.recomputed, self.models = off, "", 0, list[Classifier]()

    tensor = staticmethod(numpy.asarray)

    @contextlib.contextmanager
    def computing(self, precision: str) -> Iterator[None]:
        self.precision = precision
        yield

    def cross_entropy(self, outputs: Any, labels: Any) -> Value:
        model = self.models[-1]
        parts = numpy.exp(outputs) / numpy.exp(outputs).sum(axis=1, keepdims=True)
        loss = -numpy.log(parts[range(len(labels)), labels]).mean() * (1 + self._off(self.precision))
        parts[range(len(labels)), labels] -= 1
        return Value(loss, model.inputs.T @ parts / len(labels), model)

    def host(self, value: Any) -> Any:
        return numpy.asarray(value, dtype="float64")

    def flat_gradients(self, model: Classifier) -> Any:
        found, model.gradient = model.gradient.reshape(-1), numpy.zeros((4, 5))
        return found

    def stepper(self, model: Classifier, rate: float) -> Callable[[], None]:
        def apply() -> None:
            model.layers.weights = model.layers.weights - 30 * rate * model.gradient
            model.gradient = numpy.zeros((4, 5))

        return apply

    def scaled_stepper(self, model: Classifier, rate: float) -> Any:
        apply = self.stepper(model, rate)

        def step(loss: Value) -> None:
            loss.backward()
            apply()

        return step, lambda: 1024.0

    def recompute_each(self, layers: Layers) -> Layers:
        self.recomputed += 1
        return layers

    def forget_peak_memory(self) -> None:
        """Nothing is counted."""

    def peak_tensor_bytes(self) -> int:
        return 1000


def trained(monkeypatch: pytest.MonkeyPatch, off: Callable[[str], float] = lambda precision: 0.0) -> Any:
    framework = Numpy(off)

    def build(nn: Numpy, name: str, sizes: dict[str, int], seed: int) -> Classifier:
        nn.models.append(Classifier())
        return nn.models[-1]

    monkeypatch.setattr(models, "build", build)
    paddle = SimpleNamespace(PaddleFramework=lambda world: framework)
    monkeypatch.setitem(sys.modules, "frameworks.paddle", paddle)
    (verdict,) = run_ranks(lambda world: recipes.run(world, {"seed": 1, "on_cpu": CHOSEN}), 1)
    return verdict, framework


def test_each_recipe_is_compared_with_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, framework = trained(monkeypatch)
    assert (verdict["ok"], verdict["because"]) == (True, "")
    assert verdict["not_done"] == {"bert_base tf32": "numpy on cpu does not support tf32"}
    cases = {case["recipe"]: case for case in verdict["cases"]}
    assert list(cases) == ["fp32", "amp", "accumulation", "recomputation"]
    assert framework.recomputed == 1
    for case in cases.values():
        assert len(case["losses"]) == 6 and case["peak_memory_bytes"] == 1000
        assert case["losses"] == pytest.approx(cases["fp32"]["losses"], rel=1e-9)
        assert case["gradient_difference"] < 1e-12 and case["loss_difference"] < 1e-12
    assert [case["loss_scale"] for case in cases.values()] == [None, 1024.0, None, None]


def test_ranks_that_lack_a_precision_keep_step_with_those_that_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frameworks = [Numpy(lambda precision: 0.0) for _ in range(2)]
    frameworks[0].precisions = ("fp32",)

    def build(nn: Numpy, name: str, sizes: dict[str, int], seed: int) -> Classifier:
        nn.models.append(Classifier())
        return nn.models[-1]

    monkeypatch.setattr(models, "build", build)
    paddle = SimpleNamespace(PaddleFramework=lambda world: frameworks[world.rank])
    monkeypatch.setitem(sys.modules, "frameworks.paddle", paddle)
    found = run_ranks(lambda world: recipes.run(world, {"seed": 1, "on_cpu": CHOSEN}), 2)
    assert [len(verdict["cases"]) for verdict in found] == [3, 4]
    assert set(found[0]["not_done"]) == {"bert_base tf32", "bert_base amp"}


def test_a_part_of_the_batch_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "MICRO_BATCHES", 3)  # of eight samples two are left over
    verdict, _ = trained(monkeypatch)
    assert verdict["ok"] is False
    assert verdict["because"].startswith("bert_base by accumulation: its gradients differ from float32's")


@pytest.mark.parametrize(
    ("off", "because"),
    [
        (lambda precision: 0.0206 * (precision == "amp_fp16"), "amp: its first loss differs from float32's"),
        (lambda precision: float("nan") * (precision == "amp_fp16"), "amp: the loss is not a number"),
    ],
    ids=["another loss", "no number"],
)
def test_a_loss_that_is_wrong_is_found(
    off: Callable[[str], float], because: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict, _ = trained(monkeypatch, off)
    assert verdict["ok"] is False
    assert f"bert_base by {because}" in verdict["because"]


def test_a_loss_within_rounding_of_float16_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, _ = trained(monkeypatch, lambda precision: 0.0185 * (precision == "amp_fp16"))
    assert verdict["ok"] is True


def test_a_loss_that_does_not_fall_is_found() -> None:
    case = {"recipe": "fp32", "losses": [2.0, 2.0], "gradient_difference": 0.0, "loss_difference": 0.0}
    assert recipes.case_problem(case) == "the loss did not fall: 2.0000 to 2.0000"
    assert recipes.case_problem({**case, "losses": [2.0, 1.9]}) == ""
    assert "by None" in recipes.case_problem({**case, "losses": [2.0, 1.9], "gradient_difference": None})
