"""Tiny data and tiny networks: what a check trains on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...data.dataset import Dataset
from ...data.masks import bare, mask_of
from ...data.operations.goals import GOAL, SEEN
from ...data.random import normal, root_key, uniform
from ...data.storage.claims import scratch_names
from ..base import Algorithm
from ..model_based.probabilistic_ensemble import ProbabilisticEnsemble
from ..model_based.shared import InAModel
from ..networks.encoders import VectorEncoder
from ..networks.transformers import Transformer
from ..ports import memories
from ..recurrence import remembers
from ..wants import Stretches
from .errors import Make

SMALL = VectorEncoder(hidden_units=(16, 16))


def tiny_dataset(
    *,
    discrete: bool,
    n: int = 400,
    observation_size: int = 5,
    actions: int = 3,
    cut: bool = False,
    reach: float = 1.0,
    masked: Literal["some", "all"] | None = None,
    unheard_of: int = 0,
    costs: bool = False,
) -> Dataset:
    """Make random transitions in episodes of 1 to 20 steps with every kind of end; the same at every call.

    `actions` are the entries of an action within ± `reach`, or how many actions there are, and `unheard_of` so many further ones,
    which are never legal. With `cut` each transition is an episode of its own, truncated where the episode went on. `masked` brings
    a mask of legal actions: of the one that is taken and half of the others, or of all. `costs` brings a column of them.
    """
    arrays = tiny_arrays(discrete, n, observation_size, actions, cut=cut, reach=reach, costs=costs)
    if masked is not None or unheard_of:
        every = actions + unheard_of
        legal = uniform(root_key(7), (n + len(arrays["final_observations"]), every)).numpy() < (0.5 if masked == "some" else 1)
        legal[:, 0] |= ~legal[:, :actions].any(1)
        legal[np.arange(n), arrays["actions"]] = True
        legal[:, actions:] = False
        arrays |= {"action_mask": legal[:n], "final_action_mask": legal[n:]}
    return Dataset.from_arrays(**arrays, name="tiny")


def tiny_arrays(
    discrete: bool,
    n: int = 400,
    observation_size: int = 5,
    actions: int = 3,
    *,
    cut: bool = False,
    reach: float = 1.0,
    costs: bool = False,
) -> dict[str, Any]:
    """Make the arguments of `Dataset.from_arrays` for `tiny_dataset`."""

    def draw(name: int, shape: tuple[int, ...]) -> np.ndarray:
        return normal(root_key(name), shape).numpy()

    chance = uniform(root_key(9), (n, 2)).numpy()
    end = chance[:, 0] < 1 / 8
    end[19::20] = True
    terminated = end & (chance[:, 1] < 0.6)
    action = (chance[:, 1] * 1e4 % actions).astype(np.int64) if discrete else reach * np.tanh(draw(2, (n, actions)))
    observation, following = draw(1, (n, observation_size)), draw(4, (n, observation_size))
    last = np.flatnonzero(end | (np.arange(n) == n - 1))
    reward = draw(3, (n,))
    alone = end & np.append(True, end[:-1]) & ~terminated
    reward[alone] = -0.01  # an episode that was cut and had nothing but cost, which CalQL's `endless` looks for
    if cut:
        after = np.roll(observation, -1, 0)
        after[last] = following[last]
        end, last, following = np.ones(n, bool), np.arange(n), after
    return {
        "observations": observation,
        "actions": action,
        "rewards": reward,
        "terminated": terminated,
        "truncated": end & ~terminated,
        "final_observations": following[last],
        **({"extra": {"cost": np.abs(draw(5, (n,)))}} if costs else {}),
    }


def tiny_settings(algorithm: type[Algorithm]) -> dict[str, Any]:
    """Settings with which an algorithm is small, and does everything that it does within a few updates."""
    fields = algorithm.Config.model_fields
    settings: dict[str, Any] = {name: SMALL for name in fields if name.endswith("encoder") and name != "share_encoder"}
    settings["batch_size"] = 16
    if "context" in fields:
        settings["context"] = 4
    if "algo" in fields:
        settings["algo"] = TinyPolicy(discrete="continuous" not in algorithm.action_kinds())
    if issubclass(algorithm, InAModel):
        settings |= _in_a_model(algorithm)
    if "value_goals" in fields:  # so that some goals are reached
        settings["value_goals"] = fields["value_goals"].default.model_copy(update={"current": 0.2, "future": 0.5})
    small = {"pessimism": 0.5, "patience": 3, "transformer": Transformer(n_layers=2), "episode_steps": 20}
    settings |= {name: value for name, value in small.items() if name in fields}
    for name, field in fields.items():
        if name.endswith("_interval") and isinstance(field.default, int) and field.default > 7:
            settings[name] = 7  # so that it comes round within a check
        if name.endswith("learning_rate") and 0 < field.default < 1e-4:
            settings[name] = 1e-3  # so that networks and their targets come to differ within a check
        if name.endswith("_updates") and isinstance(field.default, int):
            settings[name] = min(field.default, 2)
        if name.endswith(("warmup_steps", "start_step")) and field.default > 3:
            settings[name] = 3  # so that a check sees what comes after it too
        if name.endswith("_samples") and field.default > 4:
            settings[name] = 4
    return settings


def _in_a_model(algorithm: type[InAModel]) -> dict[str, Any]:
    few = {"horizon": 2, "n_transitions": 8, "interval": 7, "real": 0.5, "capacity": None}
    rollouts = algorithm.Config.model_fields["rollouts"].default.model_copy(update=few)
    model = {"model_batch_size": 16} if algorithm.brings_model else {"dynamics": str(Path(_kept().name) / "model")}
    return {"rollouts": rollouts, **model}


@cache
def tiny_model(*, discrete: bool = False) -> ProbabilisticEnsemble:
    """A model of tiny datasets, which knows next to nothing of them."""
    made = ProbabilisticEnsemble(encoder=SMALL, batch_size=16, n_members=3, n_elites=2, device="cpu")
    return made.fit(tiny_dataset(discrete=discrete), 20, 20, show_progress=False)


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix=scratch_names("tiny"))
    tiny_model().save(Path(folder.name) / "model")
    return folder


class TinyPolicy:
    """A policy to be judged on tiny datasets: three entries of an observation, or the place of the largest of them."""

    def __init__(self, *, discrete: bool, first: int = 0) -> None:
        self.first, self.spec = first, tiny_dataset(discrete=discrete, n=2).spec

    def start(self, n: int) -> None: ...

    def step(self, state: None, observation: Any) -> tuple[None, np.ndarray]:
        return state, self.predict(observation)

    def predict(self, observation: Any) -> np.ndarray:
        shown, legal = bare(observation)[:, self.first : self.first + 3], mask_of(observation)
        if not self.spec.discrete:
            return np.tanh(shown)
        return (shown if legal is None else np.where(legal[:, :3], shown, -np.inf)).argmax(1)


def maker(algorithm: type[Algorithm], **settings: Any) -> Make:
    """Makes `algorithm` with small networks and `settings`; arguments of a call come on top."""
    small = tiny_settings(algorithm)
    return lambda **run: algorithm(**{**small, **settings, **run})


def answers(algorithm: Algorithm) -> dict[str, Callable[[Any], Any]]:
    """Give the ways in which a trained algorithm answers raw observations: `predict` and `sample_action`.

    One that acts on what came before is asked as at an episode's first step; one that has no policy is asked nothing.
    """
    if not algorithm.acts():
        return {}
    if not looks_back(algorithm):
        asked = {"predict": algorithm.predict, "sample_action": algorithm.sample_action}
        return {name: lambda observation, answer=answer: answer(shown(algorithm, observation)) for name, answer in asked.items()}
    policy = algorithm.policy()
    return {"policy().step": lambda observation: policy.step(policy.start(len(bare(observation))), observation)[1]}


def shown(algorithm: Algorithm, observation: Any) -> Any:
    """Give observations of tiny data as the algorithm takes them: what is told a goal, with one."""
    if not algorithm.goal_conditioned:
        return observation
    part = algorithm.config_.goal_part
    return {SEEN: observation, GOAL: observation if part is None else observation[..., list(part)]}


def values_alone(algorithm: Algorithm) -> bool:
    """Tell whether a trained algorithm has values of single observations, so that there is `predict_value`."""
    return algorithm.learns_values() and not remembers(algorithm.config_)


def counts_costs(algorithm: Algorithm) -> bool:
    """Tell whether an algorithm keeps costs below a limit, and so needs data with costs."""
    return "cost_limit" in algorithm.Config.model_fields


def looks_back(algorithm: Algorithm) -> bool:
    """Tell whether a trained algorithm acts on what came before, so that `predict` is refused."""
    return isinstance(algorithm.wants_, Stretches) or bool(memories(algorithm.ports_))


def data_for(make: Make) -> Dataset:
    """The tiny dataset of the right kind of actions, with costs where there is a limit; of discrete actions, some are legal."""
    discrete = "continuous" not in make().action_kinds()
    return tiny_dataset(discrete=discrete, masked="some" if discrete else None, costs=counts_costs(make()))
