"""Presets beside the numbers of their sources, typed by hand from the files that they name."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import AWAC, AWR, BCQ, BEAR, CQL, CRR, DQN, EDAC, IQL, MCQ, PLAS, SACN, SPOT, XQL, CalQL, DecisionTransformer, ReBRAC
from d3ray.algos.config import Preset
from d3ray.algos.critics import RATE, ActorCriticConfig
from d3ray.algos.generative.fql import FQL
from d3ray.algos.goal_conditioned.gciql import GCIQL
from d3ray.algos.goal_conditioned.hindsight import GoalMixture
from d3ray.algos.goal_conditioned.hiql import HIQL
from d3ray.algos.networks.encoders import DefaultEncoder, VectorEncoder
from d3ray.algos.presets import TaskPresets
from d3ray.algos.values.dqn import DQNConfig
from d3ray.data.errors import ConfigError

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


# ---- tables beside the pages

TABLE = """
DQN:
  - source: "a paper, {task}.yml"
    base: paper
    presets:
      d4rl-pong: {batch_size: 64, learning_rate: 1e-4}
      breakout: {}
  - source: other
    base: &wide {encoder: {hidden_units: [8, 4]}, optimizer: adam}
    presets:
      on: {reward_scaler: {name: multiply, multiplier: 2.0}}
  - source: more
    base: *wide
    presets:
      off: {optimizer: sgd, tau: 1e-3}
"""


def of_tasks(folder: Path, table: str = TABLE) -> Any:
    (folder / "presets.yaml").write_text(table)
    return {"paper": Preset("a paper", {"batch_size": 16, "gamma": 0.9})} | TaskPresets(str(folder / "page.py"), DQNConfig)


def test_a_table_is_read_group_by_group_after_what_the_page_writes(tmp_path: Path) -> None:
    wide = VectorEncoder(hidden_units=(8, 4))
    assert dict(of_tasks(tmp_path)) == {
        "paper": Preset("a paper", {"batch_size": 16, "gamma": 0.9}),
        "d4rl-pong": Preset("a paper, pong.yml", {"batch_size": 64, "gamma": 0.9, "learning_rate": 1e-4}),
        "breakout": Preset("a paper, breakout.yml", {"batch_size": 16, "gamma": 0.9}),
        "on": Preset("other", {"encoder": wide, "optimizer": "adam", "reward_scaler": {"name": "multiply", "multiplier": 2.0}}),
        "off": Preset("more", {"encoder": wide, "optimizer": "sgd", "tau": 1e-3}),
    }
    assert list(of_tasks(tmp_path)) == ["paper", "d4rl-pong", "breakout", "on", "off"]


def test_a_preset_of_a_table_makes_an_algorithm(tmp_path: Path) -> None:
    class OfTasks(DQN):
        presets = of_tasks(tmp_path)

    one = config(OfTasks, "off")
    assert (one.encoder, one.optimizer.name, one.tau) == (VectorEncoder(hidden_units=(8, 4)), "sgd", 1e-3)
    with pytest.raises(ConfigError, match="has no preset 'breakouts'; did you mean 'breakout'"):
        OfTasks.from_preset("breakouts")


@pytest.mark.long
def test_tables_are_read_when_a_preset_is_asked_for() -> None:
    code = """
import sys
from d3ray import ReBRAC
ReBRAC(actor_beta=0.1).check_settings()
assert "ruamel.yaml" not in sys.modules
assert ReBRAC.presets["d4rl-walker2d-random"].settings == {"actor_beta": 0.01, "critic_beta": 0.0}
assert "ruamel.yaml" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_every_entry_of_the_tables_is_a_preset_of_its_own() -> None:
    of_task = {AWR: 4, BEAR: 2, CQL: 2, CalQL: 2, DecisionTransformer: 4, EDAC: 31, FQL: 33, IQL: 5, MCQ: 2, PLAS: 1}
    for algorithm, wanted in (of_task | {ReBRAC: 38, SACN: 30, SPOT: 15, XQL: 19}).items():
        general: Any = algorithm.presets._general
        assert len(algorithm.presets) - len(general) == wanted, algorithm.__name__
        for name, preset in algorithm.presets.items():
            assert preset.source, name
            algorithm.from_preset(name).check_settings()


def test_values_of_tables() -> None:
    """Rows that one looks up: what they change, and nothing else."""
    ant, hand = ReBRAC.presets["d4rl-antmaze-large-play"], ReBRAC.presets["d4rl-door-cloned"]
    assert ant.source == "authors' code 694385b, configs/rebrac/antmaze"
    rates = {"gamma": 0.999, "batch_size": 256, "actor_learning_rate": 3e-4, "critic_learning_rate": 5e-5}
    scaled = {"reward_scaler": {"name": "multiply", "multiplier": 100.0}}
    assert ant.settings == {"actor_beta": 0.002, "critic_beta": 0.001, **rates, **scaled}
    fast = {"batch_size": 256, "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}
    assert hand.settings == {"actor_beta": 0.01, "critic_beta": 0.1, **fast}
    maze = XQL.presets["d4rl-antmaze-medium-diverse"].settings
    shifted = {"reward_scaler": {"name": "constant_shift", "shift": -1.0}, "weight_temp": 10.0, "actor_optimizer": "adam"}
    assert maze == {**shifted, "gumbel_temp": 0.6, "n_value_updates": 4}
    assert XQL.presets["d4rl-kitchen-mixed"].settings["actor_encoder"] == VectorEncoder(dropout_rate=0.1)
    spot = SPOT.presets["d4rl-antmaze-large-play"]
    assert spot.source.endswith("configs/offline/antmaze-large-play.yml; not how its last layers begin")
    assert (spot.settings["support_weight"], spot.settings["imitator_encoder"].hidden_units) == (0.025, (750, 750))
    reacher = config(DecisionTransformer, "reacher")
    assert (reacher.context, reacher.target_returns, reacher.reward_scaler.multiplier) == (5, (76.0, 40.0), 0.1)
    assert isinstance(reacher.encoder, DefaultEncoder)
    giant, pen = FQL.presets["ogbench-antmaze-giant-navigate-singletask"], FQL.presets["d4rl-pen-expert"]
    assert giant.settings == {"alpha": 10.0, "gamma": 0.995, "target_value": "min"}
    assert pen.settings == {"alpha": 3000.0, "target_value": "min"}
    assert HIQL.presets["ogbench-humanoidmaze-giant-stitch"].settings == {
        **{"gamma": 0.995, "subgoal_steps": 100},
        "actor_goals": GoalMixture(future=0.5),
    }
    assert GCIQL.presets["ogbench-pointmaze-medium-navigate"].settings == {"alpha": 0.003}
    assert FQL.presets["ogbench-cube-single-play-singletask"].settings == {"alpha": 300.0}
    assert IQL.presets["antmaze-finetune"].settings == {**IQL.presets["antmaze"].settings, "actor_optimizer": "adam"}
    assert config(PLAS, "d3rlpy-paper-medium-replay").imitator_encoder.hidden_units == (128, 128)
    assert config(AWR, "walker2d").actor_learning_rate == 2.5e-5
