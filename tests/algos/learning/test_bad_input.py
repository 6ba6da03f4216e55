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


UNFITTED = "This TD3 has not been trained yet: call fit, or load a saved one."
CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "discrete actions for a continuous algorithm": (
        lambda: TD3().fit(DISCRETE, 1),
        DataError,
        "TD3 needs continuous actions, and 'tiny' has discrete ones; choose from ",  # and other tests' own
    ),
    "continuous actions for a discrete algorithm": (
        lambda: DQN().fit(CONTINUOUS, 1),
        DataError,
        "DQN needs discrete actions, and 'tiny' has continuous ones; choose from AWAC, ",
    ),
    "continuous actions that are no vectors": (
        lambda: TD3().fit(Dataset.from_arrays(np.zeros((4, 3)), np.zeros((4, 1, 2)), np.ones(4), np.ones(4), name="tiny"), 1),
        DataError,
        "TD3 acts by vectors, and actions of 'tiny' have the shape [1, 2]: make them vectors of 2, as "
        "actions.reshape(len(actions), -1) does",
    ),
    "another observation to predict at": (
        lambda: fitted(TD3).predict(np.zeros((3, 4), np.float32)),
        DataError,
        "Observations have the shape (3, 4); this policy takes (batch, 5).",
    ),
    "a lone observation with several actions": (
        lambda: fitted(TD3).predict_value(np.zeros(5, np.float32), np.zeros((2, 3), np.float32)),
        DataError,
        "Actions have the shape (1, 2, 3); 1 observations go with (1, 3).",
    ),
    "another action to value": (
        lambda: fitted(TD3).predict_value(np.zeros((3, 5), np.float32), np.zeros((3, 2), np.float32)),
        DataError,
        "Actions have the shape (3, 2); 3 observations go with (3, 3).",
    ),
    "a dataset with other observations": (
        lambda: fitted(TD3).fit(tiny_dataset(discrete=False, observation_size=4), 1),
        DataError,
        "'tiny' has observations of shape [4], and this TD3 was fitted on observations of shape [5].",
    ),
    "a dataset with other actions": (
        lambda: fitted(TD3).fit(tiny_dataset(discrete=False, actions=2), 1),
        DataError,
        "'tiny' has actions of shape [2], and this TD3 was fitted on actions of shape [3].",
    ),
    "a dataset with more actions": (
        lambda: fitted(DQN).fit(tiny_dataset(discrete=True, actions=4), 1),
        DataError,
        "'tiny' has actions of 4 kinds, and this DQN was fitted on actions of 3 kinds.",
    ),
    "a dataset with other observations, for a stack": (
        lambda: Stack(maker(TD3)(), (1, 2)).fit(CONTINUOUS, 1).fit(tiny_dataset(discrete=False, observation_size=4), 1),
        DataError,
        "'tiny' has observations of shape [4], and this TD3 was fitted on observations of shape [5].",
    ),
    "an argument that there is not": (
        lambda: TD3().fit(CONTINUOUS, n_step=1),  # pyright: ignore[reportCallIssue]
        ConfigError,
        "fit takes no 'n_step'; did you mean 'n_steps'?",
    ),
    "an argument that there is not, for a stack": (
        lambda: Stack(maker(TD3)(), (1, 2)).fit(CONTINUOUS, n_step=1),  # pyright: ignore[reportCallIssue]
        ConfigError,
        "fit takes no 'n_step'; did you mean 'n_steps'?",
    ),
    "predicting before fit": (lambda: TD3().predict(np.zeros((1, 5))), ConfigError, UNFITTED),
    "sampling before fit": (lambda: TD3().sample_action(np.zeros((1, 5))), ConfigError, UNFITTED),
    "valuing before fit": (lambda: TD3().predict_value(np.zeros((1, 5)), np.zeros((1, 3))), ConfigError, UNFITTED),
    "saving before fit": (lambda: TD3().save("never-written"), ConfigError, UNFITTED),
    "exporting before fit": (lambda: TD3().save_policy("never-written.onnx"), ConfigError, UNFITTED),
    "a learning rate of 0": (
        lambda: TD3(actor_learning_rate=0.0).fit(CONTINUOUS, 1),
        ConfigError,
        "TD3: actor_learning_rate is 0.0; input should be greater than 0.",
    ),
    "a negative learning rate": (
        lambda: DQN(learning_rate=-1e-3).fit(DISCRETE, 1),
        ConfigError,
        "DQN: learning_rate is -0.001; input should be greater than 0.",
    ),
    "a learning rate of 0 in a row of a stack": (
        lambda: Stack(DQN(), (1, 2), [{}, {"learning_rate": 0.0}]),
        ConfigError,
        "DQN: learning_rate is 0.0; input should be greater than 0.",
    ),
    "an ensemble of zero": (
        lambda: TD3(n_critics=0).fit(CONTINUOUS, 1),
        ConfigError,
        "TD3: n_critics is 0; input should be greater than 0.",
    ),
    "an unknown setting": (lambda: TD3(learning_rat=1.0), ConfigError, "TD3 has no setting 'learning_rat'"),
    "NaN in a reward": (
        lambda: fitted(TD3).update(batch_with("reward", float("nan"))),
        DataError,
        "The batch's reward is NaN or infinite in 1 of 16 rows, first in row 2.",
    ),
    "infinity in an observation": (
        lambda: fitted(TD3).update(batch_with("observation", float("inf"))),
        DataError,
        "The batch's observation is NaN or infinite in 1 of 16 rows, first in row 2.",
    ),
    "values of what learns none": (
        lambda: fitted(BC).predict_value(np.zeros((1, 5)), np.zeros((1, 3))),
        ConfigError,
        "BC learns no values, so there is nothing to predict.",
    ),
    "evaluating where observations are others": (
        lambda: evaluate(fitted(TD3).policy(), environment(observation_size=4), episodes=1),
        DataError,
        "'the environment' has observations of shape [4], and this policy was fitted on observations of shape [5].",
    ),
    "evaluating where actions are others": (
        lambda: evaluate(fitted(TD3).policy(), environment(action_size=2), episodes=1),
        DataError,
        "'the environment' has actions of shape [2], and this policy was fitted on actions of shape [3].",
    ),
    "evaluating where actions are of the other kind": (
        lambda: evaluate(fitted(TD3).policy(), environment(kinds=3), episodes=1),
        DataError,
        "'the environment' has actions of 3 kinds, and this policy was fitted on actions of shape [3].",
    ),
    "evaluating where there are fewer actions": (
        lambda: evaluate(fitted(DQN).policy(), environment(kinds=2), episodes=1),
        DataError,
        "'the environment' has actions of 2 kinds, and this policy was fitted on actions of 3 kinds.",
    ),
    "an evaluator of an environment by name": (
        lambda: EnvironmentEvaluator("Pendulum-v1", episodes=1)(fitted(TD3), 1),
        DataError,
        "'Pendulum-v1' has actions of shape [1], and this policy was fitted on actions of shape [3].",
    ),
    "training online where actions are of the other kind": (
        lambda: maker(DQN)().fit_online("Pendulum-v1", n_steps=1, n_steps_per_epoch=1),
        DataError,
        "DQN needs discrete actions, and 'Pendulum-v1' has continuous ones; choose from AWAC, ",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_says_what_is_wrong(case: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    act, kind, sentence = CASES[case]
    with pytest.raises(kind) as caught:
        act()
    said = str(caught.value)
    assert said == sentence if sentence.endswith(".") else said.startswith(sentence)
    assert "\n" not in said
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
