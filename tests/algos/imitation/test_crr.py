"""How CRR acts: by its policy's mean, or by a draw that its critics choose."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax

from d3ray.algos import testing
from d3ray.algos.export.package import read_package, read_record
from d3ray.algos.export.packing import write_package
from d3ray.algos.imitation.crr import CRR

DATA = testing.tiny_dataset(discrete=False)
SEEN = DATA.columns["observation"][:3]
MANY = 20_000


def trained(**settings):
    return testing.maker(CRR, **settings)(dtype="float64", seed=2).fit(DATA, 30)


def test_a_draw_is_chosen_by_the_softmax_of_its_value():
    """Of one state and three draws that stay, each is chosen as often as softmax(Q) says."""
    made = trained(action_choice="softmax", n_action_samples=3, n_critics=2)
    nets, rng = made.fit_.nets(), np.random.default_rng(0)
    seen = torch.from_numpy(SEEN[:1]).double().expand(MANY, -1)
    draws = torch.from_numpy(rng.standard_normal((1, 3, DATA.spec.action.shape[0])) * 2).expand(MANY, -1, -1)
    choice = torch.from_numpy(rng.uniform(1e-7, 1 - 1e-7, (MANY, 3)))
    with torch.no_grad():
        # A critic of large differences: choices by softmax(Q) are then far from equal shares.
        nets.critic._module.head.weight.mul_(40)
        mine = nets.policy(seen[:3]).sample(draws[0])
        values = np.array([nets.critic(seen[:1], action[None]).mean().item() for action in mine])
        taken, _ = made.act(nets, seen, {}, {"draws": draws, "choice": choice})
    shares = [(taken == action).all(-1).double().mean().item() for action in mine]
    assert sum(shares) == pytest.approx(1)
    assert np.ptp(softmax(values)) > 0.1
    np.testing.assert_allclose(shares, softmax(values), atol=0.015)


def test_the_mean_needs_no_critic_and_no_numbers():
    made = trained(action_choice="mean")
    assert set(made.ports(made.spec_, made.config_)) == {"action"}
    with torch.no_grad():
        mean = made.fit_.nets().policy(torch.from_numpy(SEEN).double()).mode()
    np.testing.assert_allclose(made.predict(SEEN), mean.numpy(), rtol=1e-6)


@pytest.mark.long
def test_the_numbers_are_inputs_of_the_export(tmp_path, capfd):
    """The package asks for them and chooses by them as training's policy does; each decision has others, each call the same."""
    made = trained(action_choice="softmax")
    capfd.readouterr()
    write_package(made, tmp_path / "package")
    assert capfd.readouterr() == ("", "")  # a graph that torch cannot trace is printed
    inputs = {p.name: (p.shape, p.distribution) for p in read_record(tmp_path / "package").noise_inputs}
    assert inputs == {"noise/draws": (("batch", 4, 3), "normal"), "noise/choice": (("batch", 4), "uniform")}
    own, onnx = made.policy(), read_package(tmp_path / "package")
    np.testing.assert_array_equal(own.predict(SEEN), own.predict(SEEN))
    states, actions = [policy.start(3) for policy in (own, onnx)], []
    for _ in range(6):
        steps = [policy.step(state, SEEN) for policy, state in zip((own, onnx), states, strict=True)]
        states = [state for state, _ in steps]
        np.testing.assert_allclose(steps[0][1], steps[1][1], rtol=1e-5, atol=1e-6)
        actions.append(steps[0][1])
    assert len({action.tobytes() for action in actions}) == 6


def test_a_sampled_action_is_one_draw_of_the_policy():
    """As in d3rlpy; no critic chooses it."""
    weighted, plain = trained(action_choice="softmax"), trained(action_choice="mean")
    np.testing.assert_array_equal(weighted.sample_action(SEEN), plain.sample_action(SEEN))
