"""COMBO's and MOBILE's equations beside loops, MOPO beside SAC, and presets beside their tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from d3ray import COMBO, CQL, MOBILE, MOPO, SAC
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.networks.q_functions import reduced
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError

DATA = tiny_dataset(discrete=False)


def looked(made: Any, part: Any) -> tuple[Any, Any, Any]:
    """What a part of a loss gives at a batch, the batch, and nets that draw what it drew."""
    learner, batch = made.fit_.learner, made.fit_.sampler(DATA).sample(8)
    key = learner.address(part)
    nets: Any = learner._nets({}, {}, {}, key, learner._h)
    with torch.no_grad():
        found = part(nets, batch, learner._h) if part.__name__ != "gap" else part(nets, batch)
    return found, batch, learner._nets({}, {}, {}, key, learner._h)


@pytest.mark.parametrize("pushed", ["all", "generated"])
def test_combos_gap_pushes_where_it_is_asked_and_raises_at_the_data(pushed: Any) -> None:
    made = maker(COMBO, pushed=pushed)(dtype="float64").fit(DATA, 9, 9)
    found, batch, nets = looked(made, made.gap)
    with torch.no_grad():
        high, data = made.sides(nets, batch)
    real = batch.extra["real"].bool()
    assert 0 < int(real.sum()) < len(real)
    for member in range(2):
        down = [float(high[member, i]) for i in range(len(real)) if pushed == "all" or not real[i]]
        up = [float(data[member, i]) for i in range(len(real)) if real[i]]
        assert float(found[member].mean()) == pytest.approx(np.mean(down) - np.mean(up), rel=1e-10)


def test_cqls_gap_is_the_difference_of_its_sides() -> None:
    made = maker(CQL)(dtype="float64").fit(DATA, 9, 9)
    found, batch, nets = looked(made, made.gap)
    with torch.no_grad():
        high, data = made.sides(nets, batch)
    assert torch.equal(found, high - data)


def test_mobiles_goal_is_lowered_by_what_members_disagree_on() -> None:
    made = maker(MOBILE, inconsistency_weight=0.7, lowest_goal=None, n_model_samples=3)(dtype="float64").fit(DATA, 9, 9)
    found, batch, nets = looked(made, made.goal)
    model = made.guests(made.config_, 0)["dynamics"]
    told = model(batch.observation, batch.action)
    noise = nets.noise("what follows", (3, *told.following.shape)).to(told.following.dtype)
    there = nets.noise("action there", (3 * told.following.shape[0] * len(batch.reward), 3))
    next_noise, members, n = nets.noise("next action", batch.action.shape), len(told.following), len(batch.reward)

    def value(seen: torch.Tensor, drawn: torch.Tensor) -> float:
        action, _ = nets.policy(seen[None]).sample_with_log_prob(drawn[None])
        return float(reduced(nets.target.critic(seen[None], action), "min"))

    with torch.no_grad():
        for i in range(n):
            expected = []
            for member in range(members):
                values = []
                for k in range(3):
                    seen = told.following[member, i] + noise[k, member, i] * told.deviation[member, i, :-1]
                    values.append(value(seen.double(), there[(k * members + member) * n + i]))
                expected.append(np.mean(values))
            cost = 0.7 * np.std(expected, ddof=1) * (1 - float(batch.extra["real"][i]))
            goal = float(batch.reward[i]) - cost + float(batch.discount[i]) * value(batch.next_observation[i], next_noise[i])
            assert float(found.atoms[..., i].squeeze()) == pytest.approx(goal, rel=1e-8)


def test_mobiles_goals_have_a_bound() -> None:
    made = maker(MOBILE, lowest_goal=5.0)(dtype="float64").fit(DATA, 9, 9)
    found, _, _ = looked(made, made.goal)
    assert float(found.atoms.min()) == 5.0


def test_mopo_is_sac_on_its_rollouts() -> None:
    settings = maker(MOPO)().get_params()
    mine = MOPO(**settings).fit(DATA, 9, 9)
    plain = SAC(**settings).fit(DATA, 9, 9)
    states = [one.fit_.learner.state() for one in (mine, plain)]
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    assert MOPO().rollouts.penalty == "aleatoric"


@pytest.mark.parametrize("page", [MOPO, COMBO, MOBILE])
def test_nothing_begins_without_a_model(page: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{page.__name__} learns in a model: train a ProbabilisticEnsemble"):
        page().fit(DATA, 1)


def test_presets_are_those_of_the_tables() -> None:
    assert {name.removeprefix("d4rl-") for name in MOPO.presets if name != "paper"} == {
        f"{body}-{kind}"
        for body in ("halfcheetah", "hopper", "walker2d")
        for kind in ("random", "medium", "medium-replay", "medium-expert")
    }
    walker = MOPO.from_preset("d4rl-walker2d-medium-expert").rollouts  # examples/config/d4rl/walker2d_medium_expert.py
    assert (walker.horizon, walker.lam, walker.real, walker.penalty) == (1, 2.0, 0.05, "aleatoric")
    hopper = MOBILE.from_preset("d4rl-hopper-medium")  # configs/gym/hopper_medium.py
    assert (hopper.inconsistency_weight, hopper.rollouts.horizon, hopper.learn_temperature) == (1.5, 5, False)
    cheetah = COMBO.from_preset("d4rl-halfcheetah-medium-replay")  # run_example/run_combo.py
    assert (cheetah.conservative_weight, cheetah.rollouts.horizon, cheetah.rollouts.real) == (0.5, 5, 0.5)


@pytest.mark.parametrize("page", [MOPO, COMBO, MOBILE])
def test_losses_are_read_on_data_that_are_held_out(page: Any) -> None:
    """Where nothing is generated: MOBILE's critic then has no cost, and COMBO's gap is CQL's."""
    train, test = DATA.split(0.3, seed=0)
    made = maker(page)().fit(train, 9, 9, {"held_out": HeldOut(test)})
    told = {name: values for name, values in made.eval_results_.items() if name.startswith("held_out/")}
    assert np.isfinite([values[-1] for values in told.values()]).all()
    assert "held_out/critic_loss" in told
