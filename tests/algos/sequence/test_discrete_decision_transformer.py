"""The discrete Decision Transformer beside loops in NumPy, and acting step by step, in packages too."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from d3ray import Dataset, DiscreteDecisionTransformer
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.environments.make import make
from d3ray.algos.export.package import read_package
from d3ray.algos.export.packing import write_package
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.networks.transformers import Transformer
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.batch import Context
from d3ray.data.errors import ConfigError, DataError

from ..loss_values import evaluate as value_of
from ..loss_values import prepared
from .test_decision_transformer import PLAIN, Steps, T, affine, slow_features, stretches, weights


def slow_log_shares(state: dict[str, np.ndarray], config: Any, steps: Steps) -> list[np.ndarray]:
    """Log probabilities of each step's actions; there is no padding in here at all."""
    tokens, places = [], state.get("body.place")
    times = [state["body.timestep"][min(step[3], config.max_timestep - 1)] for step in steps]
    for k, (observation, action, left, _) in enumerate(steps):
        time, x = times[k] if places is None else times[-1] + places[len(places) - len(steps) + k], observation
        for layer in sorted({name.split(".")[3] for name in state if name.startswith("body.encoder.layers")}):
            x = np.maximum(affine(x, state, f"body.encoder.layers.{layer}"), 0)
        embedded = (affine(np.array([left]), state, "body.embed_return"), x, state["body.embed_action.weight"][int(action)])
        tokens += [np.tanh(part) + time for part in embedded]
    logits = [features @ state["head.weight"].T for features in slow_features(state, config, tokens)]
    return [x - np.log(np.exp(x).sum()) for x in logits]


@pytest.mark.parametrize("position", ["global", "simple"])
@pytest.mark.parametrize("anchor", ["first", "last"])
def test_the_loss_and_the_actions_are_those_of_loops_in_numpy(anchor: str, position: str) -> None:
    made, learner, batch = prepared(
        DiscreteDecisionTransformer,
        transformer=PLAIN,
        context=T,
        max_timestep=6,
        anchor=anchor,
        position_encoding=position,
        optimizer="adam",
        learning_rate=0.05,
    )
    assert 0 < int(batch.mask.sum()) < batch.mask.numel()  # some are padded
    values, _, nets = value_of(made, learner, batch, made.imitation_loss)
    state, slow, last = weights(made), [], []
    for steps in stretches(batch):
        found = slow_log_shares(state, made.config_, steps)
        slow.append(-sum(log_share[int(step[1])] for log_share, step in zip(found, steps, strict=True)))
        last.append(found[-1])
    there = batch.mask.numpy()
    np.testing.assert_allclose((values * there).sum(1), slow, rtol=1e-10)
    _, mean, *_ = learner.gradients(made.imitation_loss, ("policy",), batch, learner.address(made.imitation_loss))
    assert mean.item() == pytest.approx(sum(slow) / there.sum(), rel=1e-10)
    assert np.ptp(np.array(last)) > 0.1
    np.testing.assert_array_equal(made.act(nets, batch.seen, {}, {})[0].numpy(), np.argmax(last, 1))


class Choices(gymnasium.Env):
    """Shows noise of its seed; the reward is the action; it ends after as many steps as its seed says."""

    observation_space = gymnasium.spaces.Box(-9, 9, (5,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 2 + int(self.np_random.integers(9))
        return self._show(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._show(), float(action), self.left == 0, False, {}

    def _show(self) -> np.ndarray:
        return self.np_random.normal(size=5).astype(np.float32)


@pytest.fixture(scope="module")
def algorithm() -> DiscreteDecisionTransformer:
    """With scalers, and weights that are far from the first ones."""
    scalers = {"observation_scaler": "standard", "reward_scaler": {"name": "multiply", "multiplier": 0.5}}
    few = Transformer(n_layers=1)
    made = maker(DiscreteDecisionTransformer, context=T, transformer=few, **scalers)(optimizer="adam", learning_rate=1e-2)
    made.set_params(target_returns=(7.0, 1.5))
    return made.fit(tiny_dataset(discrete=True), 60, 60)


def by_hand(algorithm: Any, steps: Steps) -> int:
    """The action after these raw steps, through `act` on a context that is as long as they are: no padding, no memory."""
    fit = algorithm.fit_
    observation, action, left, timestep = (np.stack([step[k] for step in steps[-T:]]) for k in range(4))
    context = Context(
        fit.scaling.observation(observation)[None],
        torch.tensor(action)[None],
        0.5 * torch.tensor(left, dtype=torch.float32)[None],
        torch.tensor(timestep)[None],
        torch.ones(1, len(left), dtype=torch.bool),
    )
    with torch.no_grad():
        return int(algorithm.act(fit.nets(), context, {}, {})[0][0])


def test_it_looks_back_at_its_actions_and_at_a_return_that_falls(algorithm: Any) -> None:
    data = collect(make(Choices, n=3, seed=4), algorithm.policy(), n_episodes=9)
    assert max(data.episodes.steps) > T + 2
    taken = set()
    for episode in data.episodes:
        left, steps = 7.0, []
        for t in range(len(episode)):
            done = int(episode.actions[t])
            steps.append((episode.observations[t], np.int64(0), left, t))
            assert by_hand(algorithm, steps) == done
            steps[-1] = (episode.observations[t], np.int64(done), left, t)
            left -= float(np.asarray(episode.rewards[t]).item())
            taken.add(done)
    assert len(taken) > 1


def test_a_package_acts_alike_and_held_out_data_are_matched(algorithm: Any, tmp_path: Any) -> None:
    write_package(algorithm, tmp_path / "package")
    played = [evaluate(p, Choices, episodes=5, seed=3).returns for p in (algorithm.policy(), read_package(tmp_path / "package"))]
    np.testing.assert_array_equal(*played)
    found = HeldOut(tiny_dataset(discrete=True))(algorithm, 1)
    assert found.keys() == {"action_match", "imitation_loss"}
    wrapper = algorithm.as_stateful_wrapper(5.0)
    assert wrapper.predict(np.zeros(5, np.float32), 0.0).dtype == np.int64


def test_a_policy_does_what_brings_the_return_that_it_is_asked_for() -> None:
    """Episodes of one action throughout, rewarded with its number: asked for 4 a, it does a."""
    action = np.repeat(np.arange(120) % 3, 4)
    shown = np.tile(np.eye(4, dtype=np.float32), (120, 1))
    data = Dataset.from_arrays(shown, action, action.astype("f4"), np.arange(480) % 4 == 3)
    encoder = {"hidden_units": [32], "last_activation": "none"}
    made = DiscreteDecisionTransformer(context=1, encoder=encoder, transformer=PLAIN, optimizer="adam", learning_rate=1e-2)
    made.fit(data, 150, 150)
    for wanted in (0, 1, 2):
        wrapper, reward = made.as_stateful_wrapper(4.0 * wanted), 0.0
        for t in range(4):
            assert int(wrapper.predict(np.eye(4, dtype=np.float32)[t], reward)) == wanted
            reward = float(wanted)


def test_images_and_what_is_refused() -> None:
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 256, (30, 2, 12, 12)).astype("u1")
    images = Dataset.from_arrays(seen, rng.integers(0, 3, 30), rng.normal(size=30).astype("f4"), np.arange(30) % 10 == 9)
    pixel = {"name": "pixel", "filters": [[4, 4, 2]], "feature_size": 16}
    made = DiscreteDecisionTransformer(encoder=pixel, context=3, batch_size=4, observation_scaler="pixel").fit(images, 2, 2)
    assert made.as_stateful_wrapper(1.0).predict(seen[0]).shape == ()
    with pytest.raises(DataError, match="needs discrete actions"):
        DiscreteDecisionTransformer().fit(tiny_dataset(discrete=False), 1)
    with pytest.raises(ConfigError, match="which 8 heads do not divide"):
        DiscreteDecisionTransformer(encoder={"hidden_units": [20]}).fit(tiny_dataset(discrete=True), 1)


def test_presets() -> None:
    paper = DiscreteDecisionTransformer.from_preset("paper").check_settings()
    assert (paper.context, paper.batch_size, paper.learning_rate, paper.encoder.feature_size) == (30, 128, 6e-4, 128)
    assert (paper.transformer.n_layers, paper.transformer.n_heads, paper.transformer.activation) == (6, 8, "gelu")
    theirs = DiscreteDecisionTransformer.from_preset("d3rlpy").check_settings()
    assert (theirs.context, theirs.anchor, theirs.transformer.norm_epsilon) == (20, "last", 3e-3)
    steps = theirs.batch_size * theirs.context  # of the data, in a batch
    schedule = theirs.optimizer.schedule
    assert schedule.warm_up * steps == 10_240
    assert (schedule.warm_up + schedule.duration) * steps == pytest.approx(30_000_000, rel=1e-4)
