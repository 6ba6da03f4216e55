"""MBPO: its model's loss beside a loop, scalers that run along, rounds that wait for the model, and runs that go on bit for bit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray import MBPO, MOPO, SAC, Dataset, ReplayBuffer
from d3ray.algos.dynamics.running import Moments, RunningModel
from d3ray.algos.environments.make import make
from d3ray.algos.networks.dynamics import EnsembleDynamics
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.networks.training import Pass, under_way
from d3ray.algos.online.run import OnlineRun
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.algos.testing.tiny import tiny_model
from d3ray.data.errors import ConfigError, DataError

from ..loss_values import evaluate
from .test_probabilistic_ensemble import perceptron, softplus

SMALL: dict[str, Any] = {"hidden_units": [16]}
FEW: dict[str, Any] = {
    "horizon": 2,
    "n_transitions": 8,
    "interval": 7,
    "real": 0.25,
    "capacity": None,
    "penalty": "none",
    "lam": 0.0,
}
ONLINE: dict[str, Any] = {
    "action_scaler": "min_max",
    "actor_encoder": SMALL,
    "critic_encoder": SMALL,
    "model_encoder": {"name": "vector", "hidden_units": [16]},
    "batch_size": 16,
    "model_batch_size": 8,
    "model_warmup_steps": 10,
    "rollouts": FEW,
    "seed": 3,
    "device": "cpu",
}


@pytest.mark.parametrize("termination", ["never", "learned"])
def test_the_models_loss_is_that_of_a_loop(termination: Any) -> None:
    """In float64: of raw numbers, scaled by what was met so far, over what is not held out."""
    data = tiny_dataset(discrete=False)
    encoder = {"name": "vector", "hidden_units": [8, 6]}
    settings: dict[str, Any] = {"n_members": 3, "n_elites": 2, "model_batch_size": 5, "model_encoder": encoder, "bound_weight": 0.3}
    settings |= {"observation_scaler": "standard", "reward_scaler": {"name": "constant_shift", "shift": 2.0}}
    made = maker(MBPO, **settings, termination=termination)(dtype="float64", seed=2).fit(data, 12, 12)
    learner, batch = made.fit_.learner, made.fit_.sampler(data).sample(100)
    state = {name: tensor.double() for name, tensor in learner.state().items()}
    found, metrics, _ = evaluate(made, learner, batch, made.model_loss)

    def held(name: str) -> np.ndarray:
        return state[f"live/dynamics/{name}"].numpy()

    inside = {
        name.replace("dynamics/network.", "dynamics/"): tensor for name, tensor in state.items()
    }  # the members stand within the model
    rows = {name.removeprefix("model/"): x.numpy() for name, x in batch.extra.items() if name.startswith("model/")}
    raw = {
        name: made.fit_.scaling.raw_observation(torch.tensor(rows[name])).numpy() for name in ("observation", "next_observation")
    }
    reward = rows["reward"] - 2.0
    units = np.sqrt(held("changes.square"))
    highest, lowest = held("network.highest"), held("network.lowest")
    total, errors = 0.0, []
    for i in range(15):
        seen = (raw["observation"][i] - held("seen.mean")) / np.sqrt(held("seen.square"))
        said = perceptron(inside, i // 5, np.concatenate((seen, rows["action"][i])))
        mean, spread, end = said[:6], said[6:12], said[12]
        log_variance = lowest + softplus(highest - softplus(highest - spread) - lowest)
        goal = np.append(raw["next_observation"][i] - raw["observation"][i], reward[i]) / units
        value = np.mean((goal - mean) ** 2 * np.exp(-log_variance) + log_variance) + 0.3 * (highest - lowest).sum() / 3
        if termination == "learned":
            chance = 1 / (1 + math.exp(-end))
            value -= math.log(chance if rows["discount"][i] == 0 else 1 - chance)
        total += value * rows["weight"][i] / 15
        errors += [np.mean((goal - mean) ** 2)] * int(rows["held_out"][i] == 0)
    assert 0 < len(errors) < 15
    assert float(found) == pytest.approx(total, rel=1e-10)
    assert float(metrics["model_error"]) == pytest.approx(np.mean(errors), rel=1e-10)


def test_moments_are_those_of_all_steps_until_they_fade() -> None:
    rng, moments = np.random.default_rng(0), Moments(2)
    parts = rng.normal(3, 2, (200, 50, 2))
    mean, square = np.zeros(2), np.ones(2)
    for k, part in enumerate(parts):
        now = Pass(torch.zeros((), dtype=torch.int64), torch.float64, training=True, statistics={})
        with under_way(now):
            moments(torch.tensor(part))
        assert now.statistics is not None
        for name, value in now.statistics.items():
            setattr(moments, name.rpartition(".")[2], value)
        share = max(1 / (k + 1), 0.01)
        mean = mean + share * (part.mean(0) - mean)
        square = square + share * (((part - mean) ** 2).mean(0) - square)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(moments.deviation(), np.sqrt(square), rtol=1e-5)
    np.testing.assert_allclose(mean, 3, atol=0.1)
    np.testing.assert_allclose(np.sqrt(square), 2, atol=0.1)
    moments(torch.tensor(parts[0]))  # at rest nothing is noted
    assert float(moments.count) == 200


def test_the_best_members_count_as_they_are_now() -> None:
    data = tiny_dataset(discrete=False)
    model = RunningModel(EnsembleDynamics(VectorEncoder(hidden_units=(8,)), data.spec, 4), 2, "never", data.spec)
    seen, action = torch.randn(6, 5), torch.randn(6, 3)
    model.network.held_out.error.copy_(torch.tensor([3.0, 1.0, 4.0, 2.0]))
    model.seen.mean.fill_(0.5)
    model.changes.square.fill_(4.0)
    model.changes.count.fill_(1)
    found, members = model(seen, action), model.network(seen - 0.5, action)
    torch.testing.assert_close(found.following, seen + 2 * members.mean[[1, 3], :, :5])
    torch.testing.assert_close(found.reward, 2 * members.mean[[1, 3], :, 5])
    torch.testing.assert_close(found.deviation, 2 * (0.5 * members.log_variance[[1, 3]]).exp())
    torch.testing.assert_close(model.goal(seen, found.following[0], found.reward[0]), members.mean[1])


def test_only_the_model_learns_before_rounds_begin_and_then_both() -> None:
    made = MBPO(**ONLINE)
    with OnlineRun(made, "Pendulum-v1", capacity=500) as run:
        batches: list[Any] = []
        seen = run._training.sample
        run._training.sample = lambda step, size=None: batches.append(found := seen(step, size)) or found  # type: ignore[method-assign]
        list(run.epochs(10, 10))
        learner = made.fit_.learner
        begun = {name: tensor.clone() for name, tensor in learner.state().items()}
        fresh = MBPO(**ONLINE)
        with OnlineRun(fresh, "Pendulum-v1", capacity=500):
            start = fresh.fit_.learner.state()
        same = {name for name in begun if name.startswith("live/") and torch.equal(begun[name], start[name])}
        assert {name for name in begun if name.startswith(("live/actor", "live/critic"))} <= same
        assert not any(name.startswith("live/dynamics/network.layers") for name in same)
        assert all(torch.equal(batch.extra["real"], torch.ones(4)) for batch in batches)
        list(run.epochs(20, 10))
    assert made.config_.termination == "never"  # Pendulum's, by its id
    mixed = batches[10:]
    assert [int(batch.extra["real"].sum()) for batch in mixed] == [4] * 20
    assert all(len(batch.reward) == 16 and batch.extra["model/reward"].shape == (56,) for batch in mixed)
    after = learner.state()
    assert not any(torch.equal(begun[name], after[name]) for name in after if name.startswith("live/actor"))


@pytest.mark.parametrize("kind", ["its own model", "a given model"])
def test_a_saved_run_goes_on_from_the_middle_of_a_round(kind: str, tmp_path: Path) -> None:
    def made() -> Any:
        if kind == "its own model":
            return MBPO(**ONLINE)
        few = {name: value for name, value in ONLINE.items() if not name.startswith("model_")}
        return SAC(**few, dynamics=str(tmp_path / "model"))

    if kind == "a given model":
        from d3ray import ProbabilisticEnsemble

        data = Dataset.open("d3ray/pendulum-replay")
        encoder = {"name": "vector", "hidden_units": [16]}
        ProbabilisticEnsemble(action_scaler="min_max", encoder=encoder, n_members=3, n_elites=2).fit(data, 20, 20).save(
            tmp_path / "model"
        )
    with OnlineRun(made(), "Pendulum-v1", capacity=500) as whole:
        list(whole.epochs(40, 20))
        with OnlineRun(made(), "Pendulum-v1", capacity=500) as first:
            list(first.epochs(20, 20))
            first.save(tmp_path / "run")
        with OnlineRun.load(tmp_path / "run", "Pendulum-v1", device="cpu") as again:
            list(again.epochs(20, 20))
            one, two = (run.algorithm.state()[0] for run in (whole, again))
            assert one.keys() == two.keys()
            assert any("model" in name or "observation" in name for name in one)
            for name, tensor in one.items():
                assert torch.equal(tensor, two[name]), name


def test_the_model_comes_to_know_pendulum() -> None:
    """Its errors, in squared deviations of what changes: from that of a guess to a twentieth within 400 steps."""
    made = MBPO(**{**ONLINE, "model_batch_size": 64, "model_warmup_steps": 400, "model_encoder": {"hidden_units": [32, 32]}})
    running = {"n_steps": 400, "n_steps_per_epoch": 50, "update_start_step": 200, "random_steps": 700}
    epochs = list(made.fitter_online("Pendulum-v1", **running))
    for name in ("model_error", "model_held_out_error"):
        errors = [epoch.metrics[f"train/{name}"] for epoch in epochs]
        assert errors[-1] < errors[0] / (20 if name == "model_error" else 2), errors


def test_what_cannot_be_is_one_sentence() -> None:
    data = tiny_dataset(discrete=False)
    with pytest.raises(ConfigError, match=r"^MBPO learns a model of its own: leave dynamics out, or choose MOPO or SAC with it\.$"):
        maker(MBPO, dynamics=tiny_model())().fit(data, 1)
    with pytest.raises(ConfigError, match=r"^MBPO: n_elites is 3, and there are 2 members to choose from\.$"):
        maker(MBPO, n_members=2, n_elites=3)().fit(data, 1)
    with pytest.raises(
        ConfigError, match=r"^MBPO generates a share of its batches from what the buffer holds: leave the dataset out"
    ):
        MBPO(**ONLINE).fit_online("Pendulum-v1", dataset=Dataset.open("d3ray/pendulum-replay"), n_steps=1)
    for kind in (MBPO, MOPO):
        with pytest.raises(ConfigError, match=rf"^{kind.__name__}: sampler 'prioritized' and dynamics do not go together"):
            maker(kind, sampler="prioritized")().fit(data, 1)
    few = {name: value for name, value in ONLINE.items() if not name.startswith("model_")}
    with pytest.raises(DataError, match=r"the model of the dynamics"):
        SAC(**few, dynamics=tiny_model()).fit_online("Pendulum-v1", n_steps=1)


def test_a_buffer_of_episodes_is_begun_with() -> None:
    """Rollouts branch off data that were there before, in the place of a dataset beside it."""
    vector = make("Pendulum-v1", n=1, seed=0)
    buffer = ReplayBuffer(600, vector.spec, 1)
    vector.close()
    SAC(action_scaler="min_max").collect("Pendulum-v1", buffer, n_steps=300)
    made = MBPO(**ONLINE).fit_online("Pendulum-v1", buffer, n_steps=30, n_steps_per_epoch=30)
    assert buffer.n_transitions > 300
    assert made.fit_.sources.state()["counts"].tolist()[0] == 4  # at steps 10, 14, 21 and 28
