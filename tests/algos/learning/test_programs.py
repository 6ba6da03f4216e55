"""Losses compiled for this machine: the same learning, to rounding, for one seed and for a stack."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from d3ray.algos import testing
from d3ray.algos.base import Algorithm
from d3ray.algos.definition import Definition
from d3ray.algos.learning import programs
from d3ray.algos.learning.programs import LONGEST
from d3ray.algos.learning.recording import Recording
from d3ray.algos.model_based.probabilistic_ensemble import ProbabilisticEnsemble
from d3ray.algos.optimizers import SGD, AdamW, Cosine, Muon, Optimizer, RMSprop, RowOptimizer
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.stack import Stack
from d3ray.algos.testing.errors import live
from d3ray.algos.values.dqn import DQN
from d3ray.data.errors import ConfigError
from d3ray.data.random import fold, normal, root_key, uniform
from d3ray.data.tracing import traced

NOISY = {"hidden_units": [8], "normalization": "batch", "dropout_rate": 0.2}
needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler here")


def learned(algorithm: Algorithm, seeds: tuple[int, ...] = (0,), n_steps: int = 4) -> tuple[dict[str, Tensor], Any]:
    """What training has made of an algorithm, and its fit."""
    fit: Any = (Stack(algorithm, seeds) if len(seeds) > 1 else algorithm).fit(testing.data_for(lambda **_: algorithm), n_steps, 5)
    return live(fit.fit_.state()[0]), fit.fit_


def check_near(compiled: dict[str, Tensor], eager: dict[str, Tensor], most: float) -> None:
    for name, tensor in eager.items():
        torch.testing.assert_close(compiled[name], tensor, rtol=most, atol=most, msg=lambda said, name=name: f"{name}: {said}")


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize(
    ("seeds", "encoder"),
    [
        ((0,), {"hidden_units": [8]}),
        pytest.param((0,), NOISY, marks=pytest.mark.slow),  # what draws takes longer to compile
        pytest.param((3, 4), NOISY, marks=pytest.mark.slow),
    ],
    ids=["alone", "alone and noisy", "stacked and noisy"],
)
def test_compiled_steps_teach_what_eager_ones_teach(seeds: tuple[int, ...], encoder: dict[str, Any]) -> None:
    make = testing.maker(DQN, encoder=encoder, sampler="prioritized", dtype="float64")
    compiled, fit = learned(make(compile_graph=True), seeds)
    eager, plain = learned(make(), seeds)
    assert len(fit.programs._units) == 1  # at one step after another
    assert plain.programs is None
    check_near(compiled, eager, 1e-9)
    ours, theirs = ({n: v for n, v in one.measured[0][-1].items() if "time" not in n} for one in (fit, plain))
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert fit.learner.errors.shape == plain.learner.errors.shape  # by which transitions are drawn
    further, _ = learned(make(compile_graph=True), seeds, 9)
    assert any(not torch.equal(further[name], compiled[name]) for name in further)


@pytest.mark.long
@needs_compiler
def test_a_compiled_run_goes_on_bit_for_bit() -> None:
    testing.check_resumes_bit_for_bit(testing.maker(DQN, compile_graph=True, encoder={"hidden_units": [8]}), n_steps=3)


@needs_compiler
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", algorithm_names())
def test_every_algorithm_can_be_compiled(name: str) -> None:
    make = testing.maker(algorithm_class(name), dtype="float64")
    for seeds in ((0,), (3, 4)):
        compiled, fit = learned(make(compile_graph=True), seeds, 2 * LONGEST)
        assert fit.programs._units
        check_near(compiled, learned(make(), seeds, 2 * LONGEST)[0], 1e-7)


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("config", [SGD(momentum=0.9), RMSprop(centered=True, momentum=0.5), AdamW(amsgrad=True), Muon()])
def test_compiled_optimisers_are_the_plain_ones(config: Optimizer) -> None:
    """Rows of other rates too, which a compiled step takes together."""
    start, steps = {"weight": torch.randn(2, 3, 4, dtype=torch.float64), "bias": torch.randn(2, 4, dtype=torch.float64)}, 5
    schedule = config.model_copy(update={"schedule": Cosine(duration=4, warm_up=2), "max_grad_norm": 0.5})
    plain, compiled = (RowOptimizer(schedule, {n: t.clone() for n, t in start.items()}, [1e-2, 1e-3], 2) for _ in range(2))
    gradients = [[torch.randn_like(t) for t in start.values()] for _ in range(steps)]
    clock = torch.zeros((), dtype=torch.int64)
    given = [g.clone() for g in gradients[0]]
    recording = Recording(given)
    with traced("compiled"), recording:
        compiled.step(given, clock)
    run = recording.compiled([])
    for step in range(1, steps):
        clock.fill_(step)
        run(*gradients[step])
    for step in range(steps):
        plain.step(gradients[step], step)
    for ours, theirs in zip(compiled.parameters, plain.parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.long
@needs_compiler
def test_trials_of_one_shape_compile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another seed and other coefficients take what the first one compiled."""
    from torch._dynamo.utils import counters

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    make, found = testing.maker(DQN, encoder={"hidden_units": [8]}), list[tuple[int, int]]()
    for settings in ({"seed": 1}, {"seed": 2, "gamma": 0.5, "learning_rate": 0.1}):
        counters.clear()
        learned(make(compile_graph=True, **settings))
        found.append((counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"]))
    (missed, _), again = found
    assert missed
    assert again == (0, missed)


@pytest.mark.long
def test_a_machine_without_a_compiler_trains_without_and_says_so() -> None:
    from torch._inductor import config  # whose settings are put back by its own patch alone

    said = r"^DQN cannot be compiled for cpu \(.*no-such-compiler.*\).*; its steps run as they stand\.$"
    make = testing.maker(DQN, batch_size=7)
    with config.patch({"cpp.cxx": ("no-such-compiler",)}), pytest.warns(UserWarning, match=said):
        found, _ = learned(make(compile_graph=True))
    check_near(found, learned(make())[0], 0)


def test_compile_graph_is_yes_or_no() -> None:
    with pytest.raises(ConfigError, match="DQN: compile_graph is 'yes'; choose True or False"):
        DQN(compile_graph="yes").check_settings()


@pytest.mark.parametrize(
    ("page", "steps", "asked", "lacks", "compiled"),
    [
        ("DQN", 6, None, None, True),
        ("DQN", 5, None, None, False),
        ("DQN", 6, None, "a C++ compiler", False),
        ("DQN", 6, False, None, False),
        ("DQN", 5, True, None, True),
        ("CQL", 6, None, None, False),  # it gains nothing by it
    ],
)
def test_long_trainings_are_compiled_by_themselves(
    monkeypatch: pytest.MonkeyPatch, page: str, steps: int, asked: bool | None, lacks: str | None, compiled: bool
) -> None:
    """By the steps of a training in all, those before included: one that is resumed goes on as it began."""
    monkeypatch.setattr(Definition, "compiled_from", 6)
    monkeypatch.setattr(programs, "lacking", lambda device: lacks)
    make = testing.maker(algorithm_class(page), compile_graph=asked)
    algorithm, data = make(), testing.data_for(make)
    algorithm.fit(data, 0)
    algorithm.fit_.learner.step = steps
    algorithm.fit(data, 0)
    assert (algorithm.fit_.programs is not None and algorithm.fit_.programs.compiled) is compiled


def test_a_training_that_could_not_be_compiled_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Definition, "compiled_from", 0)
    monkeypatch.setattr(programs, "lacking", lambda device: None)
    make = testing.maker(DQN)
    algorithm, data = make().fit(testing.data_for(make), 0), testing.data_for(make)
    first = algorithm.fit_.programs
    assert first is not None
    first.compiled = False  # as it is once it failed
    assert algorithm.fit(data, 0).fit_.programs is first


@pytest.mark.long
@needs_compiler
def test_random_numbers_of_any_count_are_those_of_the_address() -> None:
    """A hash of a loop's counter overflows, which C++ leaves undefined: what is no whole number of vectors came out otherwise."""
    sizes = (17, 48, 100)

    def drawn(key: torch.Tensor) -> list[torch.Tensor]:
        return [draw(fold(key, n), (n,), torch.float64) for n in sizes for draw in (normal, uniform)]

    key = root_key(5)
    with Recording([key]) as recorded:
        made = drawn(key)
    for found, wanted in zip(recorded.compiled(made)(key), drawn(key), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("discrete", [False, True])
def test_a_model_of_the_dynamics_reads_no_value(discrete: bool) -> None:
    made = testing.maker(ProbabilisticEnsemble)()
    made.fit(testing.tiny_dataset(discrete=discrete), 0)
    fit = made.fit_
    batch = fit.sampler(fit.sources.given).sample(0)
    with traced("compiled"), Recording() as recorded:
        fit.learner.run(fit.algorithm.schedule(0), batch)
    assert recorded.calls
