"""What benchmarks ask of d3ray, in a process of its own: see `workers.py`."""

from __future__ import annotations

import atexit
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from tasks import open_dataset
from torch.utils._python_dispatch import TorchDispatchMode
from workers import control, serve, timed

from d3ray.algos.base import Algorithm
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.model_based.probabilistic_ensemble import ProbabilisticEnsemble
from d3ray.algos.online.actors import LocalActors
from d3ray.algos.optimizers import RowOptimizer
from d3ray.algos.registry import algorithm_class, make_algorithm
from d3ray.algos.stack import Stack
from d3ray.algos.testing import data_for, maker
from d3ray.data.dataset import Dataset
from d3ray.data.sampling import TransitionSampler
from d3ray.data.spec import Environment, Goals

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)
Operand = tuple[torch.Size, tuple[int, ...], torch.dtype]


class Speed:
    """What is being measured: an algorithm, a stack of seeds, or a sampler; set up once and warmed up."""

    algorithm: Any
    dataset: Dataset
    sampler: TransitionSampler
    device: str

    def set_up_fit(self, dataset: str, algorithm: dict[str, Any], device: str, warm: int, seeds: int = 1) -> None:
        """`warm` gradient steps are done and not measured."""
        self.dataset, self.device = open_dataset(dataset), device
        if judged := algorithm.get("judged"):
            policy = make_algorithm({"name": judged}, seed=0, device=device).build_with_dataset(self.dataset)
            algorithm = {**{k: v for k, v in algorithm.items() if k != "judged"}, "algo": policy}
        one = make_algorithm(algorithm, seed=0, device=device)
        self.algorithm = one if seeds == 1 else Stack(one, range(seeds))
        self.fit(warm)

    def set_up_tiny(self, page: str) -> None:
        """A page with tiny networks on tiny data, warm."""
        make = maker(algorithm_class(page))
        self.dataset, self.device = data_for(make), "cpu"
        self.algorithm = make(seed=0)
        self.fit(100)

    def fit(self, n: int) -> dict[str, float]:
        """A whole call of `fit`: draws, updates, metrics."""
        return timed(lambda: self.algorithm.fit(self.dataset, n_steps=n, n_steps_per_epoch=n, show_progress=False), self.device)

    def draw_for_fit(self, n: int) -> dict[str, float]:
        """`n` of the batches that the algorithm of `set_up_fit` learns from."""
        source = self.algorithm.fit_.sampler(self.dataset)
        first = int(self.algorithm.step)

        def work() -> None:
            for step in range(first, first + n):
                source.sample(step)

        return timed(work, self.device)

    def set_up_draws(self, dataset: str, batch_size: int, device: str, warm: int) -> None:
        """Batches of observation, action, reward, discount, next observation and next action."""
        self.device = device
        self.sampler = TransitionSampler(open_dataset(dataset), batch_size, 0, device=device)
        self.draw(warm)

    def draw(self, n: int) -> dict[str, float]:
        """`n` batches."""

        def work() -> None:
            for _ in range(n):
                self.sampler.sample()

        return timed(work, self.device)


# ---- where an update's time goes


class Products(TorchDispatchMode):
    """Keeps every matrix product that is done within: the operation and how its operands lie."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, list[Operand]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function in PRODUCTS:
            self.done.append((function, [(a.shape, a.stride(), a.dtype) for a in arguments if isinstance(a, torch.Tensor)]))
        return function(*arguments, **(named or {}))


def flops(product: tuple[Any, list[Operand]]) -> int:
    """Multiplications and additions of a product."""
    *_, left, right = product[1]
    return 2 * left[0].numel() * right[0][-1]


def seconds(work: Callable[[], Any], device: str, repeat: int = 5, least: float = 0.15) -> float:
    """Median seconds of one call, over rounds of at least `least` seconds."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    rounds, count = [], 1
    while len(rounds) < repeat:
        begin = time.perf_counter()
        for _ in range(count):
            work()
        wait()
        spent = time.perf_counter() - begin
        if spent < least:
            count = max(count + 1, int(count * min(10, 1.2 * least / max(spent, 1e-6))))
        else:
            rounds.append(spent / count)
    return statistics.median(rounds)


def operand(how: Operand, device: str) -> torch.Tensor:
    shape, stride, dtype = how
    reach = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    return torch.randn(reach, dtype=dtype, device=device).as_strided(shape, stride)


def spent(dataset: str, algorithm: dict[str, Any], device: str) -> dict[str, float]:
    """Seconds of one update, by what they are spent on, and its arithmetic.

    One update is recorded: the shapes and strides of its matrix products, forwards and backwards. The products are then done again
    on their own, with operands that lie alike, and so are the draw of a batch and the optimisers' steps. What is left of the whole
    update is element-wise work, autograd and Python.

    Returns:
        update, draw, products, optimizers: seconds. flop: operations of the products. large: operations a second that the machine
        reaches in one product of 2048 × 2048 matrices.
    """
    one = make_algorithm(algorithm, seed=0, device=device)
    data = open_dataset(dataset)
    one.fit(data, n_steps=20, n_steps_per_epoch=20)
    fit = one.fit_
    learner, sampler = fit.learner, fit.sampler(data)
    cycle = len({learner.algorithm.schedule(step) for step in range(64)})  # delayed updates: the mean over a whole cycle
    steps = itertools.count(learner.step)
    batches = [sampler.sample(learner.step + k) for k in range(cycle)]
    stepped: list[RowOptimizer] = []
    step_one = RowOptimizer.step

    def watched(optimizer: RowOptimizer, *arguments: Any) -> None:
        stepped.append(optimizer)
        step_one(optimizer, *arguments)

    with Products() as recorded, mock.patch.object(RowOptimizer, "step", watched):
        for batch in batches:
            learner.update(batch)
    operands = [(function, [operand(how, device) for how in products]) for function, products in recorded.done]
    due = [(optimizer, [torch.full_like(p, 1e-3) for p in optimizer.parameters]) for optimizer in stepped]

    def products() -> None:
        for function, arguments in operands:
            function(*arguments)

    def step() -> None:
        for optimizer, gradients in due:
            optimizer.step(gradients, 0)

    square = torch.randn(2048, 2048, device=device)
    return {
        "update": seconds(lambda: fit.update(sampler), device, least=0.4),
        "draw": seconds(lambda: sampler.sample(next(steps)), device),
        "products": seconds(products, device) / cycle,
        "optimizers": seconds(step, device) / cycle,
        "flop": sum(map(flops, recorded.done)) / cycle,
        "large": 2 * 2048**3 / seconds(lambda: square @ square, device),
    }


# ---- the learning table: a seed by itself, or several of one dataset as one stack, whose rows learn what they would alone


def learn(
    dataset: str,
    algorithm: dict[str, Any],
    seeds: list[int],
    n_steps: int,
    every: int,
    environment: str,
    episodes: int,
    evaluation_seed: int,
) -> list[dict[str, Any]]:
    """Trains and evaluates the greedy policies every so many gradient steps, in the same episodes each time: an answer a seed."""
    data = open_dataset(dataset)
    place: Any = own_environment(data) if environment == "data" else environment
    begin, curves = time.perf_counter(), Curves(seeds, place, episodes, evaluation_seed)
    if "model" in algorithm:
        algorithm = {**algorithm, "dynamics": model_of(data, algorithm["model"], *seeds)}
        del algorithm["model"]
    first = make_algorithm(algorithm, seed=seeds[0], device="cpu")
    trained = first if len(seeds) == 1 else Stack(first, seeds)
    for _ in trained.fitter(data, n_steps=n_steps, n_steps_per_epoch=every, show_progress=False):
        curves.add([first] if trained is first else [trained.seed(k) for k in range(len(seeds))], step=trained.step)
    return curves.answers(time.perf_counter() - begin)


def own_environment(data: Dataset) -> Environment:
    """The environment that the data come from; of one with five tasks all of them in turn, as OGBench scores them."""
    environment = data.environment
    assert environment is not None, f"{data.name} names no environment"
    if "singletask" in environment.id:
        return environment
    return environment.model_copy(update={"goals": Goals(tasks=(1, 2, 3, 4, 5))})


def model_of(data: Dataset, settings: dict[str, Any], seed: int) -> ProbabilisticEnsemble:
    """A model of the data's dynamics, one seed's own."""
    n_steps, own = settings["n_steps"], {name: value for name, value in settings.items() if name != "n_steps"}
    return ProbabilisticEnsemble(**own, seed=seed, device="cpu").fit(data, n_steps, n_steps, show_progress=False)


def learn_online(
    algorithm: dict[str, Any],
    seeds: list[int],
    n_steps: int,
    every: int,
    environment: str,
    online: dict[str, Any],
    episodes: int,
    evaluation_seed: int,
) -> list[dict[str, Any]]:
    """The same of what learns while acting, one seed."""
    begin, curves = time.perf_counter(), Curves(seeds, environment, episodes, evaluation_seed)
    learner = make_algorithm(algorithm, seed=seeds[0], device="cpu")
    if "actors" in online:  # which learn the same wherever they are
        online = {**online, "actors": LocalActors(online["actors"])}
    for _, metrics in learner.fitter_online(environment, n_steps=n_steps, n_steps_per_epoch=every, **online):
        curves.add([learner], step=int(metrics["step"]), acted=int(metrics["train/environment_steps"]))
    return curves.answers(time.perf_counter() - begin)


class Curves:
    """What evaluations of each seed gave so far."""

    def __init__(self, seeds: list[int], environment: str | Environment, episodes: int, evaluation_seed: int) -> None:
        self.environment, self.episodes, self.evaluation_seed = environment, episodes, evaluation_seed
        self.curves: list[list[dict[str, float]]] = [[] for _ in seeds]

    def add(self, algorithms: Sequence[Algorithm], **at: int) -> None:
        """Plays the greedy policy of each seed."""
        for algorithm, curve in zip(algorithms, self.curves, strict=True):
            how = {"episodes": self.episodes, "seed": self.evaluation_seed, "n_envs": min(self.episodes, 20)}
            played = evaluate(algorithm.policy(), self.environment, **how)
            solved = {} if played.success is None else {"success": 100 * played.success}
            curve.append({**at, "return": played.mean, "std": played.std, **solved})

    def answers(self, seconds: float) -> list[dict[str, Any]]:
        """One a seed; `seconds` are of all of them together, where they were `stacked`."""
        return [{"evaluations": curve, "seconds": seconds, "stacked": len(self.curves)} for curve in self.curves]


# ---- a trial inside Ray Tune beside the same training outside it
#
# Both train a fresh algorithm for whole epochs and are timed from the end of the first epoch to the end of the last, by wall clock.
# Inside Tune those are the moments when the driver has the result in hand, so everything that Tune does for a result is in.


def outside(dataset: str, algorithm: dict[str, Any], n_epochs: int, n_steps_per_epoch: int) -> dict[str, float]:
    """A plain loop over `fitter`."""
    data, before = open_dataset(dataset), control()
    epochs = make_algorithm(algorithm, seed=0, device="cpu").fitter(data, n_epochs * n_steps_per_epoch, n_steps_per_epoch)
    moments = [time.perf_counter() for _ in epochs]
    return {"seconds": moments[-1] - moments[0], "control": (before + control()) / 2}


def start_ray(threads: int) -> None:
    """A Ray of this machine's own, for as long as this process lives."""
    from d3ray.platform.cluster.session import ray_session

    session = ray_session(num_cpus=threads)
    session.__enter__()
    atexit.register(session.__exit__, None, None, None)


def inside(dataset: str, algorithm: dict[str, Any], n_epochs: int, n_steps_per_epoch: int, threads: int) -> dict[str, float]:
    """One trial of a Tuner, reporting after every epoch."""
    from ray import tune

    from d3ray.platform.trainable import trainable

    moments: list[float] = []

    class Clock(tune.Callback):
        def on_trial_result(self, **_: Any) -> None:
            moments.append(time.perf_counter())

    settings = dict(algorithm)
    name, before = settings.pop("name"), control()
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            tune.with_resources(trainable(name), {"cpu": threads}),
            param_space={
                "dataset": str(Path(dataset).absolute()),
                "algorithm": settings,
                "n_steps": n_epochs * n_steps_per_epoch,
                "n_steps_per_epoch": n_steps_per_epoch,
                "seed": 0,
                "evaluation": None,
            },
            run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[Clock()]),
        ).fit()
    if results.num_errors or len(moments) != n_epochs:
        raise RuntimeError(f"the trial gave {len(moments)} of {n_epochs} results: {results.errors}")
    return {"seconds": moments[-1] - moments[0], "control": (before + control()) / 2}


if __name__ == "__main__":
    speed = Speed()
    tasks = [getattr(speed, name) for name in ("set_up_fit", "set_up_tiny", "fit", "draw_for_fit", "set_up_draws", "draw")]
    tasks += [spent, outside, inside, start_ray, learn, learn_online]
    serve({task.__name__: task for task in tasks})
