"""Presets beside the numbers of their sources, typed by hand from the files that they name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from d3ray import AWAC, BCQ, BEAR, CQL, CRR, EDAC, MCQ, SACN, CalQL
from d3ray.algos.actor_critic.shared import RATE, ActorCriticConfig

LOG_STD = (-5.0, 2.0)


def config(algorithm: Any, preset: str) -> Any:
    return algorithm.from_preset(preset).check_settings()


def hidden(config: Any) -> list[tuple[int, ...]]:
    return [config.actor_encoder.hidden_units, config.critic_encoder.hidden_units]


def test_cql() -> None:
    paper, maze = config(CQL, "paper"), config(CQL, "d4rl-antmaze")
    for one in (paper, maze):
        assert (one.log_std_bounds, one.cloning_steps, one.backup) == (LOG_STD, 40_000, "sampled")
        assert hidden(one) == [(256, 256, 256)] * 2
        assert (one.actor_learning_rate, one.critic_learning_rate, one.conservative_weight) == (1e-4, 3e-4, 5.0)
    assert not paper.learn_alpha
    assert maze.learn_alpha
    assert maze.conservative_weight * maze.alpha_threshold == 5.0  # --lagrange_thresh, which bounds ω G
    assert maze.alpha_learning_rate == maze.critic_learning_rate
    assert maze.reward_scaler.transform(np.array([0.0, 1.0])).tolist() == [-2.0, 2.0]  # (r - 0.5) · 4
    theirs, medium = config(CQL, "d3rlpy-paper"), config(CQL, "d3rlpy-paper-medium")
    assert (theirs.conservative_weight, medium.conservative_weight) == (5.0, 10.0)  # Table 4: α = 5, and 10 for medium datasets
    assert medium == theirs.model_copy(update={"conservative_weight": 10.0})
    old = config(CQL, "d3rlpy-2020")
    assert old.alpha_threshold == 10 + math.log(3 * old.n_action_samples)  # of a mean there, of a sum here


def test_bear() -> None:
    for name, kernel in (("paper", "laplacian"), ("paper-halfcheetah", "gaussian")):
        one = config(BEAR, name)
        assert (one.log_std_bounds, one.mmd_kernel, one.mmd_sigma, one.n_action_samples) == (LOG_STD, kernel, 20.0, 100)
        assert (one.learn_temperature, one.initial_temperature, one.imitator_encoder.hidden_units) == (False, 0.0, (750, 750))
    assert 2 * config(BEAR, "d3rlpy-2020").mmd_sigma == 2 * 20.0**2  # exp(-d² / 2σ²) there, exp(-d² / 2σ) here


def test_edacs_own_of_pen_human() -> None:
    """Its README's command; `--plr` is the rate of the policy, and lifelong_rl's trainer steps the temperature at it too."""
    one = config(EDAC, "pen-human")
    assert (one.n_critics, one.eta, one.actor_learning_rate, one.temp_learning_rate) == (20, 1000.0, 3e-5, 3e-5)


def test_mcq() -> None:
    paper = config(MCQ, "paper")
    assert hidden(paper) == [(400, 400, 400)] * 2  # Net(layer_num=2): a layer, and two more
    assert (paper.log_std_bounds, paper.lam, paper.floor_at_zero) == (LOG_STD, 0.7, True)
    assert config(MCQ, "d4rl-hopper-medium-replay") == paper.model_copy(update={"lam": 0.9})


def test_awac_and_crr() -> None:
    assert config(AWAC, "paper").lam == 2.0  # search_space: 'trainer_kwargs.beta': [2, ]
    assert (config(AWAC, "d3rlpy").lam, config(AWAC, "d3rlpy-paper").lam) == (1.0, 1.0)
    assert (config(CRR, "d3rlpy").tau, config(CRR, "d3rlpy").target_update_interval) == (1.0, 100)


SAC_N = {"halfcheetah-medium-expert": 10, "hopper-medium": 500, "hopper-medium-replay": 200, "hopper-medium-expert": 200}
SAC_N |= {"walker2d-medium-replay": 20, "antmaze-large-play": 25, "maze2d-umaze": 25, "pen-human": 100, "relocate-expert": 100}
N_AND_ETA = {
    "halfcheetah-medium": (10, 1.0),
    "halfcheetah-medium-expert": (10, 5.0),
    "hopper-medium": (50, 1.0),
    "hopper-medium-expert": (50, 1.0),
    "walker2d-medium-replay": (10, 1.0),
    "walker2d-medium-expert": (10, 5.0),
    "maze2d-large": (10, 0.1),
    "antmaze-umaze": (10, 1.0),
    "pen-human": (20, 1000.0),
    "pen-cloned": (20, 10.0),
    "door-human": (50, 200.0),
}


@pytest.mark.parametrize(("algorithm", "chosen"), [(SACN, SAC_N), (EDAC, N_AND_ETA)])
def test_critics_by_task(algorithm: Any, chosen: dict[str, Any]) -> None:
    assert sum(name.startswith("d4rl-") for name in algorithm.presets) == 30  # CORL's configs
    for task, wanted in chosen.items():
        one = config(algorithm, f"d4rl-{task}")
        assert (one.n_critics if algorithm is SACN else (one.n_critics, one.eta)) == wanted, task


@pytest.mark.parametrize(("algorithm", "names"), [(AWAC, "ac45a9d"), (BEAR, "c93b9d2"), (BCQ, "4876f7e"), (CalQL, "ac6eafe")])
def test_inherited_settings_name_their_own_source(algorithm: Any, names: str) -> None:
    """The same default is another code's too, and the parent goes on naming its own."""
    for name in ("actor_learning_rate", "critic_learning_rate", "n_critics", "tau"):
        field, parents = (config.model_fields[name] for config in (algorithm.Config, ActorCriticConfig))
        assert names in field.json_schema_extra["source"], name
        assert parents.json_schema_extra == {"source": RATE}
    assert algorithm().check_settings().tau == 0.005
    assert "d67dbe9" in CQL.Config.model_fields["conservative_weight"].json_schema_extra["source"]
