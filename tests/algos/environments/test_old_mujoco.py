"""The environments of D4RL's files against gymnasium's v4: observations, rewards and ends by the formulas of the old programs.

D4RL's environments are those of gym (openai/gym, gym/envs/mujoco/{hopper,half_cheetah,walker2d,ant}.py, the versions "-v2"; D4RL's
d4rl/gym_mujoco/gym_envs.py adds only where the file lies). They are written here once more, as formulas of what the simulator gave.
What a simulator does with a state and an action is compared on expert transitions that others recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

from d3ray.data.formats.registry import read


class State(NamedTuple):
    """What a simulator has."""

    qpos: np.ndarray
    qvel: np.ndarray
    cfrc: np.ndarray
    x: float  # of what is to move forward


class Old(NamedTuple):
    """One environment of the old programs."""

    dt: float
    observe: Callable[[State], np.ndarray]
    reward: Callable[[float, np.ndarray, State], float]  # (speed, action, state after)
    done: Callable[[State], bool]
    kwargs: dict[str, Any] = {}  # noqa: RUF012


def clipped(state: State) -> np.ndarray:
    return np.concatenate([state.qpos[1:], np.clip(state.qvel, -10, 10)])


def hopper_done(state: State) -> bool:
    s, height, angle = np.concatenate([state.qpos, state.qvel]), state.qpos[1], state.qpos[2]
    return not (np.isfinite(s).all() and (np.abs(s[2:]) < 100).all() and height > 0.7 and abs(angle) < 0.2)


def walker_done(state: State) -> bool:
    height, angle = state.qpos[1], state.qpos[2]
    return not (0.8 < height < 2.0 and -1.0 < angle < 1.0)


def ant_done(state: State) -> bool:
    s = np.concatenate([state.qpos, state.qvel])
    return not (np.isfinite(s).all() and 0.2 <= s[2] <= 1.0)


def ant_observation(state: State) -> np.ndarray:
    return np.concatenate([state.qpos[2:], state.qvel, np.clip(state.cfrc, -1, 1).reshape(-1)])


def ant_reward(speed: float, action: np.ndarray, state: State) -> float:
    contact = 0.5 * 1e-3 * np.square(np.clip(state.cfrc, -1, 1)).sum()
    return speed - 0.5 * np.square(action).sum() - contact + 1.0


OLD = {
    "Hopper": Old(0.008, clipped, lambda v, a, _: v + 1.0 - 1e-3 * np.square(a).sum(), hopper_done),
    "HalfCheetah": Old(
        0.05,
        lambda state: np.concatenate([state.qpos[1:], state.qvel]),
        lambda v, a, _: v - 0.1 * np.square(a).sum(),
        lambda _: False,
    ),
    "Walker2d": Old(0.008, clipped, lambda v, a, _: v + 1.0 - 1e-3 * np.square(a).sum(), walker_done),
    "Ant": Old(0.05, ant_observation, ant_reward, ant_done, {"use_contact_forces": True}),
}


def simulator(name: str) -> Any:
    environment: Any = gymnasium.make(f"{name}-v4", **OLD[name].kwargs).unwrapped
    environment.reset(seed=0)
    assert environment.dt == pytest.approx(OLD[name].dt)
    return environment


def state_of(environment: Any, name: str) -> State:
    data = environment.data
    x = environment.get_body_com("torso")[0] if name == "Ant" else data.qpos[0]
    return State(data.qpos.copy(), data.qvel.copy(), data.cfrc_ext.copy(), float(x))


def compare(environment: Any, name: str, action: np.ndarray) -> bool:
    """One step: v4 shows and gives what the old environment would have. Returns whether it ended."""
    old, before = OLD[name], state_of(environment, name)
    observation, reward, terminated, _, _ = environment.step(action)
    after = state_of(environment, name)
    np.testing.assert_array_equal(observation, old.observe(after))
    assert reward == pytest.approx(old.reward((after.x - before.x) / old.dt, action, after), abs=1e-9)
    assert terminated == old.done(after)
    return terminated


@pytest.mark.parametrize(("name", "size"), [("Hopper", 11), ("HalfCheetah", 17), ("Walker2d", 17), ("Ant", 111)])
def test_v4_shows_gives_and_ends_as_the_old_one(name: str, size: int) -> None:
    environment, rng, ended, force = simulator(name), np.random.default_rng(1), 0, 0.0
    assert environment.observation_space.shape == (size,)
    for _ in range(600):
        action = rng.uniform(-1.5, 1.5, environment.action_space.shape)  # costs are of actions as proposed
        over = compare(environment, name, action)
        force = max(force, np.abs(environment.data.cfrc_ext).max())
        if over:
            ended += 1
            environment.reset()
    assert (ended > 3) == (name in ("Hopper", "Walker2d"))
    assert force > 1  # with MuJoCo 2.0 the old bindings left contact forces at zero


@pytest.mark.parametrize("name", ["Hopper", "Walker2d", "Ant"])
def test_both_end_at_the_same_limits(name: str) -> None:
    """States about each limit of height, angle and speed."""
    environment, rng = simulator(name), np.random.default_rng(2)
    at = {"Hopper": {1: (0.7,), 2: (-0.2, 0.2)}, "Walker2d": {1: (0.8, 2.0), 2: (-1.0, 1.0)}, "Ant": {2: (0.2, 1.0)}}[name]
    found: list[bool] = []
    for entry, limits in at.items():
        for limit in limits:
            for _ in range(60):
                qpos, qvel = environment.init_qpos.copy(), environment.init_qvel.copy()
                qpos[entry] = limit + rng.normal(scale=0.02)
                environment.set_state(qpos, qvel)
                found.append(compare(environment, name, np.zeros(environment.action_space.shape)))
    if name == "Hopper":
        for speed in (99.0, 101.0, 5_000.0):
            environment.set_state(environment.init_qpos.copy(), np.append(np.zeros(5), speed))
            found.append(compare(environment, name, np.zeros(3)))
    assert 0.2 < np.mean(found) < 0.8


@pytest.mark.long
@pytest.mark.parametrize("name", ["Hopper", "HalfCheetah"])
@pytest.mark.parametrize("margins", ["of the older MuJoCo", "as they are"])
def test_what_others_recorded_follows_from_v4_and_the_old_formulas(name: str, margins: str, test_data: Path) -> None:
    """Set to what was observed, the simulator goes to what was observed next, and the rewards are the old formula's.

    MuJoCo 4.0.0 adds up the margins of two geoms, where the one that recorded took the larger: a floor without a margin is as then.
    With its margin Hopper meets the floor a millimetre earlier, which shows in speeds while it touches it, and nowhere else.
    """
    old, environment = OLD[name], simulator(name)
    if margins == "of the older MuJoCo":
        environment.model.geom_margin[0] = 0
    columns = read(test_data / "cs285" / f"expert_data_{name}-v4.pkl").steps.columns
    rows = np.flatnonzero(~columns["closing"])
    observed, following = columns["observation"][rows].astype(float), columns["observation"][rows + 1].astype(float)
    nq = environment.model.nq
    known = np.abs(observed[:, nq - 1 :]).max(1) < (10 if name == "Hopper" else np.inf)  # what was clipped is not
    assert known.mean() > 0.8
    touching, far, paid, margin = [], [], [], 0.0
    for t in np.flatnonzero(known):
        environment.set_state(np.append(0.0, observed[t, : nq - 1]), observed[t, nq - 1 :])  # where it stands does not matter
        before, action, reward = environment.data.ncon, columns["action"][rows[t]], columns["reward"][rows[t]]
        shown, _, terminated, _, _ = environment.step(action)
        after = state_of(environment, name)
        touching.append(before + environment.data.ncon > 0)
        margin = max([margin, *(contact.includemargin for contact in environment.data.contact)])
        far.append(np.abs(shown - following[t]).max())
        paid.append(abs(old.reward(after.x / old.dt, action, after) - reward))
        recorded = State(np.append(0.0, following[t, : nq - 1]), following[t, nq - 1 :], after.cfrc, 0.0)
        assert terminated == old.done(after) == old.done(recorded)
    touching, far, paid = np.array(touching), np.array(far), np.array(paid)
    assert 0.1 < touching.mean() < 0.9
    assert far[~touching].max() < 1e-4
    assert paid[~touching].max() < 1e-5
    if margin > 0.0015:  # of 1 mm and 1 mm
        assert (name, margins) == ("Hopper", "as they are")
        assert 5e-3 < np.median(far[touching]) < 0.02
        assert np.median(paid[touching]) < 2e-3
    else:
        assert np.quantile(far, 0.99) < 1e-4
        assert np.quantile(paid, 0.99) < 1e-5
