"""What benchmarks ask of d3rlpy 2.8.1, in a process of its own and its own environment: see `workers.py`.

d3rlpy runs as its users run it, less what costs time and is not training: no files are logged, no progress is shown, nothing is
evaluated while a measurement runs. What a request does not name (networks, batch size, Adam's ε, scalers, …) is d3rlpy's default.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import d3rlpy
import gymnasium
import numpy as np
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.models.q_functions import IQNQFunctionFactory, MeanQFunctionFactory, QRQFunctionFactory
from d3rlpy.optimizers import AdamFactory
from workers import serve, timed

QUIET: dict[str, Any] = {"logger_adapter": NoopAdapterFactory(), "show_progress": False}


@cache
def open_dataset(path: str) -> d3rlpy.dataset.ReplayBuffer:
    """Arrays of an .npz file, as `for_peer` in `arrays.py` lays them out; images are stacked four at a time."""
    with np.load(path) as arrays:
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        observations, *others = (arrays[name] for name in names)
    picker = d3rlpy.dataset.FrameStackTransitionPicker(4) if observations.ndim == 4 else None
    return d3rlpy.dataset.MDPDataset(observations, *others, transition_picker=picker)


def make(name: str, settings: dict[str, Any], device: str) -> Any:
    """An algorithm; settings as `configured`'s."""
    return configured(getattr(d3rlpy.algos, f"{name}Config"), settings).create(device=device)


def judge(name: str, settings: dict[str, Any], device: str, judged: Any) -> Any:
    """FQE or DiscreteFQE of an algorithm that is built."""
    return getattr(d3rlpy.ope, name)(judged, configured(d3rlpy.ope.FQEConfig, settings), device=device)


def configured(config: Any, settings: dict[str, Any]) -> Any:
    """A config; `hidden_units` (of every network), `epsilon` (Adam's), `q_function` and scalers are made d3rlpy's."""
    settings = dict(settings)
    if hidden := settings.pop("hidden_units", None):
        for network in ("", "actor_", "critic_", "value_", "imitator_"):
            if (field := f"{network}encoder_factory") in config.__dataclass_fields__:
                settings[field] = VectorEncoderFactory(hidden_units=list(hidden))
    if epsilon := settings.pop("epsilon", None):
        settings["optim_factory"] = AdamFactory(eps=epsilon)
    if q_function := settings.pop("q_function", None):
        kinds = {"mean": MeanQFunctionFactory, "qr": QRQFunctionFactory, "iqn": IQNQFunctionFactory}
        settings["q_func_factory"] = kinds[q_function["name"]](**{k: v for k, v in q_function.items() if k != "name"})
    if settings.pop("action_scaler", None) == "min_max":
        settings["action_scaler"] = d3rlpy.preprocessing.MinMaxActionScaler()
    if settings.pop("observation_scaler", None) == "pixel":
        settings["observation_scaler"] = d3rlpy.preprocessing.PixelObservationScaler()
    if scaler := settings.pop("reward_scaler", None):
        settings["reward_scaler"] = d3rlpy.preprocessing.MultiplyRewardScaler(scaler["multiplier"])
    return config(**settings)


class Speed:
    """What is being measured: an algorithm or a sampler; set up once and warmed up."""

    algorithm: Any
    dataset: d3rlpy.dataset.ReplayBuffer
    batch_size: int
    device: str

    def set_up_fit(self, dataset: str, name: str, settings: dict[str, Any], device: str, warm: int) -> None:
        """`warm` gradient steps are done and not measured."""
        self.dataset, self.device = open_dataset(dataset), device
        d3rlpy.seed(0)
        if judged := settings.get("judged"):
            (policy := make(judged, {}, device)).build_with_dataset(self.dataset)
            self.algorithm = judge(name, {k: v for k, v in settings.items() if k != "judged"}, device, policy)
        else:
            self.algorithm = make(name, settings, device)
        self.fit(warm)

    def fit(self, n: int) -> dict[str, float]:
        """A whole call of `fit`: draws, updates, metrics."""
        return timed(lambda: self.algorithm.fit(self.dataset, n_steps=n, n_steps_per_epoch=n, **QUIET), self.device)

    def set_up_draws(self, dataset: str, batch_size: int, device: str, warm: int) -> None:
        """Batches of observation, action, reward, terminal, next observation and next action, as NumPy arrays."""
        self.dataset, self.batch_size, self.device = open_dataset(dataset), batch_size, device
        self.draw(warm)

    def draw(self, n: int) -> dict[str, float]:
        """`n` batches."""

        def work() -> None:
            for _ in range(n):
                self.dataset.sample_transition_batch(self.batch_size)

        return timed(work, self.device)


def learn(
    dataset: str,
    name: str,
    settings: dict[str, Any],
    seed: int,
    n_steps: int,
    every: int,
    environment: str,
    reset_seeds: list[int],
) -> dict[str, Any]:
    """Trains and evaluates the greedy policy every so many gradient steps, in the same episodes each time."""
    data, env, begin = open_dataset(dataset), gymnasium.make(environment), time.perf_counter()
    d3rlpy.seed(seed)
    settings = dict(settings)
    target = settings.pop("target_return", None)
    learner = make(name, settings, "cpu:0")
    evaluations = []

    def look(learner: Any, _: int, step: int) -> None:
        if step % every == 0:
            returns = [play_for(learner.as_stateful_wrapper(target), env, reset_seed) for reset_seed in reset_seeds]
            evaluations.append({"step": step, "return": float(np.mean(returns)), "std": float(np.std(returns))})

    if target is not None:
        learner.fit(data, n_steps=n_steps, n_steps_per_epoch=every, callback=look, **QUIET)
        return {"evaluations": evaluations, "seconds": time.perf_counter() - begin}
    for epoch, _ in learner.fitter(data, n_steps=n_steps, n_steps_per_epoch=every, **QUIET):
        returns = [play(learner, env, reset_seed) for reset_seed in reset_seeds]
        evaluations.append({"step": epoch * every, "return": float(np.mean(returns)), "std": float(np.std(returns))})
    return {"evaluations": evaluations, "seconds": time.perf_counter() - begin}


def play(learner: Any, env: Any, seed: int) -> float:
    """The return of one episode."""
    observation, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        action = learner.predict(np.asarray(observation, np.float32)[None])[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    return total


def play_for(wrapper: Any, env: Any, seed: int) -> float:
    """The return of one episode of what acts for a return and remembers."""
    observation, _ = env.reset(seed=seed)
    total, reward, ended = 0.0, 0.0, False
    while not ended:
        action = wrapper.predict(np.asarray(observation, np.float32), float(reward))
        observation, reward, terminated, truncated, _ = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    return total


if __name__ == "__main__":
    speed = Speed()
    tasks = {task: getattr(speed, task) for task in ("set_up_fit", "fit", "set_up_draws", "draw")}
    serve({**tasks, "learn": learn})
