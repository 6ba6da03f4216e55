"""Recurrent policies and value functions learn from rollouts what a loop over single steps says, and go on bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

import d3ray
from d3ray import A2C, PPO, REINFORCE, TRPO
from d3ray.algos import testing
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.export.package import read_package
from d3ray.algos.export.packing import write_package
from d3ray.algos.networks.recurrent import recalling
from d3ray.algos.on_policy.estimators import advantages
from d3ray.algos.on_policy.sequences import episodes, pieces
from d3ray.algos.online.run import OnlineRun
from d3ray.data.errors import ConfigError
from d3ray.data.histories import Histories

from ..online.test_recurrent import Sign

PLAIN = {"hidden_units": [6], "activation": "tanh"}
N, T = 2, 11


class Walk(gymnasium.Env[Any, Any]):
    """Shows numbers that it draws; ends by the MDP after 3 steps, is cut after 5, ends after 7, in turn."""

    numbers = itertools.count()

    def __init__(self, *, continuous: bool = False, parts: bool = False) -> None:
        seen = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"a": seen, "b": seen}) if parts else seen
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32) if continuous else gymnasium.spaces.Discrete(3)
        self.parts, self.finished = parts, next(Walk.numbers) % 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.made = 0
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self.made += 1
        length = (3, 5, 7)[self.finished % 3]
        over, cut = self.made == length, length == 5
        self.finished += over
        return self._shown(), float(np.sum(action)) + self.made, over and not cut, over and cut, {}

    def _shown(self) -> Any:
        drawn = self.np_random.normal(size=(2, 2)).astype(np.float32)
        return {"a": drawn[0], "b": drawn[1]} if self.parts else drawn[0]


def made(algorithm: Any = PPO, kind: str = "gru", **settings: Any) -> Any:
    inner = {"name": "keys", "hidden_units": [6]} if settings.pop("parts", False) else PLAIN
    encoder = {"name": kind, "units": 4, "encoder": inner}
    both = {"policy_encoder": encoder, **({} if algorithm is REINFORCE else {"value_encoder": encoder})}
    sizes: dict[str, Any] = {PPO: {"update_interval": N * T, "batch_size": 8, "n_passes": 2}, A2C: {"update_interval": N * T}}
    return algorithm(**{**both, **sizes.get(algorithm, {}), "device": "cpu", "seed": 3, "learning_rate": 0.02, **settings})


class Seen:
    """A run that is acted in a step at a time: what was seen, done and remembered at each, and what the networks said of it.

    The value function's memory is handed on here, step by step, and let go where an episode has ended.
    """

    def __init__(self, algorithm: Any, make: Callable[[], Any]) -> None:
        self.algorithm, self.run = algorithm, OnlineRun(algorithm, make, n_envs=N)
        self.value_memory: Tensor | None = None
        self.rollout()

    def rollout(self) -> None:
        """Acts until there is something to learn from, and has the source make its rollout."""
        run, algorithm = self.run, self.algorithm
        self.rows: list[dict[str, Any]] = []
        while not run._due:
            if run.rollout.observation is None:
                run.rollout.observation, run.rollout._memory = run.vector.reset(), run.policy.start(N)
            before = {name: torch.as_tensor(np.array(x)) for name, x in run.rollout._memory.items() if name.startswith("state/")}
            shown, ended_before = run.rollout.observation, run.rollout._length == 0
            scaled = algorithm.fit_.scaling.observation(shown)
            run.act()
            slots = run.buffer.latest(1)[0]
            columns = run.buffer.columns
            action = algorithm.fit_.scaling.action(columns["action"][slots])
            row = {"seen": scaled, "action": action, "before": before, "begins": torch.from_numpy(ended_before)}
            row |= {name: torch.as_tensor(columns[name][slots]) for name in ("reward", "terminated", "truncated")}
            self.rows.append(row | self._said(row))
        self.source = run._training
        self.source.sample(algorithm.step)

    def _said(self, row: dict[str, Any]) -> dict[str, Any]:
        """What the policy said of its action, from the memory that acting had; and V."""
        nets = self.algorithm.fit_.nets()
        layer = self.algorithm.fit_.learner.modules["policy"].encoder
        with torch.no_grad():
            with recalling({layer: row["before"]["state/policy"].to(self.algorithm.fit_.learner.dtype)}):
                found = {"log_prob": nets.policy(row["seen"]).log_prob(row["action"])}
            if self.algorithm.name == "REINFORCE":
                return found
            layer = self.algorithm.fit_.learner.modules["value"].encoder
            memory = self.value_memory
            if memory is not None:
                memory = torch.where(row["begins"][:, None], 0, memory)
            with recalling({} if memory is None else {layer: memory}) as recall:
                found["value"] = nets.value(row["seen"])
            first = torch.zeros_like(recall.left[layer]) if memory is None else memory
            self.value_memory = recall.left[layer]
        return {**found, "value_before": first, "value_after": self.value_memory}

    def of(self, name: str) -> Tensor:
        """[T, n, ...]."""
        return torch.stack([row[name] for row in self.rows])


CASES = [("gru", "float32", {}), ("lstm", "float64", {"continuous": True}), ("gru", "float64", {"parts": True})]


@pytest.mark.parametrize("sequence_length", [None, 4])
@pytest.mark.parametrize(("kind", "dtype", "where"), CASES)
def test_ratios_begin_at_one(kind: str, dtype: str, where: dict[str, Any], sequence_length: int | None) -> None:
    """Of four rollouts, with gradient steps between them, and episodes cut before the last, as an agent does that is evaluated."""
    algorithm = made(kind=kind, dtype=dtype, sequence_length=sequence_length, parts=where.get("parts", False))
    seen = Seen(algorithm, lambda: Walk(**where))
    tolerance = 1e-6 if dtype == "float32" else 1e-12
    for k in range(4):
        columns, learner = seen.source._columns, algorithm.fit_.learner
        mask, rows = columns["mask"], columns["index"]
        assert sorted(rows[mask].tolist()) == list(range(N * T))
        said = seen.of("log_prob").flatten(0, 1)[rows]
        torch.testing.assert_close(columns["log_prob"][mask], said[mask], rtol=0, atol=tolerance)
        batch = seen.source.sample(learner.step)
        kl = algorithm.policy_loss(algorithm.fit_.nets(), batch, algorithm.fit_.coefficients())[1]["kl"]
        assert float((kl.detach() * bare(batch).there).abs().max()) < tolerance
        begun = seen.of("value_before").flatten(0, 1)[rows[:, 0]]
        torch.testing.assert_close(columns["memory/value"], begun, rtol=0, atol=tolerance)
        if k:
            first = columns["index"][:, 0] < N
            assert (float(columns["memory/policy"][first].abs().max()) > 1e-2) == (k < 3)  # whether it was begun anew
        seen.run.learn()
        if k == 2:
            seen.run.rollout.cut(seen.run.policy)
        seen.rollout()
    seen.run.close()


def bare(batch: Any) -> Histories:
    assert isinstance(batch.observation, Histories)
    return batch.observation


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_values_of_what_followed_go_on_from_the_memory_after_the_step(algorithm: Any) -> None:
    """Advantages of the second rollout: at ends, at cuts and at the rollout's own end too."""
    one = made(algorithm, dtype="float64", gamma=0.9, lam=0.8, standardize_advantages=False, sequence_length=4)
    seen = Seen(one, Walk)
    seen.run.learn()
    seen.rollout()
    run, nets, buffer = seen.run, one.fit_.nets(), seen.run.buffer
    slots, layer = buffer.latest(T), one.fit_.learner.modules["value"].encoder
    after, following = buffer.after(slots), torch.zeros(T, N, dtype=torch.float64)
    for t in range(T):
        for e in range(N):
            shown = run.rollout.observation[e] if after[t, e] < 0 else buffer.columns["observation"][after[t, e]]
            with torch.no_grad(), recalling({layer: seen.rows[t]["value_after"][e][None]}):
                following[t, e] = nets.value(torch.from_numpy(shown)[None].double())[0]
    terminated, ends = seen.of("terminated"), seen.of("terminated") | seen.of("truncated")
    assert terminated.any()
    assert (ends & ~terminated).any()
    ends = ends.clone()
    ends[-1] = True
    discount = 0.9 * (~terminated).double()
    wanted = advantages(seen.of("reward").double(), seen.of("value"), following, discount, ends, 0.9 * 0.8)
    columns = seen.source._columns
    mask, rows = columns["mask"], columns["index"]
    torch.testing.assert_close(columns["advantage"][mask], wanted.flatten()[rows[mask]], rtol=0, atol=1e-12)
    seen.run.close()


def stepped(seen: Seen, name: str, rows: Tensor, mask: Tensor, memory: Tensor) -> list[tuple[int, Any]]:
    """What a network says of each step of a sub-sequence, one after the other, with memory let go where episodes begin."""
    module, said = seen.algorithm.fit_.learner.modules[name], list[tuple[int, Any]]()
    for row in rows[mask].tolist():
        t, e = divmod(row, N)
        known = torch.zeros_like(memory) if seen.rows[t]["begins"][e] else memory
        with recalling({module.encoder: known}) as recall:
            said.append((row, module(seen.rows[t]["seen"][e][None])))
        memory = recall.left[module.encoder]
    return said


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_losses_and_gradients_are_those_of_a_loop(algorithm: Any, kind: str) -> None:
    """A minibatch of the second rollout, whose sub-sequences go over ends of episodes, and of which one is padded."""
    weights = {"entropy_weight": 0.03, "value_weight": 0.5, "sequence_length": 4}
    one = made(algorithm, kind, dtype="float64", **weights, **({"batch_size": 100} if algorithm is PPO else {}))
    seen = Seen(one, Walk)
    seen.run.learn()
    seen.rollout()
    learner, source, clip = one.fit_.learner, seen.source, 0.2
    batch = source.sample(one.step)
    columns, parameters = source._columns, [p for name in ("policy", "value") for p in learner.live[name].values()]
    assert not columns["mask"].all()
    assert columns["begins"][:, 1:].any()
    if algorithm is PPO:  # as it is after some gradient steps of a rollout
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(0.1 * torch.randn_like(parameter))
    flat = {name: torch.zeros(N * T, dtype=torch.float64) for name in ("advantage", "goal")}
    for name, into in flat.items():
        into[columns["index"][columns["mask"]]] = columns[name][columns["mask"]]
    total = torch.zeros((), dtype=torch.float64)
    for s in range(len(columns["mask"])):
        first = int(columns["index"][s, 0])
        known = {"policy": seen.rows[first // N]["before"]["state/policy"], "value": seen.rows[first // N]["value_before"]}
        memories = {name: memory[first % N][None].double() for name, memory in known.items()}
        parts = {name: stepped(seen, name, columns["index"][s], columns["mask"][s], memories[name]) for name in memories}
        for (row, policy), (_, value) in zip(parts["policy"], parts["value"], strict=True):
            t, e = divmod(row, N)
            density, advantage = policy.log_prob(seen.rows[t]["action"][e][None])[0], flat["advantage"][row]
            if algorithm is PPO:
                ratio = (density - seen.rows[t]["log_prob"][e]).exp()
                gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            else:
                gain = advantage * density
            total = total - gain - 0.03 * policy.entropy()[0] + 0.5 * (flat["goal"][row] - value[0]).square()
    expected = total / (N * T)
    gradients, value, *_ = learner.gradients(one.total_loss, ("policy", "value"), batch, learner.address(one.total_loss))
    assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-10)
    by_hand = torch.autograd.grad(expected, parameters)
    assert max(float(g.abs().max()) for g in by_hand) > 1e-4
    for a, b in zip(gradients, by_hand, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
    seen.run.close()


def test_reinforce_goes_through_whole_episodes() -> None:
    one = made(REINFORCE, dtype="float64", n_episodes=6, gamma=0.9, entropy_weight=0.02)
    seen = Seen(one, Walk)
    batch, columns, learner = seen.source.sample(one.step), seen.source._columns, one.fit_.learner
    module, total, count = learner.modules["policy"], torch.zeros((), dtype=torch.float64), 0
    for e in range(N):
        begun: int | None = None
        for t, row in enumerate(seen.rows):
            begun = t if row["begins"][e] else begun
            if not (row["terminated"][e] or row["truncated"][e]):
                continue
            assert begun is not None
            steps, memory = seen.rows[begun : t + 1], torch.zeros(1, 4, dtype=torch.float64)
            count += 1
            for k, step in enumerate(steps):
                with recalling({module.encoder: memory}) as recall:
                    policy = module(step["seen"][e][None])
                memory = recall.left[module.encoder]
                gain = sum(0.9**i * float(later["reward"][e]) for i, later in enumerate(steps[k:]))
                total = total - gain * policy.log_prob(step["action"][e][None])[0] - 0.02 * policy.entropy()[0]
    assert columns["mask"].shape == (count, 7)
    assert count >= 6
    assert not columns["mask"].all()
    gradients, value, *_ = learner.gradients(one.policy_loss, ("policy",), batch, learner.address(one.policy_loss))
    assert float(value.detach()) == pytest.approx(float(total.detach()) / count, rel=1e-6)  # rewards are float32
    by_hand = torch.autograd.grad(total / count, list(learner.live["policy"].values()))
    for a, b in zip(gradients, by_hand, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    seen.run.close()


def test_padding_is_seen_by_no_loss_and_no_test() -> None:
    one = made(dtype="float64", sequence_length=4, max_kl=0.01, batch_size=100, entropy_weight=0.1)
    seen = Seen(one, Walk)
    nets, h, learner = one.fit_.nets(), one.fit_.coefficients(), one.fit_.learner
    batch = seen.source.sample(one.step)
    before = learner.gradients(one.total_loss, ("policy", "value"), batch, learner.address(one.total_loss))
    assert not one.too_far(nets, batch, h)
    there = bare(batch).there
    for extra in batch.extra.values():
        if len(extra) == len(there):
            extra[~there] += 3.0
    bare(batch).observation[~bare(batch).mask] += 5.0
    after = learner.gradients(one.total_loss, ("policy", "value"), batch, learner.address(one.total_loss))
    for a, b in zip((*before[0], before[1]), (*after[0], after[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    for name, metric in before[2].items():
        assert float(metric) == pytest.approx(float(after[2][name]), abs=1e-12), name
    assert not one.too_far(nets, batch, h)
    seen.run.close()


def test_sub_sequences_by_hand() -> None:
    rows, mask = pieces(5, 2, 3, torch.device("cpu"))
    assert rows.tolist() == [[0, 0, 2], [4, 6, 8], [1, 1, 3], [5, 7, 9]]
    assert mask.tolist() == [[False, True, True], [True] * 3] * 2
    rows, mask = episodes(torch.tensor([False, True, True, False, False, True]))
    assert rows.tolist() == [[0, 0, 1], [2, 2, 2], [3, 4, 5]]
    assert mask.tolist() == [[False, True, True], [False, False, True], [True] * 3]


def test_minibatches_are_of_whole_sub_sequences() -> None:
    """22 steps in six sub-sequences of at most 4 steps: two of them to a minibatch of 8, in an order of its own each pass."""
    one = made(sequence_length=4)
    seen = Seen(one, Walk)
    assert seen.run._due == 6
    batches = [seen.source.sample(step) for step in range(6)]
    orders = [torch.cat([batch.index[bare(batch).there] for batch in part]) for part in (batches[:3], batches[3:])]
    assert all(torch.equal(order.sort().values, torch.arange(N * T)) for order in orders)
    assert not torch.equal(*orders)
    assert all(float(batch.weight.mean()) == pytest.approx(1) for batch in batches)
    seen.run.close()
    whole = Seen(made(), Walk)
    assert whole.run._due == 4  # a minibatch is one environment's rollout, for it is longer than 8 steps
    whole.run.close()


@pytest.mark.parametrize("algorithm", [PPO, A2C, REINFORCE])
def test_a_run_goes_on_bit_for_bit(algorithm: Any, tmp_path: Path) -> None:
    def begun() -> OnlineRun:
        settings = {"sequence_length": 4, "batch_size": 8} if algorithm is PPO else {}
        scaled = {} if algorithm is REINFORCE else {"observation_scaler": "running"}
        return OnlineRun(made(algorithm, "lstm", **scaled, **settings), "CartPole-v1", n_envs=N)

    with begun() as whole:
        list(whole.epochs(20, 10, show_progress=False))
        state = whole.algorithm.state()[0]
    for at in (7, 12):
        with begun() as half:
            list(half.epochs(at, 10, show_progress=False))
            half.act()
            half.save(tmp_path / f"run-{at}")
        with OnlineRun.load(tmp_path / f"run-{at}", "CartPole-v1") as again:
            list(again.epochs(20 - at, 10, show_progress=False))
            name, gap = testing.largest_difference(again.algorithm.state()[0], state)
        assert gap == 0, name


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_one_network_alone_may_be_recurrent(algorithm: Any) -> None:
    for field in ("policy_encoder", "value_encoder"):
        settings: dict[str, Any] = {field: PLAIN}
        one = made(algorithm, **settings)
        one.fit_online(Walk, n_envs=N, n_steps=6, n_steps_per_epoch=6, show_progress=False)
        assert (set(one.ports_) >= {"policy"}) == (field == "value_encoder")


def test_another_run_of_more_environments_begins_with_empty_memories() -> None:
    one = made().fit_online(Walk, n_envs=N, n_steps=4, n_steps_per_epoch=4, show_progress=False)
    one.fit_online(Walk, n_envs=N + 1, n_steps=3, n_steps_per_epoch=3, show_progress=False)
    assert one.step == 7


@pytest.mark.parametrize("algorithm", [PPO, REINFORCE])
def test_what_is_taken_away_remembers(algorithm: Any, tmp_path: Path) -> None:
    one = made(algorithm, "lstm").fit_online(Walk, n_envs=N, n_steps=4, n_steps_per_epoch=4, show_progress=False)
    one.save(tmp_path / "saved")
    write_package(one, tmp_path / "package")
    mine, theirs, again = one.policy(), read_package(tmp_path / "package"), d3ray.load(tmp_path / "saved").policy()
    states = [policy.start(3) for policy in (mine, theirs, again)]
    assert set(states[0]) == {"state/policy"}
    for seen in np.random.default_rng(0).normal(size=(6, 3, 2)).astype("f4"):
        answers = [policy.step(state, seen) for policy, state in zip((mine, theirs, again), states, strict=True)]
        states = [state for state, _ in answers]
        for state, action in answers[1:]:
            np.testing.assert_array_equal(action, answers[0][1])
            np.testing.assert_allclose(state["state/policy"], states[0]["state/policy"], atol=1e-5)
    assert evaluate(one.policy(), Walk, episodes=3).mean > 0
    with pytest.raises(ConfigError, match="acts on what came before, so one observation is not enough"):
        one.predict(np.zeros((1, 2), "f4"))


@pytest.mark.long
@pytest.mark.parametrize("algorithm", [PPO, A2C, REINFORCE])
def test_they_learn_what_has_to_be_remembered_and_memoryless_ones_do_not(algorithm: Any) -> None:
    sizes: dict[Any, dict[str, Any]] = {
        PPO: {"update_interval": 256, "batch_size": 64, "n_passes": 4, "sequence_length": 8, "learning_rate": 5e-3},
        A2C: {"update_interval": 64, "learning_rate": 5e-3},
        REINFORCE: {"n_episodes": 16, "learning_rate": 5e-3},
    }
    steps = {PPO: 480, A2C: 600, REINFORCE: 400}[algorithm]

    def score(encoder: Any) -> float:
        settings = {**sizes[algorithm], "policy_encoder": encoder, "value_encoder": encoder, "device": "cpu", "seed": 1}
        if algorithm is REINFORCE:
            del settings["value_encoder"]
        if not encoder.get("units"):
            settings.pop("sequence_length", None)
        one = algorithm(**settings).fit_online(Sign, n_envs=8, n_steps=steps, n_steps_per_epoch=steps, show_progress=False)
        return evaluate(one.policy(), Sign, episodes=60, n_envs=20).mean

    assert score({"name": "gru", "units": 16, "encoder": {"hidden_units": [16]}}) == 1.0
    assert abs(score({"hidden_units": [16]})) < 0.5  # by chance 0, within four σ


def test_what_does_not_go_with_them_is_said() -> None:
    gru = {"name": "gru", "units": 4}
    said = "TRPO: policy_encoder is gru, and TRPO takes no recurrent encoder: every product with the curvature of its step"
    with pytest.raises(ConfigError, match=said):
        TRPO(policy_encoder=gru).check_settings()
    with pytest.raises(ConfigError, match="TRPO: value_encoder is lstm, and TRPO takes no recurrent encoder"):
        TRPO(value_encoder={"name": "lstm"}).check_settings()
    with pytest.raises(
        ConfigError, match="A2C: sequence_length is 5, and no encoder is recurrent: choose gru or lstm, or leave it"
    ):
        A2C(sequence_length=5).check_settings()
    with pytest.raises(ConfigError, match="PPO: augmentation changes each observation for itself, and policy_encoder gru"):
        PPO(policy_encoder=gru, augmentation=["random_shift"]).check_settings()
