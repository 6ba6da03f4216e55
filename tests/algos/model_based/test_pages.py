"""COMBO's and MOBILE's equations beside loops, MOPO beside SAC, and presets beside their tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from d3ray import COMBO, CQL, MOBILE, MOPO, RAMBO, SAC, MOReL
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.networks.q_functions import reduced
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError

DATA = tiny_dataset(discrete=False)


def looked(made: Any, part: Any) -> tuple[Any, Any, Any]:
    """What a part of a loss gives at a batch, the batch, and nets that draw what it drew."""
    learner, batch = made.fit_.learner, made.fit_.sampler(DATA).sample(8)
    key = learner.address(part)
    nets: Any = learner._nets(key, learner._h)
    with torch.no_grad():
        found = part(nets, batch, learner._h) if part.__name__ != "gap" else part(nets, batch)
    return found, batch, learner._nets(key, learner._h)


@pytest.mark.parametrize("pushed", ["all", "generated"])
def test_combos_gap_pushes_where_it_is_asked_and_raises_at_the_data(pushed: Any) -> None:
    rollouts = {"horizon": 2, "n_transitions": 8, "interval": 7, "real": 0.25}
    made = maker(COMBO, pushed=pushed, rollouts=rollouts)(dtype="float64").fit(DATA, 9, 9)
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


@pytest.mark.parametrize("page", [MOPO, COMBO, MOBILE, MOReL, RAMBO])
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


@pytest.mark.parametrize("page", [MOPO, COMBO, MOBILE, MOReL, RAMBO])
def test_losses_are_read_on_data_that_are_held_out(page: Any) -> None:
    """Where nothing is generated: MOBILE's critic then has no cost, and COMBO's gap is CQL's."""
    train, test = DATA.split(0.3, seed=0)
    made = maker(page)().fit(train, 9, 9, {"held_out": HeldOut(test)})
    told = {name: values for name, values in made.eval_results_.items() if name.startswith("held_out/")}
    assert np.isfinite([values[-1] for values in told.values()]).all()
    assert "held_out/critic_loss" in told


def test_morel_halts_where_members_disagree_more_than_on_the_data() -> None:
    made = maker(MOReL, pessimism=0.6, halt_reward=-7.0)().fit(DATA, 9, 9)
    model, config = made.guests(made.config_, 0)["dynamics"], made.config_
    steps = ~np.asarray(DATA.columns["closing"], bool)
    seen, action = (torch.from_numpy(np.asarray(DATA.columns[name])[steps]) for name in ("observation", "action"))
    with torch.no_grad():
        told = model(seen, action).following.numpy()
    apart = [max(np.linalg.norm(a[k] - b[k]) for a in told for b in told) for k in range(len(seen))]
    ends = np.asarray(DATA.episodes.final_recorded) | np.asarray(DATA.episodes.terminated)
    assert ends.all()  # so all transitions are looked at
    assert config.largest_disagreement == pytest.approx(max(apart), rel=1e-5)
    rows = made.fit_.sampler(DATA)._columns
    with torch.no_grad():
        unknown = model(rows["observation"], rows["action"]).disagreement() > 0.6 * max(apart)
    made_of = slice(0, made.fit_.sampler(DATA)._filled())
    assert 0 < int(unknown[made_of].sum()) < len(unknown[made_of])
    np.testing.assert_array_equal((rows["reward"] == -7.0)[made_of], unknown[made_of])
    assert float(rows["discount"][made_of][unknown[made_of]].abs().max()) == 0


def test_rambos_loss_is_that_of_a_loop() -> None:
    made = maker(RAMBO, adversary_weight=0.3, bound_weight=0.2)(dtype="float64").fit(DATA, 9, 9)
    (found, metrics), batch, nets = looked(made, made.model_loss)
    model, gamma = made.fit_.learner.modules["dynamics"], 0.99
    members, n = model.members, len(batch.reward)
    drawn = {
        "action": nets.noise("action against it", batch.action.shape),
        "member": nets.uniform("member against it", (n,)),
        "outcome": nets.noise("outcome against it", (n, 6)).to(model.dtype),
    }
    real, kept, density, better = batch.extra["real"], 0.0, [], []

    def least(seen: torch.Tensor, action: torch.Tensor) -> float:
        return float(reduced(nets.critic(seen[None].double(), action[None].double()), "min"))

    with torch.no_grad():
        for i in range(n):
            seen = batch.observation[i].to(model.dtype)
            if real[i]:
                told = model.told(seen[None], batch.action[i : i + 1])
                goal = torch.cat((batch.next_observation[i] - batch.observation[i], batch.reward[i : i + 1])).to(model.dtype)
                goal = goal / model.units
                goal[-1] += model.reward.shift
                for k in range(members):
                    spread = told.log_variance[k, 0]
                    kept += float(((goal - told.mean[k, 0]) ** 2 * (-spread).exp() + spread).mean()) / float(real.sum())
            action, _ = nets.policy(batch.observation[i : i + 1]).sample_with_log_prob(drawn["action"][i : i + 1])
            told, k = model.told(seen[None], action), int(drawn["member"][i] * members)
            goal = told.mean[k, 0] + drawn["outcome"][i] * (0.5 * told.log_variance[k, 0]).exp()
            each = [torch.distributions.Normal(told.mean[m, 0], (0.5 * told.log_variance[m, 0]).exp()) for m in range(members)]
            density.append(float(torch.stack([one.log_prob(goal).exp() for one in each]).mean(0).log().sum()))
            following = seen + (goal * model.units)[:-1]
            paid = float(goal[-1] * model.units[-1]) - model.reward.shift / model.reward.scale
            ended = float(
                model.ended(
                    following[None],
                    told.end_logit[k].sigmoid(),
                    nets.uniform("end against it", (n,))[i : i + 1],
                )
            )
            then = following.double()
            value = least(then, nets.policy(then[None]).mode()[0])
            better.append(paid + gamma * (1 - ended) * value - least(batch.observation[i], action[0]))
        made_up = np.flatnonzero(real.numpy() == 0)
        chosen = np.array(better)[made_up]
        advantage = (chosen - chosen.mean()) / (chosen.std(ddof=1) + 1e-6)
        adversary = float((np.array(density)[made_up] * advantage).sum())
        wanted = kept + 0.2 * float(model.spread()) + 0.3 * adversary
    assert float(metrics["model_nll"]) == pytest.approx(kept, rel=1e-5)
    assert float(metrics["adversary"]) == pytest.approx(adversary, rel=1e-3, abs=1e-3)
    assert float(found) == pytest.approx(wanted, rel=1e-4)


def test_rambos_adversary_makes_what_is_better_than_expected_less_likely() -> None:
    """Values are 10 times the first entry of what follows: with a large λ the model comes to expect less of it than without."""
    means = []
    for weight in (0.0, 3.0):
        made = maker(RAMBO, adversary_weight=weight, model_learning_rate=1e-3, model_optimizer="adam")(seed=1)
        made.build_with_dataset(DATA)
        for parameters in (made.fit_.learner.live["critic"],):
            for name, tensor in parameters.items():
                tensor.requires_grad_(False).zero_()
                if name.endswith("0.weight"):
                    tensor[:, 0, 0], tensor[:, 0, 1] = 1.0, -1.0
                elif name.endswith("2.weight"):
                    tensor[:, 0, 0] = tensor[:, 1, 1] = 1.0
                elif name.endswith("head.weight"):
                    tensor[:, 0], tensor[:, 1] = 10.0, -10.0
                tensor.requires_grad_(True)
        source = made.fit_.sampler(DATA)
        for step in range(40):
            made.adversary(made.fit_.learner, source.sample(0))
            made.fit_.learner.step = step + 1
        made.fit_.learner.step = 0
        seen = torch.from_numpy(np.asarray(DATA.columns["observation"])[:200])
        with torch.no_grad():
            action = made.fit_.nets().policy(seen).mode()
            means.append(float(made.fit_.learner.modules["dynamics"](seen, action).following[..., 0].mean()))
    assert means[1] < means[0] - 0.02
