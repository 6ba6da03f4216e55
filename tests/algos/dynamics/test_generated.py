"""Batches of which a share was generated, in a model whose every answer is known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d3ray import CQL, DQN, MBPO, SAC, TD3, Dataset, DecisionTransformer, ProbabilisticEnsemble, load
from d3ray.algos.dynamics.generated import GeneratedSource
from d3ray.algos.dynamics.model import Model, Outcomes
from d3ray.algos.networks.dynamics import EnsembleDynamics
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.testing import SMALL, tiny_arrays, tiny_dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Environment

CHANGE, REWARD, SIGMA = 0.25, 3.0, 0.5


class Known:
    """A model all of whose members add `CHANGE` to each entry, pay `REWARD` and end where it says so."""

    models_dynamics = True

    def __init__(self, data: Dataset, termination: str = "never", sigma: float = 0.0, environment: str | None = None) -> None:
        network = EnsembleDynamics(VectorEncoder(hidden_units=(4,)), data.spec, 3)
        size = network.outputs
        with torch.no_grad():
            for parameter in (*network.layers.parameters(), *network.head.parameters()):
                parameter.zero_()
            network.head.bias[..., : size - 1] = CHANGE
            network.head.bias[..., size - 1] = REWARD
            network.highest.fill_(60.0)
            network.lowest.fill_(-60.0)
            network.head.bias[..., size : 2 * size] = 2 * np.log(sigma) if sigma else -60.0
        network.held_out.error.copy_(torch.tensor([3.0, 1.0, 2.0]))
        self.network, self.told = network, (torch.tensor([1, 2]), {}, None, termination, data.spec, environment)

    def model(self) -> nn.Module:
        return Model(self.network, *self.told)


def source_of(algorithm: Any, data: Dataset) -> GeneratedSource:
    return algorithm.build_with_dataset(data).fit_.sampler(data)


def made(data: Dataset, model: Any = None, kind: Any = SAC, **settings: Any) -> Any:
    rollouts = {"horizon": 3, "n_transitions": 4, "interval": 5, "real": 0.25, "penalty": "none", **settings.pop("rollouts", {})}
    small = {"actor_encoder": SMALL, "critic_encoder": SMALL, "batch_size": 16, "device": "cpu"}
    return kind(**{**small, **settings}, dynamics=model or Known(data), rollouts=rollouts)


def test_rollouts_go_on_from_the_data_step_by_step() -> None:
    data = tiny_dataset(discrete=False)
    source = source_of(made(data, gamma=0.9), data)
    batch = source.sample(0)
    columns = {name: column.numpy().reshape(-1, 3, 4, *column.shape[1:]) for name, column in source._columns.items()}
    seen, following = columns["observation"][0], columns["next_observation"][0]
    recorded = np.asarray(data.columns["observation"])
    assert all((np.abs(recorded - start).max(1) < 1e-6).any() for start in seen[0])
    np.testing.assert_allclose(seen[1:], following[:-1], atol=1e-6)
    np.testing.assert_allclose(following, seen + CHANGE, atol=1e-5)
    np.testing.assert_allclose(columns["reward"][0], REWARD, atol=1e-5)
    np.testing.assert_allclose(columns["discount"][0], 0.9, rtol=1e-6)
    assert (np.abs(columns["action"][0]) < 1).all()
    assert columns["observation"].shape[0] == 5  # rounds that are kept
    assert batch.extra["real"].tolist() == [1.0] * 4 + [0.0] * 12
    of_data = SAC(batch_size=4, actor_encoder=SMALL, critic_encoder=SMALL, device="cpu").build_with_dataset(data)
    drawn = of_data.fit_.sampler(data).sample(0)
    for name in ("observation", "action", "reward", "next_observation", "index"):
        assert torch.equal(getattr(batch, name)[:4], getattr(drawn, name)), name
    rows = batch.index[4:] - 2**40
    assert (rows < 12).all()
    assert torch.equal(batch.reward[4:], source._columns["reward"][rows])


def test_an_end_stops_what_is_expected_and_begins_elsewhere() -> None:
    arrays = tiny_arrays(discrete=True, observation_size=4, actions=2)
    arrays["observations"][:] = arrays["final_observations"][:] = 0.0
    arrays["observations"][:, 2] = arrays["final_observations"][:, 2] = -0.2  # CHANGE twice is beyond CartPole's 12 degrees
    data = Dataset.from_arrays(**arrays)
    settings: Any = {"horizon": 4, "n_transitions": 6, "penalty": "none", "interval": 1}
    algorithm = DQN(
        encoder=SMALL, batch_size=16, device="cpu", dynamics=Known(data, "cart_pole"), rollouts={**settings, "real": 0.5}
    )
    source = source_of(algorithm, data)
    source.sample(0)
    angle = source._columns["observation"][:24, 2].reshape(4, 6).numpy()
    discount = source._columns["discount"][:24].reshape(4, 6).numpy()
    np.testing.assert_allclose(angle[:, 0], [-0.2, 0.05, -0.2, 0.05], atol=1e-6)
    np.testing.assert_allclose(discount[:, 0], [0.99, 0.0, 0.99, 0.0], rtol=1e-6)


def test_rounds_come_at_the_interval_and_the_oldest_make_room() -> None:
    data = tiny_dataset(discrete=False)
    algorithm = made(data, rollouts={"capacity": 18})  # a round and a half
    source = source_of(algorithm, data)
    source.sample(0)
    first = source._columns["observation"].clone()
    source.sample(0)  # asked again, nothing is generated again
    assert source._rounds == 1
    assert torch.equal(first, source._columns["observation"])
    assert (source.sample(1).index[4:] - 2**40 < 12).all()
    algorithm.fit_.learner.step = 5
    source.sample(5)
    now = source._columns["observation"]
    assert source._rounds == 2
    assert torch.equal(now[6:12], first[6:12])  # 12 … 17 and 0 … 5 are new
    assert (now[:6] != first[:6]).any(1).all()
    assert int((source.sample(6).index[4:] - 2**40).max()) < 18


def test_other_data_begin_with_a_round_of_their_own_wherever_training_stands() -> None:
    data, other = tiny_dataset(discrete=False), tiny_dataset(discrete=False, n=200)
    algorithm = made(data).fit(data, 3, 3).fit(other, 1, 1)
    assert algorithm.fit_.sampler(other)._rounds == 1


def test_scalers_act_on_what_is_generated() -> None:
    data = tiny_dataset(discrete=False)
    scalers: Any = {"observation_scaler": "standard", "reward_scaler": {"name": "multiply", "multiplier": 10.0}}
    algorithm = made(data, **scalers, rollouts={"penalty": "aleatoric", "lam": 2.0}, model=Known(data, sigma=SIGMA))
    source = source_of(algorithm, data)
    source.sample(0)
    rows, affine = source._columns, algorithm.fit_.scaling.observation_affines["observation"]
    apart = affine.reverse(rows["next_observation"][:12]) - affine.reverse(rows["observation"][:12])
    assert float(apart.mean()) == pytest.approx(CHANGE, abs=4 * SIGMA / 60**0.5)
    assert float(apart.std()) == pytest.approx(SIGMA, rel=0.4)
    wanted = 10 * (REWARD - 2 * SIGMA * 6**0.5)
    assert float(rows["reward"][:12].mean()) == pytest.approx(wanted, abs=10 * 4 * SIGMA / 12**0.5)


def outcomes() -> Outcomes:
    """Three members, two samples, two entries of an observation."""
    following = torch.tensor([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 3.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
    deviation = torch.tensor([[[1.0, 2.0, 2.0], [0.5, 0.0, 0.0]], [[0.0, 0.0, 1.0], [0.0, 0.6, 0.8]], [[0.0] * 3, [0.0] * 3]])
    return Outcomes(following, torch.zeros(3, 2), deviation, None)


def test_penalties_are_those_of_their_equations() -> None:
    found = outcomes()
    assert found.uncertainty("none").tolist() == [0.0, 0.0]
    assert found.uncertainty("aleatoric").tolist() == [3.0, 1.0]  # |(1, 2, 2)| and |(0, 0.6, 0.8)|
    np.testing.assert_allclose(found.uncertainty("variance"), [33**0.5, (0.36**2 + 0.64**2) ** 0.5], rtol=1e-6)
    assert found.uncertainty("difference").tolist() == [2.0, 0.0]  # means of the second entry are 0, 3, 0


def test_bellmans_penalty_is_the_spread_of_values_over_members() -> None:
    data = tiny_dataset(discrete=False)
    algorithm = made(data, rollouts={"penalty": "bellman", "lam": 1.0})
    source, learner = source_of(algorithm, data), algorithm.fit_.learner
    rng = np.random.default_rng(0)
    following = torch.tensor(rng.normal(size=(3, 4, 5)), dtype=torch.float32)
    found = Outcomes(following, torch.zeros(3, 4), torch.zeros(3, 4, 6), None)
    told = learner.look(lambda nets, h: source.penalty(nets, found, torch.zeros(4, 3)))
    values = np.stack([algorithm.predict_value(one, algorithm.predict(one)) for one in following.numpy()])
    nets = algorithm.fit_.nets()
    with torch.no_grad():
        least = np.stack([algorithm.values(nets, one, nets.policy(one).mode()).amin(0).numpy() for one in following])
    assert (least <= values + 1e-6).all()
    np.testing.assert_allclose(told, least.std(0), rtol=1e-4)


def test_a_draw_is_its_members_and_moves_by_the_noise() -> None:
    found = outcomes()
    noise = torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, -1.0]])
    following, reward, end = found.drawn(torch.tensor([0, 1]), noise)
    assert end is None
    np.testing.assert_allclose(following, [[1.0, 2.0], [1.0, 0.6]], rtol=1e-6)
    np.testing.assert_allclose(reward, [2.0, -0.8], rtol=1e-6)


@pytest.mark.parametrize("kind", [SAC, TD3])
def test_it_goes_on_bit_for_bit_from_the_middle_of_a_round(kind: Any, tmp_path: Path) -> None:
    data = tiny_dataset(discrete=False)
    model = ProbabilisticEnsemble(encoder=SMALL, n_members=3, n_elites=2, device="cpu", termination="learned").fit(data, 20, 20)
    model.save(tmp_path / "model")
    begun = made(data, str(tmp_path / "model"), kind=kind).fit(data, 7, 7)
    begun.save(tmp_path / "begun")
    whole = begun.fit(data, 8, 8).fit_.learner.state()
    again = load(tmp_path / "begun").fit(data, 8, 8)
    assert all(torch.equal(tensor, again.fit_.learner.state()[name]) for name, tensor in whole.items())


def test_what_cannot_be_generated_for_is_one_sentence() -> None:
    data, discrete = tiny_dataset(discrete=False), tiny_dataset(discrete=True)
    here = Dataset.from_arrays(**tiny_arrays(discrete=False), environment=Environment(id="Hopper-v4"))
    masked = tiny_dataset(discrete=True, masked="some")
    cases: list[tuple[str, Any, str]] = [
        ("other actions", lambda: made(data, Known(discrete)).fit(data, 1), "the model of the dynamics"),
        ("n steps", lambda: made(data, td_steps=2).fit(data, 1), "td_steps is 2"),
        ("priorities", lambda: made(data, sampler="prioritized").fit(data, 1), "'prioritized'"),
        ("a stream", lambda: made(data, sampler="stream").fit(data, 1), "'stream'"),
        (
            "elsewhere",
            lambda: made(here, Known(here, environment="Ant-v4")).fit(here, 1),
            "is of Ant-v4, and 'dataset' of Hopper-v4",
        ),
        ("room", lambda: made(data, rollouts={"capacity": 11}).fit(data, 1), "capacity is 11"),
        ("no model", lambda: made(data, SAC()).fit(data, 1), "dynamics is a SAC, which is no model"),
        ("learns one", lambda: made(data, MBPO()).fit(data, 1), "dynamics is a MBPO, which is no model"),
        ("stretches", lambda: DecisionTransformer(dynamics=Known(data)), "no setting 'dynamics'"),
        ("masks", lambda: DQN(dynamics=Known(masked)).fit(masked, 1), "which actions are legal"),
        ("memory", lambda: DQN(dynamics=Known(discrete), encoder={"name": "gru"}).fit(discrete, 1), "single transitions|remembers"),
        ("online", lambda: made(data, action_scaler="min_max").fit_online("Pendulum-v1", n_steps=5), "the model of the dynamics"),
    ]
    for case, act, message in cases:
        with pytest.raises((ConfigError, DataError)) as caught:
            act()
        assert re.search(message, str(caught.value)), (case, str(caught.value))
        assert "\n" not in str(caught.value)


def test_a_model_that_is_worse_than_none_is_named() -> None:
    data = tiny_dataset(discrete=False)
    known = Known(data)
    known.network.held_out.naive.fill_(0.5)
    with pytest.warns(UserWarning, match=r"held out, 1\.5, is above that of the mean of all that it predicts, 0\.5"):
        made(data, known, kind=CQL).fit(data, 1)
