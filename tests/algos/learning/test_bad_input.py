"""What a user can get wrong with an algorithm ends in one clear sentence, before anything is trained or played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from d3ray import BC, DQN, TD3
from d3ray.algos.environments.evaluate import EnvironmentEvaluator, evaluate
from d3ray.algos.stack import Stack
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError

CONTINUOUS, DISCRETE = tiny_dataset(discrete=False), tiny_dataset(discrete=True)


def fitted(cls: type[Any], **settings: Any) -> Any:
    return maker(cls, **settings)().fit(CONTINUOUS if cls.actions == "continuous" else DISCRETE, 1, 1)


def environment(observation_size: int = 5, action_size: int = 3, kinds: int | None = None) -> gymnasium.Env[Any, Any]:
    """An environment of which only the spaces are looked at, unless they are right."""

    class Still(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1, 1, (observation_size,))
        action_space = gymnasium.spaces.Discrete(kinds) if kinds else gymnasium.spaces.Box(-1, 1, (action_size,))

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return np.zeros(observation_size, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.zeros(observation_size, np.float32), 1.0, True, False, {}

    return Still()


def batch_with(column: str, value: float) -> Any:
    batch = fitted(TD3).fit_.sampler(CONTINUOUS).sample(0)
    spoilt = getattr(batch, column).clone()
    spoilt[2] = value
    return replace(batch, **{column: spoilt})


def at(size: int) -> np.ndarray:
    return np.zeros((3, size), np.float32)


SMALLER, FEWER = tiny_dataset(discrete=False, observation_size=4), tiny_dataset(discrete=False, actions=2)
MATRICES = Dataset.from_arrays(np.zeros((4, 3)), np.zeros((4, 1, 2)), np.ones(4), np.ones(4), name="tiny")
CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {  # and words of the sentence
    "discrete actions": (lambda: TD3().fit(DISCRETE, 1), DataError, "TD3 needs continuous actions"),
    "continuous actions": (lambda: DQN().fit(CONTINUOUS, 1), DataError, "DQN needs discrete actions"),
    "actions that are no vectors": (lambda: TD3().fit(MATRICES, 1), DataError, r"have the shape \[1, 2\]: make them vectors of 2"),
    "several actions at one": (lambda: fitted(TD3).predict_value(at(5)[0], at(3)[:2]), DataError, r"shape \(1, 2, 3\); 1 obs"),
    "other observations": (lambda: fitted(TD3).fit(SMALLER, 1), DataError, r"observations of shape \[4\], and this TD3"),
    "of a stack": (lambda: Stack(maker(TD3)(), (1, 2)).fit(CONTINUOUS, 1).fit(SMALLER, 1), DataError, r"shape \[4\], and this TD3"),
    "other actions": (lambda: fitted(TD3).fit(FEWER, 1), DataError, r"actions of shape \[2\], and this TD3"),
    "more actions": (lambda: fitted(DQN).fit(tiny_dataset(discrete=True, actions=4), 1), DataError, "4 kinds, .* of 3 kinds"),
    "an argument": (lambda: TD3().fit(CONTINUOUS, n_step=1), ConfigError, "did you mean 'n_steps'"),  # pyright: ignore
    "of a stack's": (lambda: Stack(maker(TD3)(), (1, 2)).fit(CONTINUOUS, n_step=1), ConfigError, "'n_steps'"),  # pyright: ignore
    "of a row": (lambda: Stack(DQN(), (1, 2), [{}, {"learning_rate": 0.0}]), ConfigError, "DQN: learning_rate is 0.0;"),
    "an unknown setting": (lambda: TD3(learning_rat=1.0), ConfigError, "TD3 has no setting 'learning_rat'"),
    "NaN in a reward": (lambda: fitted(TD3).update(batch_with("reward", np.nan)), DataError, "reward is NaN .* 1 of 16 .* row 2"),
    "values of what learns none": (lambda: fitted(BC).predict_value(at(5), at(3)), ConfigError, "BC learns no values"),
    "evaluating: observations": (lambda: played(TD3, environment(4)), DataError, r"observations of shape \[4\], and this policy"),
    "evaluating: actions": (lambda: played(TD3, environment(action_size=2)), DataError, r"actions of shape \[2\], and this policy"),
    "evaluating: another kind": (lambda: played(TD3, environment(kinds=3)), DataError, r"3 kinds, .* actions of shape \[3\]"),
    "evaluating: fewer actions": (lambda: played(DQN, environment(kinds=2)), DataError, "2 kinds, .* of 3 kinds"),
    "an evaluator": (lambda: EnvironmentEvaluator("Pendulum-v1", episodes=1)(fitted(TD3), 1), DataError, r"'Pendulum-v1' .* \[1\]"),
    "online": (
        lambda: maker(DQN)().fit_online("Pendulum-v1", n_steps=1),
        DataError,
        "DQN needs discrete actions, and 'Pendulum-v1'",
    ),
}


def played(cls: type[Any], env: Any) -> Any:
    return evaluate(fitted(cls).policy(), env, episodes=1)


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_says_what_is_wrong(case: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    act, kind, words = CASES[case]
    with pytest.raises(kind, match=words) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_batch_changes_nothing() -> None:
    algorithm = fitted(TD3)
    before, step = algorithm.state()[0], algorithm.step
    with pytest.raises(DataError):
        algorithm.update(batch_with("reward", float("nan")))
    assert algorithm.step == step
    assert all(torch.equal(tensor, before[name]) for name, tensor in algorithm.state()[0].items())


def test_a_dataset_need_not_have_every_action_nor_a_policy_take_it() -> None:
    algorithm = fitted(DQN)
    algorithm.fit(tiny_dataset(discrete=True, actions=2), 1, 1)
    assert evaluate(algorithm.policy(), environment(kinds=4), episodes=2).returns.tolist() == [1.0, 1.0]
