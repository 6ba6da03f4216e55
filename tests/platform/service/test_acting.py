"""What a service answers is what the package does, whoever is asked at once and whatever the policy remembers."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from d3ray.algos.export.package import read_package
from d3ray.platform.service.recording import Unkept

from .packages import OBSERVATION, frames_dataset, serving, write_policy


def observations(n: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(n, 5)).astype(np.float32)


def test_one_or_many_are_answered_as_the_package_acts(discrete: Path, continuous: Path) -> None:
    seen = observations(20)
    with serving(discrete, continuous) as (client, _):
        for folder in (discrete, continuous):
            wanted = read_package(folder).predict(seen)
            one = [client.ask(f"/{folder.name}/act", {"observation": row.tolist()})[1] for row in seen[:5]]
            asked = {"decisions": [{"observation": row.tolist(), "episode": f"e{k}"} for k, row in enumerate(seen)]}
            many = client.ask(f"/{folder.name}/act", asked)[1]["decisions"]
            np.testing.assert_allclose([reply["action"] for reply in one], wanted[:5], atol=1e-6)
            np.testing.assert_allclose([reply["action"] for reply in many], wanted, atol=1e-6)
            assert [reply["episode"] for reply in many] == [f"e{k}" for k in range(20)]
            assert len({reply["episode"] for reply in one}) == 5, "each is an episode of its own"


def test_a_mask_says_what_is_legal(discrete: Path) -> None:
    with serving(discrete) as (client, _):
        for legal in range(3):
            mask = [k == legal for k in range(3)]
            assert client.act(action_mask=mask)["action"] == legal


def test_a_policy_that_looks_back_acts_by_the_state_that_travels(looks_back: Path) -> None:
    """Against the package, step by step, for a return that is asked for and rewards on the way."""
    policy, seen = read_package(looks_back), observations(6)
    memory, state, about = policy.start(1, 7.0), None, {"episode": "one", "target_return": 7.0}
    with serving(looks_back) as (client, _):
        for step, row in enumerate(seen):
            if step:
                memory, about = policy.rewarded(memory, [0.5 * step]), {"state": state, "reward": 0.5 * step}
            memory, action = policy.step(memory, row[None])
            reply = client.act(row.tolist(), **about)
            np.testing.assert_allclose(reply["action"], action[0], atol=1e-6)
            assert (reply["episode"], reply["step"]) == ("one", step)
            state = reply["state"]
        again = client.act(seen[-1].tolist(), **about)
    assert again["action"] == reply["action"], "who asks again gets the same"


def test_what_was_done_otherwise_is_remembered(looks_back: Path) -> None:
    policy, seen = read_package(looks_back), observations(2)
    memory, _ = policy.step(policy.start(1), seen[:1])
    _, wanted = policy.step(policy.executed(memory, [[0.9, -0.9, 0.1]]), seen[1:])
    with serving(looks_back) as (client, _):
        first = client.act(seen[0].tolist(), episode="e")
        told = client.act(seen[1].tolist(), state=first["state"], executed=[0.9, -0.9, 0.1])
        untold = client.act(seen[1].tolist(), state=first["state"])
    np.testing.assert_allclose(told["action"], wanted[0], atol=1e-6)
    assert told["action"] != untold["action"]


def test_single_frames_are_stacked_by_the_state(tmp_path: Path) -> None:
    data = frames_dataset()
    folder = write_policy(
        "DQN", tmp_path / "frames", dataset=data, sampler={"name": "uniform", "frames": 4}, observation_scaler="pixel"
    )
    policy, images = read_package(folder), np.asarray(data.columns["observation"][:6])
    facing = policy.facing(data.spec)
    memory, state = facing.start(1), {}
    with serving(folder) as (client, _), serving(folder, stacked=True) as (stacks, _):
        for step, image in enumerate(images):
            memory, action = facing.step(memory, image[None])
            reply = client.act(image.tolist(), **({"state": state} if step else {"episode": "e"}))
            state = reply["state"]
            assert reply["action"] == action[0]
            whole = np.concatenate([np.zeros_like(image)] * max(3 - step, 0) + list(images[max(0, step - 3) : step + 1]))
            assert stacks.act(whole.tolist())["action"] == action[0]


def test_a_policy_that_draws_draws_the_same_for_one_step_whatever_is_beside_it(draws: Path) -> None:
    seen = observations(8)
    rows = [{"observation": row.tolist(), "episode": f"e{k}", "step": k} for k, row in enumerate(seen)]
    with serving(draws) as (client, _):
        together = client.ask("/act", {"decisions": rows})[1]["decisions"]
        alone = [client.ask("/act", row)[1] for row in reversed(rows)][::-1]
        np.testing.assert_allclose([one["action"] for one in together], [one["action"] for one in alone], atol=1e-5)
        same = [client.act(seen[0].tolist(), episode="e", step=step)["action"] for step in range(4)]
    assert len({tuple(action) for action in same}) > 1, "and other ones at other steps"
    assert all(reply["log_prob"] is None for reply in together), "whose probability nobody knows"


def test_many_clients_at_once_get_their_own(continuous: Path) -> None:
    seen = observations(64)
    wanted = read_package(continuous).predict(seen)
    with serving(continuous) as (client, _), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: client.act(row.tolist())["action"], seen))
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_every_decision_is_recorded_as_it_is_answered(continuous: Path) -> None:
    kept = Unkept(keep=True)
    with serving(continuous, record=lambda name, version: kept) as (client, _):
        reply = client.act(episode="e", step=2)
    (row,) = kept.rows
    assert (row.episode, row.step, row.role, row.version) == ("e", 2, "champion", reply["version"])
    np.testing.assert_allclose(row.observation["observation"], np.float32(OBSERVATION))
    np.testing.assert_allclose(row.action, reply["action"])


@pytest.mark.parametrize("name", ["looks_back", "continuous"])
def test_a_state_is_small(name: str, request: pytest.FixtureRequest) -> None:
    """The size that docs/service.md tells follows from the memory: 4/3 of its bytes, and some two hundred for whose it is."""
    policy = read_package(request.getfixturevalue(name))
    memory = policy.start(1) or {}
    size = sum(part.nbytes for part in memory.values())
    with serving(request.getfixturevalue(name)) as (client, _):
        state = client.act(episode="e")["state"]
    assert size <= len(base64.b64decode(state)) <= size + 250 + 80 * len(memory)


def test_explained(discrete: Path, continuous: Path, looks_back: Path) -> None:
    from d3ray.algos.export.package import read_values

    values = read_values(discrete)
    assert values is not None
    row = np.float32(OBSERVATION)[None]
    wanted = values.run({"observation": row, "action_mask": np.ones((1, 3), bool)})[0]
    with serving(discrete, continuous, looks_back, explore={"name": "none"}) as (client, _):
        reply = client.ask("/dqn/act", {"observation": OBSERVATION, "explain": True})[1]
        assert reply["explain"] == {"value": pytest.approx(wanted[reply["action"]], abs=1e-6), "propensity": 1.0, "nearest": None}
        other = client.ask("/td3/act", {"observation": OBSERVATION, "explain": True})[1]["explain"]
        assert isinstance(other["value"], float)
        assert other["propensity"] is None
        none = client.ask("/transformer/act", {"observation": OBSERVATION, "explain": True, "target_return": 1.0})[1]["explain"]
        assert none["value"] is None, "its package has no values"
