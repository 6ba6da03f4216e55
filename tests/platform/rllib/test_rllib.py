"""RLlib's settings, states, data and policies as d3ray has them; no trial runs, and Ray is not started."""

from __future__ import annotations

import copy
import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray import Dataset
from d3ray.algos.export.package import read_package
from d3ray.algos.export.packing import write_portable
from d3ray.data.errors import ConfigError, StorageError
from d3ray.data.spec import Box, Discrete, Environment, Spec
from d3ray.platform.places import Playground, environment_place, open_place
from d3ray.platform.rllib.offline import Transitions, fitted_scaler
from d3ray.platform.rllib.policy import Bounds, Filter, RllibPolicy, RllibPolicyModule
from d3ray.platform.rllib.settings import check_settings
from d3ray.platform.rllib.tree import decode, encode
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.subjects.kind import make_algorithm


def small_data() -> Dataset:
    """Three episodes: one that terminates, one that is cut with its last observation, one that is cut without."""
    steps, ends = np.arange(9, dtype=np.float32), np.zeros(9, bool)
    terminated, truncated = ends.copy(), ends.copy()
    terminated[2], truncated[[5, 8]] = True, True
    return Dataset.from_arrays(
        np.stack([steps, steps + 0.5], 1),
        (steps[:, None] - 4) / 2,  # in [-2, 2]
        10 * steps,
        terminated,
        truncated,
        next_observations=np.stack([steps + 1, steps + 1.5], 1),
        spec=Spec(observation=Box(shape=(2,)), action=Box(shape=(1,), low=-2.0, high=2.0)),
        name="small",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("APPO", {}), "did you mean 'rllib/APPO'"),
        (("rllib/PPPO", {}), "did you mean 'rllib/PPO'"),
        (("rllib/PPO", {"clip_parm": 0.2}), "has no setting 'clip_parm'; did you mean 'clip_param'"),
        (("rllib/PPO", {"training": {"clip_parm": 0.2}}), "did you mean 'clip_param'"),
        (("rllib/PPO", {"lr": 1e-3, "training": {"lr": 1e-4}}), "lr stands there twice"),
        (("rllib/PPO", {"model": {"fcnet_hidden": [8]}}), "did you mean 'fcnet_hiddens'"),
        (("rllib/PPO", {"preset": "paper"}), "has no presets"),
        (
            ("rllib/PPO", {"minibatch_size": 500, "train_batch_size_per_learner": 100}),
            "RLlib refuses these settings: `minibatch_size`",
        ),
        (("rllib/SAC", {"lr": 1e-3}), "RLlib refuses these settings: Basic learning rate"),
        (("rllib/BC", {"env_runners": 2}), "env_runners is 2, and it learns from a dataset alone"),
        (("rllib/PPO", {"env_runners": -1}), "env_runners is -1"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: tuple[str, dict[str, Any]], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")):
        make_algorithm({"name": given[0], **given[1]}, seed=0)


def test_settings_are_rllibs_own_and_written_out() -> None:
    settings = check_settings("rllib/PPO", {"lr": 3e-4, "training": {"gamma": 0.9}, "env_runners": 1})
    written = settings.model_dump(mode="json")
    assert (written["lr"], written["gamma"], written["clip_param"]) == (3e-4, 0.9, 0.3)
    assert check_settings("rllib/PPO", {**json.loads(json.dumps(written)), "dtype": "float32"}) == settings
    config = make_algorithm({"name": "rllib/DQN", "epsilon": [[0, 1.0], [500, 0.1]]}, seed=0).check_settings()
    assert config.model_dump()["epsilon"] == [[0, 1.0], [500, 0.1]]
    assert config.model_dump()["store_buffer_in_checkpoints"] is True


def test_an_environment_stands_in_a_datasets_place_only_where_one_learns_in_it() -> None:
    config = ExperimentConfig.checked({"algorithm": "rllib/PPO", "evaluation": "CartPole-v1"})
    assert config.experiment == "rllib-PPO-CartPole-v1"
    place = open_place(config.dataset_place)
    assert isinstance(place, Playground)
    assert place.spec.n_actions == 2
    assert place.fingerprint == open_place(environment_place(Environment(id="CartPole-v1"))).fingerprint
    for wrong, said in (
        ({"algorithm": "rllib/BC", "evaluation": "CartPole-v1"}, "dataset"),
        ({"algorithm": "DQN"}, "dataset"),
        ({"algorithm": "rllib/PPO"}, "no place for rllib/PPO to learn in"),
        ({"algorithm": "rllib/PPO", "evaluation": {"environment": "CartPole-v1", "holdout": 0.1}}, "holdout is 0.1"),
    ):
        with pytest.raises(ConfigError, match=said):
            ExperimentConfig.checked(wrong)


def test_a_state_comes_back_as_it_was() -> None:
    state = {
        "numbers": [1, 2.5, True, None, "text", float("nan"), float("-inf"), 2**200],
        3: (np.float32(1.5), np.int64(7), {1, 2}),
        (0, "a"): deque([1, 2, 3], maxlen=5),
        "arrays": {
            "f": np.arange(6, dtype=np.float32).reshape(2, 3),
            "u": np.array([2**31], np.uint32),
            "text": np.array(["ab", "c"]),
        },
        "objects": np.array([{"a": 1}, None], dtype=object),
        "empty": np.zeros((0, 3)),
        "long": {"ints": list(range(40)), "floats": [i / 7 for i in range(40)], "pairs": [(i, -i) for i in range(40)]},
        "infos": [{} for _ in range(40)],
        "rows": [np.full(3, i, np.float32) for i in range(40)],
        "tensor": torch.arange(3),
    }
    tensors, tree = encode(state, "rllib")
    back = decode(tensors, json.loads(json.dumps(tree, allow_nan=False)))
    assert repr(back) == repr(state)  # types, order, NaN and all
    assert back[(0, "a")].maxlen == 5
    with pytest.raises(StorageError, match="has a PosixPath at rllib/a/b"):
        encode({"a": {"b": Path()}}, "rllib")


def test_batches_are_what_the_dataset_holds() -> None:
    data = small_data()
    drawn = Transitions(data, 0, fitted_scaler(data))
    batch = {name: tensor.numpy() for name, tensor in drawn.batch(4000).items()}
    step = batch["obs"][:, 0]
    np.testing.assert_array_equal(np.unique(step), np.arange(9))
    np.testing.assert_array_equal(batch["new_obs"], np.stack([step + 1, step + 1.5], 1))
    np.testing.assert_array_equal(batch["rewards"], 10 * step)
    np.testing.assert_allclose(batch["actions"][:, 0], (step - 4) / 4, atol=1e-7)
    np.testing.assert_array_equal(batch["terminateds"], step == 2)
    np.testing.assert_array_equal(batch["truncateds"], (step == 5) | (step == 8))
    assert np.abs(np.bincount(step.astype(int)) - 4000 / 9).max() < 100  # uniform: five deviations are 99
    again = Transitions(data, 0, fitted_scaler(data))
    first, second = again.batch(64), again.batch(64)
    assert not torch.equal(first["obs"], second["obs"])
    again.step = 0
    assert torch.equal(again.batch(64)["obs"], first["obs"])
    assert not torch.equal(Transitions(data, 1, fitted_scaler(data)).batch(64)["obs"], first["obs"])


def test_a_step_without_its_next_observation_is_not_drawn() -> None:
    ends = np.array([False, False, True, False, False, True])
    steps = np.arange(6, dtype=np.float32)
    data = Dataset.from_arrays(steps[:, None], np.arange(6) % 2, steps, np.zeros(6, bool), ends, name="blind")
    batch = Transitions(data, 0, None).batch(500)
    assert set(batch["obs"][:, 0].tolist()) == {0.0, 1.0, 3.0, 4.0}
    assert batch["actions"].dtype == torch.int64


@pytest.mark.parametrize("longest", [1, 2, 50])
def test_fragments_are_pieces_of_episodes_of_as_many_rows_as_asked(longest: int) -> None:
    data = small_data()
    drawn = Transitions(data, 0, fitted_scaler(data))
    for count in (2, 3, 7, 64):
        pieces = drawn.fragments(count, longest)
        assert sum(len(piece) + 1 for piece in pieces) == count
        for piece in pieces:
            observation = piece.get_observations()[:, 0]
            np.testing.assert_array_equal(np.diff(observation), 1)
            last = observation[-2]
            assert (piece.is_terminated, piece.is_truncated) == (last == 2, last in (5, 8))
            assert {int(step) // 3 for step in observation[:-1]} == {int(observation[0]) // 3}  # of one episode
            np.testing.assert_array_equal(piece.get_rewards(), 10 * observation[:-1])


def module(kind: str, spec: Spec) -> Any:
    """An untrained module of RLlib."""
    import gymnasium
    from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
    from ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    cls = {"PPO": DefaultPPOTorchRLModule, "SAC": DefaultSACTorchRLModule}[kind]
    action: Any = gymnasium.spaces.Box(-2, 2, (1,)) if isinstance(spec.action, Box) else gymnasium.spaces.Discrete(spec.n_actions)
    extra = {"twin_q": True} if kind == "SAC" else {}
    torch.manual_seed(0)
    return cls(
        observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (3,)),
        action_space=action,
        model_config={**vars(DefaultModelConfig(fcnet_hiddens=[8])), **extra},
    )


SEEN = Filter(np.array([1.0, -2.0, 0.0]), np.array([0.5, 2.0, 1.0]), 10.0)
BOUNDS = Bounds(np.array([-2.0]), np.array([2.0]), scales=True)
CONTINUOUS = Spec(observation=Box(shape=(3,)), action=Box(shape=(1,), low=-2.0, high=2.0))
DISCRETE = Spec(observation=Box(shape=(3,)), action=Discrete(n=4))


@pytest.mark.parametrize(
    ("kind", "spec", "bounds", "seen"),
    [("SAC", CONTINUOUS, BOUNDS, None), ("PPO", CONTINUOUS, BOUNDS, SEEN), ("PPO", DISCRETE, None, None)],
    ids=["squashed", "filtered", "discrete"],
)
def test_an_exported_policy_acts_as_rllibs_module_does(
    tmp_path: Path, kind: str, spec: Spec, bounds: Bounds | None, seen: Filter | None
) -> None:
    from d3ray.platform.rllib.export import portable

    one = module(kind, spec)
    policy = RllibPolicy(RllibPolicyModule(one, spec, bounds, seen, f"rllib/{kind}"), torch.device("cpu"))
    about: dict[str, Any] = {"algorithm": f"rllib/{kind}", "config": {}, "seed": 0, "step": 1, "dtype": "float32"}
    write_portable(portable(policy), tmp_path / "p", **about, networks=("module",), scalers={"observation": None, "action": None})
    observation = 5 * np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)
    # by hand: filter, the module's own numbers, mode, and the way to the bounds
    x = observation if seen is None else np.clip((observation - seen.mean) / seen.std, -10, 10).astype(np.float32)
    numbers = one.forward_inference({"obs": torch.as_tensor(x)})["action_dist_inputs"].detach().numpy()
    if isinstance(spec.action, Box):
        mode = np.tanh(numbers[:, :1]) if kind == "SAC" else numbers[:, :1]
        wanted = np.clip(2 * mode, -2, 2)
        np.testing.assert_allclose(read_package(tmp_path / "p").predict(observation), wanted, atol=1e-5)
    else:
        clear = np.sort(numbers, 1)[:, -1] - np.sort(numbers, 1)[:, -2] > 1e-5
        np.testing.assert_array_equal(read_package(tmp_path / "p").predict(observation)[clear], numbers.argmax(1)[clear])


def test_a_policy_that_acts_otherwise_than_the_module_is_not_written() -> None:
    from d3ray.platform.rllib.export import portable

    class Unscaled(RllibPolicy):
        def portable(self, dtype: torch.dtype = torch.float32) -> RllibPolicyModule:
            clips = Bounds(BOUNDS.low, BOUNDS.high, scales=False)
            return RllibPolicyModule(copy.deepcopy(self.module.module), CONTINUOUS, clips, SEEN, "rllib/PPO").to(dtype)

    one = RllibPolicyModule(module("PPO", CONTINUOUS), CONTINUOUS, BOUNDS, SEEN, "rllib/PPO")
    policy = Unscaled(one, torch.device("cpu"))
    with pytest.raises(StorageError, match="does not act as the policy did"):
        portable(policy)
