"""What a fit settles and says before its first step: what follows from the first data, and what the settings make of no use."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from d3ray import BCQ, BEAR, CQL, IQL, PLAS, SPOT, TD3, XQL, Dataset, DecisionTransformer, PLASWithPerturbation, Stack, load
from d3ray.algos.testing import maker, tiny_arrays, tiny_dataset
from d3ray.data.errors import DataError

DATA = tiny_dataset(discrete=False)
BEST = float(DATA.statistics.return_.max)
SEEN = np.zeros(5, np.float32)


def still(name: str = "still") -> Dataset:
    """Data whose actions never vary."""
    arrays = tiny_arrays(False)
    arrays["actions"][:] = 0.25
    return Dataset.from_arrays(**arrays, name=name)


class Place(gymnasium.Env[Any, Any]):
    """The spaces of the tiny data."""

    observation_space = gymnasium.spaces.Box(-10, 10, (5,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)


# ---- the first data


@pytest.mark.parametrize("build", ["shapes", "environment", "dataset", "nothing"])
def test_the_first_data_settle_what_follows_from_data(build: str) -> None:
    """However the networks came to be: the largest return of the data is what a policy then asks for."""
    algorithm = maker(DecisionTransformer)()
    if build == "shapes":
        algorithm.build_with_shapes((5,), 3)
    elif build == "environment":
        algorithm.build_with_env(Place())
    elif build == "dataset":
        algorithm.build_with_dataset(DATA)
    algorithm.fit(DATA, 1)
    assert algorithm.config_.target_returns == (BEST,)
    assert algorithm.as_stateful_wrapper().predict(SEEN).shape == (3,)


def test_networks_of_shapes_alone_are_told_of_data_without_variety_once() -> None:
    algorithm = maker(BCQ)().build_with_shapes((5,), 3)
    with pytest.warns(UserWarning, match="BCQ keeps to the behaviour that its data show, and the actions of 'still' never vary"):
        algorithm.fit(still(), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        algorithm.fit(still("again"), 1)


def test_networks_of_shapes_alone_refuse_actions_out_of_reach() -> None:
    with pytest.raises(DataError, match=r"TD3 acts in \[-1, 1\], and actions of 'tiny' lie from"):
        maker(TD3)().build_with_shapes((5,), 3).fit(tiny_dataset(discrete=False, reach=2.0), 1)


def test_what_is_restored_has_met_its_data(tmp_path: Path) -> None:
    """A saved algorithm that has been trained asks for no other return, whatever it is trained on then."""
    algorithm = maker(DecisionTransformer)(target_returns=(7.0,)).build_with_shapes((5,), 3).fit(DATA, 1)
    algorithm.save(tmp_path / "trained")
    other = still()
    for restored in (load(tmp_path / "trained"), Stack(maker(DecisionTransformer)(), (0,)).load_state(*algorithm.state())):
        restored.fit_.config = restored.fit_.config.model_copy(update={"target_returns": None})
        restored.fit(other, 1)
        assert restored.fit_.config.target_returns is None  # the data were not looked at
    maker(DecisionTransformer)().build_with_shapes((5,), 3).save(tmp_path / "built")
    fresh = load(tmp_path / "built").fit(other, 1)
    assert fresh.config_.target_returns == (float(other.statistics.return_.max),)


# ---- settings that are of no use


def test_more_steps_than_timesteps_are_told_of() -> None:
    with pytest.warns(UserWarning, match="max_timestep is 3, and the longest episode of 'tiny' has 20 steps"):
        maker(DecisionTransformer)(max_timestep=3).fit(DATA, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        maker(DecisionTransformer)(max_timestep=20).fit(DATA, 0)


WARM = [(PLAS, "warmup_steps"), (PLASWithPerturbation, "warmup_steps"), (SPOT, "warmup_steps"), (BEAR, "warmup_steps")]


@pytest.mark.parametrize(("algorithm", "setting"), [*WARM, (BCQ, "rl_start_step"), (CQL, "cloning_steps")])
def test_a_training_that_ends_in_the_warm_up_is_told_of(algorithm: Any, setting: str) -> None:
    sentence = rf"{algorithm.__name__}: the policy learns nothing of rewards in the first 4 gradient steps \({setting}\), and this"
    made = maker(algorithm)(**{setting: 4})
    with pytest.warns(UserWarning, match=f"{sentence} training ends with step 4: ask for more n_steps, or set a smaller {setting}"):
        made.fit(DATA, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.step = 2
        made.fit(DATA, 2)  # it was told
        maker(algorithm)(**{setting: 4}).fit(DATA, 0).fit(DATA, 5)
        maker(algorithm)(**{setting: 0}).fit(DATA, 1)


def test_the_default_training_of_plas_is_told_of() -> None:
    """Its warm-up is as long as a fit by default, at which nothing else would show that its policy is the first one."""
    with pytest.warns(UserWarning, match="PLAS: .* first 500,000 gradient steps .* ends with step 500,000"):
        next(iter(PLAS(batch_size=2, compile_graph=False).fitter(DATA, n_steps_per_epoch=1)))
    with pytest.warns(UserWarning, match="PLAS: .* first 500,000"):
        Stack(PLAS(batch_size=2), (0, 1)).fit(DATA, 1)
    with pytest.warns(UserWarning, match="PLAS: .* first 500,000"):
        PLAS(batch_size=2, action_scaler="min_max").fit_online("Pendulum-v1", n_steps=1)


def with_schedule(schedule: dict[str, Any]) -> Any:
    return maker(IQL, actor_optimizer={"name": "adam", "schedule": schedule})()


@pytest.mark.filterwarnings("error")
def test_a_rate_that_has_fallen_to_0_is_told_of_once_and_not_by_the_run_that_ends_there() -> None:
    made = with_schedule({"name": "cosine", "duration": 4, "warm_up": 2}).fit(DATA, 3, 3).fit(DATA, 3, 3)
    before = made.state()[0]
    with pytest.warns(
        UserWarning,
        match="IQL: the learning rate of the network 'policy' is 0 from gradient step 6 on, where its cosine schedule ends, and "
        "this training goes on to step 8: .*longer schedule or none, .*by step = 0",
    ):
        made.fit(DATA, 2, 2)
    after = made.fit(DATA, 2, 2).state()[0]  # and no more is said
    moved = {name.split("/")[1] for name in before if name.startswith("live/") and not torch.equal(before[name], after[name])}
    assert moved == {"value", "critic"}
    made.step = 0
    assert any(not torch.equal(after[n], t) for n, t in made.fit(DATA, 2, 2).state()[0].items() if n.startswith("live/policy"))
    for schedule in ({"name": "linear", "duration": 2, "final": 0.1}, {"name": "warm_up", "warm_up": 2}):
        with_schedule(schedule).fit(DATA, 5, 5)


def test_a_training_that_runs_into_a_rate_of_0_is_told_of_online_and_in_a_stack() -> None:
    schedule = {"name": "linear", "duration": 3}
    with pytest.warns(UserWarning, match="IQL: .* 'policy' is 0 from gradient step 3 on, .* linear schedule ends, .* to step 4"):
        Stack(with_schedule(schedule), (0, 1)).fit(DATA, 4, 2)
    made = with_schedule(schedule).set_params(action_scaler="min_max")
    with pytest.warns(UserWarning, match="IQL: .* 'policy' is 0 from gradient step 3 on"):
        made.fit_online("Pendulum-v1", n_steps=4, n_steps_per_epoch=4)
    assert IQL().actor_optimizer.schedule.spent() == 1_000_000
    for algorithm, preset in ((IQL, "antmaze-finetune"), (XQL, "mujoco-finetune")):
        assert algorithm.from_preset(preset).check_settings().actor_optimizer.schedule is None
