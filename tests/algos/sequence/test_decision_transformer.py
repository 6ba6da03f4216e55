"""Decision Transformer beside loops in NumPy, acting step by step, and what it refuses.

The loops know nothing of batches: one stretch, one token and one head at a time, in float64.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from d3ray import BC, Dataset, DecisionTransformer, Stack, load
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import EnvironmentEvaluator, evaluate
from d3ray.algos.environments.make import make
from d3ray.algos.export.package import read_package, read_record
from d3ray.algos.export.packing import read_torch_policy, write_package
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.networks.transformers import Transformer
from d3ray.algos.testing import SMALL, maker, tiny_dataset
from d3ray.data.batch import Batch, Context
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.replay import ReplayBuffer
from d3ray.data.sampling import SequenceSampler

from ..loss_values import evaluate as value_of
from ..loss_values import prepared

T = 4
Steps = list[tuple[np.ndarray, np.ndarray, float, int]]  # observation, action, return to go and timestep
HALVED = {"name": "multiply", "multiplier": 0.5}
PLAIN = Transformer(n_layers=2, n_heads=2, attention_dropout=0, residual_dropout=0, embedding_dropout=0)


# ---- the network and the loss, slowly


def normed(x: np.ndarray, state: dict[str, np.ndarray], name: str, epsilon: float = 1e-5) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + epsilon) * state[f"{name}.weight"] + state[f"{name}.bias"]


def affine(x: np.ndarray, state: dict[str, np.ndarray], name: str) -> np.ndarray:
    return x @ state[f"{name}.weight"] + state[f"{name}.bias"]


def slow_actions(state: dict[str, np.ndarray], config: Any, steps: Steps) -> list[np.ndarray]:
    """Actions of each step (observation, action, return to go, timestep); there is no padding in here at all."""
    tokens = []
    for observation, action, left, timestep in steps:
        time, x = state["body.timestep"][min(timestep, config.max_timestep - 1)], observation
        for layer in sorted({name.split(".")[3] for name in state if name.startswith("body.encoder.layers")}):
            x = np.maximum(affine(x, state, f"body.encoder.layers.{layer}"), 0)
        embedded = (affine(np.array([left]), state, "body.embed_return"), x, affine(action, state, "body.embed_action"))
        tokens += [normed(part + time, state, "body.norm") for part in embedded]
    return [np.tanh(affine(features, state, "head")) for features in slow_features(state, config, tokens)]


def slow_features(state: dict[str, np.ndarray], config: Any, tokens: list[np.ndarray]) -> list[np.ndarray]:
    """What the blocks make of every step's observation token."""
    heads, size = config.transformer.n_heads, len(tokens[0])
    width = size // heads
    for k in range(config.transformer.n_layers):
        block = f"body.transformer.blocks.{k}"
        seen = [normed(x, state, f"{block}.attention_norm") for x in tokens]
        query = [affine(x, state, f"{block}.attention.query") for x in seen]
        both = [affine(x, state, f"{block}.attention.key_value") for x in seen]
        new = []
        for i, x in enumerate(tokens):
            found = []
            for h in range(heads):
                part = slice(h * width, (h + 1) * width)
                logits = [query[i][part] @ both[j][:size][part] / np.sqrt(width) for j in range(i + 1)]
                share = np.exp(np.array(logits) - max(logits))
                share /= share.sum()
                found.append(sum(share[j] * both[j][size:][part] for j in range(i + 1)))
            new.append(x + affine(np.concatenate(found), state, f"{block}.attention.out"))
        tokens = [
            x
            + affine(
                np.maximum(affine(normed(x, state, f"{block}.perceptron_norm"), state, f"{block}.perceptron.0"), 0),
                state,
                f"{block}.perceptron.2",
            )
            for x in new
        ]
    return [normed(x, state, "body.transformer.norm") for x in tokens[1::3]]


def weights(algorithm: Any) -> dict[str, np.ndarray]:
    prefix = "live/policy/"
    return {name.removeprefix(prefix): t.numpy() for name, t in algorithm.state()[0].items() if name.startswith(prefix)}


def stretches(batch: Any) -> list[Steps]:
    parts = (batch.observation, batch.action, batch.return_to_go, batch.timestep, batch.mask)
    observation, action, left, timestep, mask = (part.numpy() for part in parts)
    return [
        [(observation[b, t], action[b, t], float(left[b, t]), int(timestep[b, t])) for t in range(T) if mask[b, t]]
        for b in range(len(mask))
    ]


@pytest.mark.parametrize("anchor", ["first", "last"])
def test_the_loss_and_the_actions_are_those_of_loops_in_numpy(anchor: str) -> None:
    scaler = {"name": "multiply", "multiplier": 0.1}
    made, learner, batch = prepared(
        DecisionTransformer, transformer=PLAIN, context=T, max_timestep=6, anchor=anchor, reward_scaler=scaler, learning_rate=0.5
    )
    assert 0 < int(batch.mask.sum()) < batch.mask.numel()  # some are padded
    assert int(batch.timestep.max()) >= 6  # later than there are embeddings
    values, _, nets = value_of(made, learner, batch, made.imitation_loss)
    state, slow, n, last = weights(made), [], 0, []
    for steps in stretches(batch):
        found = slow_actions(state, made.config_, steps)
        slow.append(sum(((a - step[1]) ** 2).mean() for a, step in zip(found, steps, strict=True)))
        last.append(found[-1])
        n += len(steps)
    there = batch.mask.numpy()
    np.testing.assert_allclose((values * there).sum(1), np.array(slow), rtol=1e-9)
    _, mean, *_ = learner.gradients(made.imitation_loss, ("policy",), batch, learner.address(made.imitation_loss))
    assert mean.item() == pytest.approx(sum(slow) / n, rel=1e-9)  # over the steps that are there
    np.testing.assert_allclose(made.act(nets, batch.seen, {}, {})[0].detach().numpy(), np.array(last), rtol=1e-9)


def test_returns_to_go_are_of_scaled_rewards_and_from_the_episode() -> None:
    data = tiny_dataset(discrete=False)
    made = maker(DecisionTransformer, context=T)(reward_scaler=HALVED, dtype="float64").fit(data, 0)
    batch: Any = made.fit_.sampler(data).sample(0)
    rewards, episodes = data.columns["reward"], data.episodes
    for b, index in enumerate(batch.index.tolist()):
        ends = np.cumsum(episodes.steps)
        e = int(np.searchsorted(ends, index, side="right"))
        row = int(episodes.first_row[e]) + index - int(ends[e] - episodes.steps[e])
        stop = int(episodes.first_row[e] + episodes.steps[e])
        steps = np.flatnonzero(batch.mask[b].numpy())
        assert len(steps) == min(T, stop - row)
        for k, t in enumerate(steps):
            assert float(batch.return_to_go[b, t]) == pytest.approx(0.5 * rewards[row + k : stop].sum(), rel=1e-5, abs=1e-6)
            np.testing.assert_allclose(batch.action[b, t], data.columns["action"][row + k], rtol=1e-6)


# ---- acting


class Numbers(gymnasium.Env):
    """Shows noise of its seed; the reward is an entry of the action; it ends after as many steps as its seed says."""

    observation_space = gymnasium.spaces.Box(-9, 9, (5,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 2 + int(self.np_random.integers(9))
        return self._show(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._show(), 3 * float(action[0]) + 1, self.left == 0, False, {}

    def _show(self) -> np.ndarray:
        return self.np_random.normal(size=5).astype(np.float32)


def trained(**settings: Any) -> DecisionTransformer:
    """With every scaler, and weights that are far from the first ones."""
    scalers = {"observation_scaler": "standard", "action_scaler": "min_max", "reward_scaler": HALVED}
    few = Transformer(n_layers=1)  # ONNX takes seconds to write a layer
    made = maker(DecisionTransformer, context=T, transformer=few, **scalers)(optimizer="adam", learning_rate=1e-2, **settings)
    return made.fit(tiny_dataset(discrete=False, reach=2.0), n_steps=20, n_steps_per_epoch=20)


@pytest.fixture(scope="module")
def algorithm() -> DecisionTransformer:
    return trained(target_returns=(7.0, 1.5))


def by_hand(algorithm: Any, steps: Steps) -> np.ndarray:
    """The raw action after these raw steps, through `act` on a context that is as long as they are: no padding, no memory."""
    fit = algorithm.fit_
    observation, action, left, timestep = (np.stack([step[k] for step in steps[-T:]]) for k in range(4))
    context = Context(
        fit.scaling.observation(observation)[None],
        fit.scaling.action(action)[None],
        0.5 * torch.tensor(left, dtype=torch.float32)[None],
        torch.tensor(timestep)[None],
        torch.ones(1, len(left), dtype=torch.bool),
    )
    with torch.no_grad():
        return fit.scaling.action_affine.reverse(algorithm.act(fit.nets(), context, {}, {})[0])[0].numpy()


def check_recorded(algorithm: Any, data: Dataset, target: float) -> None:
    """Every recorded action is the one of the steps before it, with a return to go that fell by each reward."""
    assert data.n_episodes > 3
    assert max(data.episodes.steps) > T + 2
    for episode in data.episodes:
        left, steps = target, []
        for t in range(len(episode)):
            steps.append((episode.observations[t], np.zeros(3, np.float32), left, t))
            wanted = by_hand(algorithm, steps)
            np.testing.assert_allclose(episode.actions[t], wanted, atol=2e-5)
            steps[-1] = (episode.observations[t], episode.actions[t], left, t)
            left -= float(np.asarray(episode.rewards[t]).item())


@pytest.mark.parametrize("n_envs", [1, 3])
def test_each_environment_has_a_return_to_go_of_its_own_that_falls_by_its_rewards(algorithm: Any, n_envs: int) -> None:
    vector = make(Numbers, n=n_envs, seed=4)
    check_recorded(algorithm, collect(vector, algorithm.policy(), n_episodes=9), 7.0)
    vector = make(Numbers, n=n_envs, seed=4)
    check_recorded(algorithm, collect(vector, algorithm.policy().asking(-3.0), n_episodes=9), -3.0)


def test_a_buffer_is_filled_with_the_same_actions(algorithm: Any) -> None:
    vector = make(Numbers, n=2, seed=4)
    buffer = ReplayBuffer(200, vector.spec, n_envs=2)
    algorithm.collect(vector, buffer, n_steps=80, show_progress=False)
    check_recorded(algorithm, buffer.to_dataset(), 7.0)


def test_evaluation_passes_rewards_on_and_takes_all_targets(algorithm: Any) -> None:
    played = [evaluate(algorithm.policy(), Numbers, episodes=6, seed=3, n_envs=n) for n in (1, 4)]
    np.testing.assert_allclose(played[0].returns, played[1].returns, rtol=1e-4)
    policy, seen = algorithm.policy(), []
    plain = policy.rewarded
    policy.rewarded = lambda state, reward: seen.append(np.array(reward)) or plain(state, reward)
    again = evaluate(policy, Numbers, episodes=6, seed=3, n_envs=3)
    assert sum(map(np.sum, seen)) == pytest.approx(again.returns.sum())
    found = EnvironmentEvaluator(Numbers, episodes=6, seed=3)(algorithm, 1)
    assert found["return"] == pytest.approx(played[0].mean, rel=1e-4)
    other = evaluate(algorithm.policy().asking(1.5), Numbers, episodes=6, seed=3)
    assert found["return_target_1.5"] == pytest.approx(other.mean)
    assert found["return"] != found["return_target_1.5"]


def test_the_stateful_wrapper_is_the_policy_of_one_environment(algorithm: Any) -> None:
    wrapper, env = algorithm.as_stateful_wrapper(5.0), Numbers()
    for seed in (1, 2):
        (observation, _), reward, ended, left, steps = env.reset(seed=seed), 0.0, False, 5.0, []
        while not ended:
            action = wrapper.predict(observation, reward)
            left -= reward
            steps.append((observation, np.zeros(3, np.float32), left, len(steps)))
            np.testing.assert_allclose(action, by_hand(algorithm, steps), atol=2e-5)
            steps[-1] = (observation, action, left, len(steps) - 1)
            observation, reward, ended, _, _ = env.step(action)
        wrapper.reset()
    first = algorithm.as_stateful_wrapper()
    asked = algorithm.as_stateful_wrapper(7.0)
    np.testing.assert_array_equal(first.predict(observation), asked.predict(observation))


def test_a_policy_does_what_brings_the_return_that_it_is_asked_for() -> None:
    """Episodes of one action u throughout, each reward u: asked for 4 u, it does u. Returns that do not fall drive it off."""
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(-1, 1, 200), 4).astype(np.float32)
    shown = np.tile(np.eye(4, dtype=np.float32), (200, 1))
    data = Dataset.from_arrays(shown, u[:, None], u, np.arange(800) % 4 == 3)
    encoder = {"hidden_units": [32], "last_activation": "none"}
    made = DecisionTransformer(context=1, encoder=encoder, transformer=PLAIN, optimizer="adam", learning_rate=1e-2)
    made.fit(data, 150, 150)
    assert made.config_.target_returns == (pytest.approx(4 * u.max(), rel=1e-5),)
    for wanted in (-0.6, 0.0, 0.5):
        wrapper, reward = made.as_stateful_wrapper(4 * wanted), 0.0
        for t in range(4):
            action = wrapper.predict(np.eye(4, dtype=np.float32)[t], reward)
            assert float(action[0]) == pytest.approx(wanted, abs=0.12)
            reward = wanted


# ---- packages


WITHOUT_TORCH = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "onnx", "ray", "mlflow"):
            raise ImportError(name + " is not here")

sys.meta_path.insert(0, Blocker())
import numpy as np
from d3ray.algos.export.package import read_package
from d3ray.algos.acting.remembering import StatefulWrapper

policy, given = read_package(sys.argv[1]), np.load(sys.argv[2])
state = policy.start(3, 2.5)
for observation, reward, action in zip(given["observation"], given["reward"], given["action"]):
    state, found = policy.step(state, observation)
    assert np.abs(found - action).max() <= 2e-5, np.abs(found - action).max()
    state = policy.rewarded(state, reward)
wrapper = StatefulWrapper(policy.asking(2.5))
assert np.abs(wrapper.predict(given["observation"][0][0]) - given["action"][0][0]).max() <= 2e-5
print("acted")
"""


def test_a_package_remembers_where_there_is_no_torch(algorithm: Any, tmp_path: Path) -> None:
    write_package(algorithm, tmp_path / "package")
    record = read_record(tmp_path / "package")
    assert [port.name for port in record.inputs] == ["observation", "reward"]
    assert {s.name: s.start for s in record.state_inputs}["context/return_to_go"] == 7.0
    assert record.options == {"target_return": [7.0, 1.5]}
    assert [port.name for port in record.outputs] == ["action", *(state.becomes for state in record.state_inputs)]
    rng, steps = np.random.default_rng(1), 3 * T
    observation, reward = rng.normal(3, 4, (steps, 3, 5)).astype(np.float32), rng.normal(size=(steps, 3)).astype(np.float32)
    policy, actions = algorithm.policy(), []
    state = policy.start(3, 2.5)
    for seen, given in zip(observation, reward, strict=True):
        state, action = policy.step(state, seen)
        state = policy.rewarded(state, given)
        actions.append(action)
    np.savez(tmp_path / "given.npz", observation=observation, reward=reward, action=np.stack(actions))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "package", "given.npz"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "acted\n"), done.stderr
    again = read_torch_policy(tmp_path / "package")
    assert again.target_returns == (7.0, 1.5)
    played = [evaluate(p, Numbers, episodes=5).returns for p in (algorithm.policy(), again, read_package(tmp_path / "package"))]
    np.testing.assert_allclose(played[1:], [played[0]] * 2, rtol=1e-3)
    assert "/" + "work" not in json.dumps(record.model_dump(mode="json"))


def test_a_saved_one_asks_for_the_same_and_a_stacks_row_is_one(algorithm: Any, tmp_path: Path) -> None:
    algorithm.save(tmp_path / "saved")
    played = [evaluate(a.policy(), Numbers, episodes=3).returns for a in (algorithm, load(tmp_path / "saved"))]
    np.testing.assert_array_equal(*played)
    stack = Stack(maker(DecisionTransformer, context=T)(), (0, 1)).fit(tiny_dataset(discrete=False), 3, 3)
    assert stack.seed(1).policy().target_returns == stack.seed(0).policy().target_returns != ()


def test_dicts_images_and_layers_in_bfloat16() -> None:
    rng, n = np.random.default_rng(0), 40
    seen = {"image": rng.integers(0, 256, (n, 2, 12, 12)).astype("u1"), "where": rng.normal(size=(n, 3)).astype("f4")}
    action, reward = rng.uniform(-1, 1, (n, 2)).astype("f4"), rng.normal(size=n).astype("f4")
    data = Dataset.from_arrays(seen, action, reward, np.arange(n) % 10 == 9)
    pixel = {"name": "pixel", "filters": [[4, 4, 2]], "feature_size": 8}
    encoder = {"name": "keys", "encoders": {"image": pixel}, "hidden_units": [16], "last_activation": "none"}
    settings = {"context": 3, "batch_size": 4, "matmul_precision": "bfloat16", "observation_scaler": {"image": "pixel"}}
    made = DecisionTransformer(encoder=encoder, **settings).fit(data, 2, 2)
    wrapper = made.as_stateful_wrapper(1.0)
    for t in range(5):
        assert np.isfinite(wrapper.predict({key: part[t] for key, part in seen.items()}, 0.5)).all()


# ---- held-out episodes, and what is refused


def test_errors_on_held_out_episodes_are_those_of_the_data_with_their_returns(algorithm: Any) -> None:
    data = tiny_dataset(discrete=False, reach=2.0)
    found = HeldOut(data)(algorithm, 1)
    assert found.keys() == {"action_error", "imitation_loss"}
    sampler = SequenceSampler(data, 200, T, 5, return_to_go=True)
    batch: Any = sampler.sample(0)
    errors = []
    for steps in stretches(batch):
        errors.append(((by_hand(algorithm, steps) - steps[-1][1]) ** 2).mean())
    assert found["action_error"] == pytest.approx(np.mean(errors), rel=0.15)  # the same quantity of other draws


def test_what_cannot_be_done_is_one_sentence(algorithm: Any) -> None:
    tiny = tiny_dataset(discrete=False)
    with pytest.raises(DataError, match=r"needs continuous actions, and 'tiny' has discrete ones; choose from .*DQN"):
        DecisionTransformer().fit(tiny_dataset(discrete=True), 1)
    with pytest.raises(ConfigError, match="acts on what came before, so one observation is not enough: use policy"):
        algorithm.predict(np.zeros((1, 5), np.float32))
    with pytest.raises(ConfigError, match="acts on what came before"):
        algorithm.sample_action(np.zeros((1, 5), np.float32))
    with pytest.raises(ConfigError, match="learns no values"):
        algorithm.predict_value(np.zeros((1, 5), np.float32), np.zeros((1, 3), np.float32))
    with pytest.raises(ConfigError, match="learns offline only"):
        DecisionTransformer().fit_online("Pendulum-v1", n_steps=10)
    with pytest.raises(ConfigError, match="a return that is asked for has no scaled value; choose multiply or return_based"):
        DecisionTransformer(reward_scaler="standard").fit(tiny, 1)
    with pytest.raises(ConfigError, match="stretches are drawn uniformly"):
        DecisionTransformer(sampler="epoch").fit(tiny, 1)
    with pytest.raises(ConfigError, match="which 3 heads do not divide"):
        DecisionTransformer(transformer={"n_heads": 3}).fit(tiny, 1)
    with pytest.raises(ConfigError, match="target_returns is"):
        DecisionTransformer(target_returns=()).fit(tiny, 1)
    with pytest.warns(UserWarning, match="context is 30, and the longest episode of 'tiny' has 20 steps: every stretch is padded"):
        DecisionTransformer(context=30, encoder=SMALL).fit(tiny, 0)
    with pytest.raises(DataError, match=r"learns from stretches of episodes \(Sequences\), and was given a Batch"):
        algorithm.update(Batch(*[torch.zeros(2, 5)] * 6))
    drawn: Any = algorithm.fit_.sampler(tiny_dataset(discrete=False, reach=2.0)).sample(0)
    with pytest.raises(DataError, match=r"learns from transitions \(Batch\), and was given a Sequences"):
        BC(encoder=SMALL).fit(tiny, 0).update(drawn)
    assert np.isfinite(trained().update(drawn)["imitation_loss"])
    built = DecisionTransformer(encoder=SMALL).build_with_shapes((5,), 3)
    with pytest.raises(ConfigError, match="acts for a return, and none was said: set target_returns, or give target_return"):
        built.as_stateful_wrapper()
    assert built.as_stateful_wrapper(1.0).predict(np.zeros(5, np.float32)).shape == (3,)
